"""The U-Nets of the papers by name, built by MONAI."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import torch
from torch import nn

from tutelage.nets.slices import Slices
from tutelage.privacy.errors import RecipeError

# The papers' networks have batch norms or none; a norm that mixes the records of a batch cannot be stacked (see
# `refuse_batch_mixing`), so all have group norms here. BasicUNet's six widths are five levels and the last block.
_NORM = ("GROUP", {"num_groups": 8, "affine": True})
_PLANE = {"spatial_dims": 2, "in_channels": 4, "channels": (64, 128, 256, 512, 1024), "strides": (2,) * 4}
PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        # Scenes of 64×64: 3×3 convolutions from 32 filters down to 256 filters at 8×8.
        "sisi-2d": ("UNet", {"spatial_dims": 2, "in_channels": 1, "channels": (32, 64, 128, 256), "strides": (2, 2, 2)}),
        # Slices of BraTS in all four modalities: the widths of Ronneberger et al. 2015.
        "brats-2d": ("UNet", _PLANE),
        # The same for volumes, as 003 segments them: every slice on its own.
        "brats-slices": ("UNet", _PLANE),
        # BraTS volumes whole, in all four modalities; the paper names a 3D U-Net and no widths: these are MONAI's.
        "brats-3d": ("BasicUNet", {"spatial_dims": 3, "in_channels": 4, "features": (32, 32, 64, 128, 256, 32)}),
    }
)
SLICED = frozenset({"brats-slices"})  # that are shown volumes
# Where the parameters of the last convolution lie in what MONAI builds, and those of the way up before it.
TOPS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"UNet": ("model.2.", "model.1.submodule.2."), "BasicUNet": ("final_conv.", "upcat_1.")}
)


@final
@dataclass(frozen=True)
class Preset:
    """Build a network that a paper used: (batch, channels, *space) → logits (batch, 1, *space)."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in PRESETS:
            near = difflib.get_close_matches(str(self.name), PRESETS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RecipeError(f"`name` must be one of {', '.join(PRESETS)}. Got {self.name!r} instead.{hint}")

    @property
    def sides(self) -> int:
        """Count the sides of what it is shown."""
        return int(PRESETS[self.name][1]["spatial_dims"]) + (self.name in SLICED)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse images (channels, *space) that the network has no answer for; nothing is computed."""
        settings = PRESETS[self.name][1]
        wanted = (settings["in_channels"], self.sides)
        if (shape[0], len(shape) - 1) != wanted:
            raise RecipeError(
                f"`network` must be one for images of shape {shape}. "
                f"Got {self.name!r}, for {wanted[0]} channels of {wanted[1]} sides, instead."
            )
        try:
            with torch.device("meta"):
                answer = tuple(self()(torch.zeros(1, *shape)).shape[1:])
        except (RuntimeError, ValueError):
            answer = ()
        if answer != (1, *shape[1:]):
            raise RecipeError(
                f"`network` must fit images of {shape[1:]}, which it halves several times. Got {self.name!r} instead."
            )

    def __call__(self) -> nn.Module:
        """Build one network with fresh weights."""
        kind, settings = PRESETS[self.name]
        try:
            nets = importlib.import_module("monai.networks.nets")
        except ImportError:
            raise RecipeError(
                "`network` must be one of this package where MONAI is not installed (pip install 'tutelage[medical]'). "
                f"Got {self.name!r} instead."
            ) from None
        built = getattr(nets, kind)(out_channels=1, norm=_NORM, **settings)
        return Slices(built) if self.name in SLICED else built
