"""How every defence here reads private records: it writes first that there is no guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.data.dataset import Private, Public
from tutelage.distillation.stack import one_of
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import NonPrivate
from tutelage.privacy.ledger import Ledger


@final
@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Hold what a defence learns from, on its device: images, labels as numbers, and how many classes the network has."""

    images: Tensor
    labels: Tensor
    classes: int

    @property
    def hot(self) -> Tensor:
        """Give labels as rows (n, classes)."""
        return F.one_hot(self.labels, self.classes).float()

    @classmethod
    def read(cls, private: Private, ledger: Ledger, *, method: str, classes: int, device: str) -> Records:
        """Write ε = ∞ into the ledger, then read."""
        ledger.charge(NonPrivate(f"{method}: no guarantee"))
        place = pick_device(device)
        return cls(_images(private.inputs, place), torch.as_tensor(np.asarray(private.targets)).long().to(place), classes)

    @classmethod
    def of(cls, public: Public | None, *, method: str, classes: int, device: str, labels: bool = False) -> Records:
        """Take a public reference set, which some defences cannot do without."""
        if public is None or (labels and public.targets is None):
            what = "with labels" if labels else "of images"
            raise RecipeError(f"`public` must be a reference set {what} for {method}. Got none instead.")
        place = pick_device(device)
        images = _images(public.inputs, place)
        targets = np.zeros(len(images)) if public.targets is None else np.asarray(public.targets)
        return cls(images, torch.as_tensor(targets).long().to(place), classes)


def _images(inputs: Any, place: torch.device) -> Tensor:
    return as_float(as_inputs(inputs)).to(place)


def model(factory: Factory, weights: State, *, device: str, index: int = 0) -> Model:
    """Wrap one network of a stack."""
    return Model(factory, one_of(weights, index), device=device)
