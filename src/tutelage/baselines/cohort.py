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
from tutelage.privacy.errors import DataError, RecipeError

Distortion = Augmentation | Warp


def places(private: Private) -> int:
    """Give the number of places on the roster: the share that takes part and the mean need a public one."""
    if private.places is None:
        raise RecipeError("`private` must have a `roster` for a baseline: the number of units is private. Got data without one.")
    return private.places


def taking_part(units: int, size: int) -> Tensor:
    """Draw who takes part, anew and in secret; everyone, each in its place, where nobody is left out."""
    if size == units:
        return torch.arange(units)
    # From the operating system: torch keeps 32 bits of a seed on a CPU, so that all can be tried, and the draw found.
    # As drawn, not sorted: the proof puts another unit in the place of one, which must leave the others theirs, and their views.
    return torch.tensor(SystemRandom().sample(range(units), size))


@final
class Cohort:
    """Hold every record on the device, ordered by the place of its unit. It prints the number of places and nothing else.

    A place whose unit is absent stays: it counts for nothing in a sum, and no other place moves.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, starts: Tensor, counts: Tensor) -> None:
        self._inputs, self._targets, self._starts, self._counts = inputs, targets, starts, counts

    @classmethod
    def of(cls, private: Private, *, device: torch.device) -> Cohort:
        """Read the records. Whoever calls this has charged for it."""
        size = places(private)
        assert private.roster is not None
        home = private.roster.find(private.units)  # -1: not on the roster, left out
        order = np.argsort(home, kind="stable")[(home < 0).sum() :]
        counts = np.bincount(home[home >= 0], minlength=size)
        inputs, targets = as_inputs(private.inputs), _targets(private.targets)
        _check_size(inputs, targets)
        # One blank record more: what the views of an empty place show, before they are left out.
        inputs, targets = (torch.cat([tensor[order], tensor.new_zeros(1, *tensor.shape[1:])]) for tensor in (inputs, targets))
        starts = torch.from_numpy(np.where(counts > 0, np.cumsum(counts) - counts, len(order)))
        return cls(inputs.to(device), targets.to(device), starts.to(device), torch.from_numpy(counts).to(device))

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Cohort({len(self)} places)"

    def present(self, chosen: Tensor) -> Tensor:
        """Tell which of these places have records: (units,). What an empty one adds to a sum is exactly zero."""
        return self._counts[chosen.to(self._counts.device)] > 0

    def views(
        self, chosen: Tensor, count: int, *, augmentation: Distortion | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Give `count` views of each chosen unit: images (units, count, ...) and targets (units, count, ...).

        A unit's views go round its records from a random one on: a function of its own data and of public randomness,
        whatever the others hold and however many records it has.
        """
        chosen = chosen.to(self._counts.device)
        begin = torch.rand(len(chosen), generator=generator, device=generator.device).to(chosen.device)
        counts = self._counts[chosen][:, None].clamp(min=1)
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


def checked(private: Private, network: nn.Module) -> Private:
    """Refuse before the charge targets of a kind or size that no loss can be taken of; leave out records of no class.

    Kinds and sizes are public, and no record has been through the network yet: a message may say what is wrong.
    """
    place = next(network.parameters()).device
    blank = as_inputs(np.zeros((1, *private.inputs.shape[1:]), np.uint8))
    with torch.no_grad():
        scores = network(as_float(blank).to(place))
    if private.targets.ndim == 1:
        return private.labelled(scores.shape[1])
    _check_size(blank, _targets(np.zeros((1, *private.targets.shape[1:]), private.targets.dtype)))
    return private


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
    return torch.from_numpy(array.astype(np.int64))  # `Private` has read them as whole numbers
