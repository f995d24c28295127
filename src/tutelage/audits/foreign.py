"""Audit anybody's model by records that it learned from, and others."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.audits import scores
from tutelage.audits.bounds import ALARM, one_run, one_run_gaussian
from tutelage.audits.pipeline import probabilities
from tutelage.audits.roc import Roc
from tutelage.audits.verdict import Claim, Verdict
from tutelage.data.overlap import copies
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Records = tuple[npt.ArrayLike, npt.ArrayLike]
LEAST = 100  # records on a side: with fewer not even a rate at 1 % can be had


def inspect(
    model: Any, members: Records, others: Records, *, classes: int = 0, claim: Claim | None = None, alarm: float = ALARM
) -> Verdict:
    """Attack one model with thresholds: no shadow models, and so no more than a first look.

    `members` and `others` are (inputs, labels). Bounds on ε hold if a fair coin decided for each record whether it was learned:
    a random half of one set, and not two sets from different places. The first score, the loss, was chosen beforehand.
    """
    began = time.perf_counter()
    (inside, inner), (outside, outer) = checked_apart(members, others)
    count = classes or int(max(inner.max(), outer.max())) + 1
    outputs = [(probabilities(model, inputs, count), labels) for inputs, labels in ((inside, inner), (outside, outer))]
    curves = {name: Roc.of(*(score(*one) for one in outputs)) for name, score in scores.SCORES.items()}
    first = next(iter(curves.values()))
    delta = 1e-5 if claim is None else claim.delta
    bounds = tuple(bound(first.members, first.others, delta, alarm=alarm / 2) for bound in (one_run, one_run_gaussian))
    rows = {
        f"{name.replace(' ', '_')}_{side}": score(*one)
        for name, score in scores.SCORES.items()
        for side, one in zip(("members", "non_members"), outputs, strict=True)
    }
    about = f"{len(inside):,} members and {len(outside):,} non-members of one model, as they are"
    taken = time.perf_counter() - began
    return Verdict(claim=claim, bounds=bounds, curves=curves, canaries=about, alarm=alarm, seconds=taken, rows=rows)


def checked_apart(members: Records, others: Records) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read both sides, or refuse them: too few, or one record on both."""
    inside, outside = _read(members, "members"), _read(others, "non_members")
    _check_apart(inside[0], outside[0])
    return inside, outside


def _read(records: Records, name: str) -> tuple[Array, Array]:
    try:
        inputs, labels = (np.asarray(part) for part in records)
    except (TypeError, ValueError):
        raise DataError(f"`{name}` must be (inputs, labels). Got another value instead.") from None
    if len(inputs) != len(labels) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"`{name}` must hold one whole-number label per input. Got {len(labels)} for {len(inputs)} instead.")
    if len(inputs) < LEAST:
        raise DataError(f"`{name}` must hold at least {LEAST} records, for a rate at 1 %. Got {len(inputs)} instead.")
    return inputs, labels


def _check_apart(members: Array, others: Array) -> None:
    """Refuse a record on both sides: it is a member, and would count as one that was not."""
    if both := len(copies(others, members)):
        raise DataError(
            f"`non_members` must hold no record of `members`, in whatever form. Got {both} of {len(others)} that are there too: "
            "`tutelage.data.overlap.copies(non_members, members)` gives their places; take them out."
        )


def read(path: str | os.PathLike[str]) -> tuple[Array, Array]:
    """Read inputs and labels from a .npz file: arrays `inputs` and `targets`, or `x` and `y`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = next((pair for pair in (("inputs", "targets"), ("x", "y"), ("X", "y")) if set(pair) <= set(file.files)), None)
            if names is None:
                raise DataError(f"`{Path(path).name}` must hold `inputs` and `targets`. Got {', '.join(file.files)} instead.")
            return file[names[0]], file[names[1]]
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"`{Path(path).name}` must be a .npz file of plain arrays. Got another instead.") from None


def load(path: str | os.PathLike[str], *, device: str = "auto") -> Any:
    """Read a model by its ending: .skops, .safetensors or .npz of this package, or .onnx. Nothing in the file is executed."""
    place = Path(path)
    if not place.is_file():
        raise DataError(f"`model` must be a file. Got {place.name!r}, which is none, instead.")
    if place.suffix == ".skops":
        from tutelage.estimators import load as stored

        return stored(place)
    if place.suffix == ".safetensors":
        from tutelage.nets.model import Model

        return Model.load(place, device=device)
    if place.suffix == ".npz":
        from tutelage.students.linear import LinearModel

        return LinearModel.load(place)
    if place.suffix == ".onnx":
        return Onnx(place)
    raise RecipeError(f"`model` must end in .skops, .safetensors, .npz or .onnx. Got {place.suffix or 'no ending'!r} instead.")


class Onnx:
    """Ask a network in ONNX's form: its first output is class probabilities, or logits of them."""

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise RecipeError("`model` must not be .onnx where onnxruntime is not installed. Got one instead.") from None
        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def predict_proba(self, inputs: Array) -> Array:
        """Give class probabilities (records, classes)."""
        name = self._session.get_inputs()[0].name
        return softened(np.asarray(self._session.run(None, {name: np.asarray(inputs, dtype=np.float32)})[0]))


def softened(outputs: Array) -> Array:
    """Take probabilities as they are, and make some of logits."""
    given = np.asarray(outputs, dtype=np.float64)
    if (given >= 0).all() and np.allclose(given.sum(axis=1), 1, atol=1e-3):
        return given
    raised = np.exp(given - given.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


class Network:
    """Let a torch module that gives logits be asked like a model with probabilities."""

    def __init__(self, module: Any, *, block: int = 512) -> None:
        self.module, self.block = module, block

    def predict_proba(self, inputs: Array) -> Array:
        """Give class probabilities (records, classes), in evaluation mode; the module's own mode is put back."""
        import torch

        training = self.module.training
        first = next(self.module.parameters(), torch.empty(0))
        self.module.eval()
        try:
            with torch.inference_mode():
                rows = torch.as_tensor(np.asarray(inputs), dtype=first.dtype).split(self.block)
                outputs = torch.cat([self.module(part.to(first.device)).double().softmax(dim=1).cpu() for part in rows])
        finally:
            self.module.train(training)
        return np.asarray(outputs.numpy())


def asked(model: Any) -> Any:
    """Take anything that predicts: our models, scikit-learn's, a torch module, a function from inputs to probabilities."""
    if hasattr(model, "predict_proba") or hasattr(model, "probabilities") or hasattr(model, "predict"):
        return model
    if hasattr(model, "parameters") and hasattr(model, "eval"):
        return Network(model)
    if callable(model):
        return _Function(model)
    raise RecipeError(
        f"`model` must have `predict_proba` or `predict`, or be a torch module. Got {type(model).__name__} instead."
    )


class _Function:
    def __init__(self, function: Any) -> None:
        self.function = function

    def predict_proba(self, inputs: Array) -> Array:
        return np.asarray(self.function(inputs), dtype=np.float64)


def claim_of(epsilon: float | None, delta: float | None, document: Mapping[str, Any] | None = None) -> Claim | None:
    """Build what is claimed of a model: by a guarantee, by two numbers, or not at all."""
    if document is not None:
        return Claim.of(document)
    if (epsilon is None) != (delta is None):
        raise RecipeError("`epsilon` and `delta` must be given together. Got one of them instead.")
    return None if epsilon is None or delta is None else Claim(epsilon, delta)
