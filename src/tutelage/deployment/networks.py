"""Students that are networks, or see through filters, as one torch module from raw records to shares."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tutelage.data.accepted import Accepted
from tutelage.deployment.students import Student
from tutelage.nets.masks import windows
from tutelage.privacy.errors import RecipeError

_RECORDS = 2  # of the example that a network is traced with: any number will do later


@final
class Whole(nn.Module):
    """Hold a student with what is done to raw records before it: bytes of images are divided by 255."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        model = student.model
        self.scaled = bool(student.accepted and student.accepted.scaled)
        self.judged: Any = None
        if student.form == "linear":
            self.inner: nn.Module = _Linear(model)
        else:
            network = model.factory().eval()
            network.load_state_dict(model.state)
            self.inner, self.judged = _steady(network), model._judged if student.form == "network" else self._drawn
            self.window = getattr(model, "window", None)

    def forward(self, inputs: Tensor) -> Tensor:
        """Give shares (records, classes) or (records, *space)."""
        values = inputs.to(torch.float32) / 255 if self.scaled else inputs
        found: Tensor = self.inner(values) if self.judged is None else self.judged(self.inner, values)
        return found

    def _drawn(self, network: nn.Module, block: Tensor) -> Tensor:
        """Look through overlapping windows as `MaskModel` does, without writing into a sum: exporters lose such writes."""
        space = tuple(int(side) for side in block.shape[2:])
        if self.window is None or all(have <= want for have, want in zip(space, self.window, strict=True)):
            return network(block).float().sigmoid()[:, 0]
        seen, parts = np.zeros(space, np.float32), []
        for place in windows(space, self.window):
            seen[place] += 1
            share = network(block[(slice(None), slice(None), *place)]).float().sigmoid()[:, 0]
            edges = [(one.start, have - one.stop) for one, have in zip(place, space, strict=True)]
            parts.append(functional.pad(share, [side for pair in reversed(edges) for side in pair]))
        return torch.stack(parts).sum(dim=0) / torch.from_numpy(seen)


def _steady(network: nn.Module) -> nn.Module:
    """Put group norms in place that add up in double precision: runtimes' own ones drift on large volumes, by up to 4e-4."""
    for name, layer in network.named_children():
        if isinstance(layer, nn.GroupNorm):
            setattr(network, name, _Norm(layer))
        else:
            _steady(layer)
    return network


@final
class _Norm(nn.Module):
    """Normalise groups of channels as `nn.GroupNorm` does."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        own = self.layer
        rows = values.reshape(values.shape[0], own.num_groups, -1).to(torch.float64)
        apart = rows - rows.mean(dim=2, keepdim=True)
        scaled = apart / (apart.square().mean(dim=2, keepdim=True) + own.eps).sqrt()
        found = scaled.to(torch.float32).reshape(values.shape)
        if not own.affine:
            return found
        sides = (1, -1, *(1,) * (values.dim() - 2))
        return found * own.weight.reshape(sides) + own.bias.reshape(sides)


@final
class _Linear(nn.Module):
    """Hold a linear student over patches of images."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.features, size = model.sight.features, float(np.sqrt(model.sight.width))
        self.register_buffer("filters", torch.from_numpy(self.features.filters))
        self.register_buffer("mean", torch.from_numpy(np.asarray(model.sight.mean, np.float64)))
        self.register_buffer("bent", torch.from_numpy(np.asarray(model.sight.basis @ model.weights[1:], np.float64) / size))
        self.register_buffer("start", torch.from_numpy(np.asarray(model.weights[:1], np.float64) / size))

    def forward(self, images: Tensor) -> Tensor:
        seen = self.features._seen(images, self.filters).to(torch.float64)
        return ((seen - self.mean) @ self.bent + self.start).softmax(dim=1).to(torch.float32)


def taken(student: Student) -> Accepted:
    """Say which raw records a network is written for."""
    if student.accepted is None:
        raise RecipeError("`run` must hold a student that says what it takes. Got one of an older form instead.")
    return student.accepted


def example(accepted: Accepted) -> Tensor:
    """Make records of the right shape and kind."""
    shape = (_RECORDS, *accepted.shape)
    return torch.zeros(shape, dtype=torch.uint8) if accepted.scaled else torch.zeros(shape)


def onnx(student: Student) -> Any:
    """Write a network as an ONNX model with one input and one output: raw records to shares."""
    whole, given = Whole(student).eval(), example(taken(student))
    with _quiet(), torch.no_grad():
        made = torch.onnx.export(
            whole, (given,), dynamo=True, verbose=False, input_names=["inputs"], output_names=["shares"],
            dynamic_shapes=({0: torch.export.Dim("records")},),
        )  # fmt: skip
    assert made is not None
    return made.model_proto


def torchscript(student: Student, path: Path) -> None:
    """Write a network as TorchScript: raw records to shares."""
    whole, given = Whole(student).eval(), example(taken(student))
    with _quiet(), torch.no_grad():
        torch.jit.trace(whole, (given,), check_trace=False).save(str(path))


def run_torchscript(path: Path, inputs: Any) -> Any:
    """Ask a TorchScript file."""
    with _quiet(), torch.no_grad():
        return torch.jit.load(str(path), map_location="cpu")(torch.from_numpy(np.ascontiguousarray(inputs))).numpy()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what exporters say about their own future."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
