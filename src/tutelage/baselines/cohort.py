"""Private units as rows for training: every unit gives as many views of itself as every other."""

from __future__ import annotations

from random import SystemRandom
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from tutelage.data.dataset import Private
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import as_float, as_inputs
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import DataError, Error, RecipeError
from tutelage.privacy.sealed import quietly

Distortion = Augmentation | Warp


def places(private: Private) -> int:
    """Count the units: public, and read from the ids alone."""
    return len(np.unique(private.units))


def taking_part(units: int, size: int) -> Tensor:
    """Draw who takes part, anew and in secret; everyone, each in its place, where nobody is left out."""
    if size == units:
        return torch.arange(units)
    # From the operating system: on a CPU torch keeps 32 bits of a seed, and whoever tries them all knows who was drawn.
    # As drawn, not sorted: the proof puts another unit in the place of one, which must leave the others theirs, and their views.
    return torch.tensor(SystemRandom().sample(range(units), size))


@final
class Cohort:
    """Hold every record on the device, ordered by unit. It prints its size and nothing else."""

    def __init__(self, inputs: Tensor, targets: Tensor, starts: Tensor, counts: Tensor) -> None:
        self._inputs, self._targets, self._starts, self._counts = inputs, targets, starts, counts

    @classmethod
    def of(cls, private: Private, *, device: torch.device) -> Cohort:
        """Read the records. Whoever calls this has charged for it."""
        # Places follow the order in which units first appear: replacing one in its place moves no other.
        _, first, which = np.unique(private.units, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        home = rank[which]
        order, counts = np.argsort(home, kind="stable"), np.bincount(home, minlength=len(first))
        inputs, targets = as_inputs(private.inputs)[order], _targets(private.targets)[order]
        _check_size(inputs, targets)
        starts = torch.from_numpy(np.cumsum(counts) - counts)
        return cls(inputs.to(device), targets.to(device), starts.to(device), torch.from_numpy(counts).to(device))

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Cohort({len(self)} units)"

    def views(
        self, chosen: Tensor, count: int, *, augmentation: Distortion | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Give `count` views of each chosen unit: images (units, count, ...) and targets (units, count, ...).

        A unit's views go round its records from a random one on: a function of its own data and of public randomness,
        whatever the others hold and however many records it has.
        """
        chosen = chosen.to(self._counts.device)
        begin = torch.rand(len(chosen), generator=generator, device=generator.device).to(chosen.device)
        counts = self._counts[chosen][:, None]
        turn = (begin[:, None] * counts).long() + torch.arange(count, device=chosen.device)
        rows = self._starts[chosen][:, None] + turn % counts  # (units, count)
        images, targets = as_float(self._inputs[rows]), self._targets[rows]
        if augmentation is None:
            return images, targets
        flat, marks = images.flatten(0, 1), targets.flatten(0, 1)
        draws = augmentation.draw(len(flat), generator=generator).to(flat.device)
        if isinstance(augmentation, Augmentation):
            flat = augmentation.apply(flat, draws)
        elif targets.ndim > 2:
            flat, marks = augmentation.both(flat, marks, draws)
        else:
            flat = augmentation.images(flat, draws)
        return flat.unflatten(0, images.shape[:2]), marks.unflatten(0, targets.shape[:2])


def check_distortion(augmentation: Distortion | None, *, masks: bool) -> None:
    """Refuse a distortion that would move an image away from its mask."""
    if augmentation is not None and not isinstance(augmentation, Warp if masks else (Warp, Augmentation)):
        kinds = "a Warp" if masks else "an Augmentation or a Warp"
        raise RecipeError(f"`augmentation` must be {kinds} or None here. Got {type(augmentation).__name__} instead.")


def check_targets(private: Private, network: nn.Module) -> None:
    """Refuse before the charge what no loss can be taken of: masks of another size, labels that the network has no score for.

    This looks at the labels; what it refuses is a mistake in the data, and none of their values is told.
    """
    place = next(network.parameters()).device
    blank = as_inputs(np.zeros((1, *private.inputs.shape[1:]), np.uint8))
    first = quietly("targets", lambda: _targets(private.targets[:1]), ours=Error)  # a word among numbers would be quoted
    _check_size(blank, first)
    with torch.no_grad():
        scores = network(as_float(blank).to(place))  # no record has been through it: an error here may speak
    labels = private.targets
    if labels.ndim == 1 and not (labels.min() >= 0 and labels.max() < scores.shape[1]):
        raise DataError(f"`targets` must be labels from 0 to {scores.shape[1] - 1}. Got others instead (withheld).")


def _check_size(inputs: Tensor, targets: Tensor) -> None:
    if targets.ndim > 1 and targets.shape[1:] != inputs.shape[2:]:
        sizes = f"{tuple(targets.shape[1:])} for {tuple(inputs.shape[2:])}"
        raise DataError(f"`targets` must be masks of the images' size. Got {sizes} instead.")


def _targets(targets: Any) -> Tensor:
    """Bring labels to int64 (records,) and masks to float32 (records, *space): `nets.losses.measure` tells them apart by that."""
    array = np.asarray(targets)
    if array.ndim > 1:
        masks = torch.from_numpy(array.astype(np.float32))
        return masks[:, 0] if masks.ndim > 3 and masks.shape[1] == 1 else masks
    if array.dtype.kind not in "biu":
        raise DataError(f"`targets` must be whole labels or masks. Got {array.dtype} of shape {array.shape} instead.")
    return torch.from_numpy(array.astype(np.int64))
