"""Tensors on disk: safetensors, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tutelage.privacy.errors import DataError, Unsealed

# What the format calls them, in the order in which its own writer puts them into a file.
_NAMES = {
    torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16",
    torch.float16: "F16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
}  # fmt: skip
_BYTES = 1 << 26  # written at a time


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
            _stream(file, tensors, metadata)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _stream(file: BinaryIO, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write what `safetensors.torch.save` would give, without holding it: a thousand networks need not fit in memory twice."""
    ranks = {dtype: rank for rank, dtype in enumerate(_NAMES)}
    if any(tensor.dtype not in ranks for tensor in tensors.values()):
        raise DataError(f"`tensors` must be of {', '.join(map(str, ranks))}. Got another kind instead.")
    names = sorted(tensors, key=lambda name: (ranks[tensors[name].dtype], name))
    # One entry: safetensors writes several in any order, and equal weights should be equal files.
    header: dict[str, object] = {"__metadata__": {"tutelage": json.dumps(metadata, sort_keys=True)}}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + math.prod(tensor.shape) * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    told = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    told += b" " * (-len(told) % 8)
    file.write(len(told).to_bytes(8, "little") + told)
    for name in names:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        for part in flat.split(_BYTES):
            file.write(part.numpy().data)


def read_tensors(path: str | Path, *, kind: str, only: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata of a file of this kind; with `only`, the metadata alone."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = json.loads((file.metadata() or {}).get("tutelage", "{}"))
            if metadata.get("kind") != kind:
                raise DataError(f"`path` must name a file of kind {kind!r}. Got {metadata.get('kind')!r} instead.")
            return {} if only else {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, FileNotFoundError) as error:
        raise DataError(f"`path` must name a whole safetensors file. Got {Path(path).name!r} instead.") from error


def label_type(classes: int) -> torch.dtype:
    """Pick the narrowest integers that hold every label."""
    return torch.uint8 if classes <= 256 else torch.int16 if classes <= 2**15 else torch.int32
