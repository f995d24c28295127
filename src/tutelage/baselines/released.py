"""What a baseline's training gives: one of the house's models, for labels or for masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory

if TYPE_CHECKING:
    from tutelage.nets.model import Model


def released(factory: Factory, state: dict[str, Tensor], *, masks: bool, device: str) -> Model | MaskModel:
    """Wrap trained weights."""
    if masks:
        return MaskModel(factory, state, device=device)
    from tutelage.nets.model import Model  # only here: it wants safetensors, which machines that train masks may not have

    return Model(factory, state, device=device)
