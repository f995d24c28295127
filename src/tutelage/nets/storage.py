"""Tensors on disk: safetensors, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tutelage.privacy.errors import DataError, Unsealed


def write_tensors(path: str | Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, private: bool) -> None:
    """Write beside, sync, then rename: a reader sees the old file or the new one, never a half.

    What is private is written below a folder of that name only, readable by its owner alone.
    """
    path = Path(path)
    if private and "private" not in path.resolve().parent.parts:
        raise Unsealed("`path` must lie in a folder named 'private'. Got one outside instead.")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            # One entry: safetensors writes several in any order, and equal weights should be equal files.
            told = {"tutelage": json.dumps(metadata, sort_keys=True)}
            file.write(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, told))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata of a file that says it is of this kind."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = json.loads((file.metadata() or {}).get("tutelage", "{}"))
            if metadata.get("kind") != kind:
                raise DataError(f"`path` must name a file of kind {kind!r}. Got {metadata.get('kind')!r} instead.")
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, FileNotFoundError) as error:
        raise DataError(f"`path` must name a whole safetensors file. Got {Path(path).name!r} instead.") from error


def label_type(classes: int) -> torch.dtype:
    """Pick the narrowest integers that hold every label."""
    return torch.uint8 if classes <= 256 else torch.int16 if classes <= 2**15 else torch.int32
