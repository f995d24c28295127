"""What a baseline's training gives: one of the house's models, for labels or for masks."""

from __future__ import annotations

from torch import Tensor

from tutelage.nets.masks import MaskModel
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory


def released(factory: Factory, state: dict[str, Tensor], *, masks: bool, device: str) -> Model | MaskModel:
    """Wrap trained weights."""
    return (MaskModel if masks else Model)(factory, state, device=device)
