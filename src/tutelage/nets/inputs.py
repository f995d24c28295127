"""Arrays as a network wants them, and the device to put them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tutelage.privacy.errors import DataError, RecipeError

NARROW = ("avx512_bf16", "amx_bf16")  # instructions for bfloat16 that are known to be fast; ARM's were never tried


def pick_device(name: str) -> torch.device:
    """Resolve 'auto' to the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError(f"`device` must be one that this machine has. Got {name!r} instead.")
    return device


def narrow(device: torch.device) -> bool:
    """Tell whether a device multiplies in bfloat16 by itself: GPUs do, and CPUs with instructions for it."""
    if device.type != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and any(torch.cpu.get_capabilities().get(name) for name in NARROW)


def as_inputs(inputs: Any) -> Tensor:
    """Bring images to (records, channels, height, width) and anything else to (records, ...); bytes stay bytes.

    Grey images may come as (records, height, width), colour ones with their channels first or last.
    """
    array = np.ascontiguousarray(arranged(np.asarray(inputs)))
    if array.dtype != np.uint8:
        array = array.astype(np.float32, copy=False)
    if not array.flags.writeable or min(array.strides) < 0:
        array = array.copy()  # torch refuses to promise that it will not write, and to read one record backwards
    return torch.from_numpy(array)


def arranged(array: np.ndarray) -> np.ndarray:
    """Look at images as (records, channels, height, width) and at anything else as it is; nothing is copied."""
    if array.ndim < 2:
        raise DataError(f"`inputs` must have at least two dimensions. Got {array.ndim} instead.")
    if array.ndim == 3:
        return array[:, None]
    last = array.ndim == 4 and array.shape[-1] in (1, 3) and array.shape[1] not in (1, 3)
    return np.moveaxis(array, -1, 1) if last else array


def as_float(inputs: Tensor) -> Tensor:
    """Bring bytes to [0, 1]; floats are taken as they are."""
    return inputs.to(torch.float32) / 255 if inputs.dtype == torch.uint8 else inputs
