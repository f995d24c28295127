"""A network that learned to pack masks into a few bounded numbers, and to unpack them from under the noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy.typing as npt
import torch

from tutelage.codecs.bottleneck import ACTIVATIONS, Activation, Coder, default_widths
from tutelage.codecs.checks import not_negative, positive, settle, sizes, whole
from tutelage.codecs.denoising import learn
from tutelage.codecs.fitting import Provenance, hashed, provenance, public_masks
from tutelage.codecs.passes import decoded, encoded
from tutelage.codecs.weights import filled, settled
from tutelage.data.dataset import Public
from tutelage.nets.inputs import pick_device
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.bounds import Ball, Bound, Cube
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
KIND = "tutelage.autoencoder/1"


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Autoencoder:
    """Pack masks of two or three dimensions into `dim` numbers, bounded by the bottleneck's activation.

    'tanh': the cube [−1, 1]^dim. 'clip': the ball of radius `norm`; codes are shortened inside the training objective
    (Fay et al. 2022, Eq. 15). 'ball': the unit ball, filled about evenly (Fay et al. 2020, Eq. 5).

    `noise` is what it was trained under: the standard deviation on one coordinate of the released *mean*
    (`NoisyMean.sigma / teachers`). Like every codec it is not trusted: whatever the weights say, the bound clips the ballots
    before they are summed.
    """

    shape: tuple[int, ...]
    dim: int
    weights: Mapping[str, Array]
    activation: Activation = "ball"
    norm: float = 1.0
    noise: float = 0.0
    widths: tuple[int, ...]
    provenance: Provenance | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        object.__setattr__(self, "widths", sizes("widths", self.widths))
        _check(self.shape, self.dim, self.activation, self.norm, self.widths)
        not_negative(noise=self.noise)
        settle(self, dim=int(self.dim), norm=float(self.norm), noise=float(self.noise))
        object.__setattr__(self, "weights", settled(self.weights, self._hollow()))

    @classmethod
    def fit(
        cls,
        public: Public,
        *,
        dim: int,
        activation: Activation = "ball",
        noise: float = 0.0,
        norm: float = 1.0,
        steps: int = 2000,
        batch: int = 64,
        rate: float = 2e-3,
        widths: tuple[int, ...] | None = None,
        device: str = "auto",
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Autoencoder:
        """Train on public masks under the noise that the codes will meet; images are not looked at.

        `widths` are the channels after each halving; without them a mask is halved until its longest side is at most 4.
        `norm` is for 'clip' alone. Another machine rounds otherwise, and so learns a codec of another name: fit once, `save`.
        """
        targets = public_masks(public)
        shape = tuple(int(size) for size in targets.shape[1:])
        if len(shape) not in (2, 3):
            raise DataError(f"`public` must hold masks of two or three dimensions. Got shape {shape} instead.")
        widths = default_widths(shape) if widths is None else sizes("widths", widths)
        _check(shape, dim, activation, norm, widths)
        not_negative(noise=noise)
        whole(steps=steps, batch=batch)
        positive(rate=rate)
        weights = learn(
            lambda: Coder(shape, dim=dim, activation=activation, norm=norm, widths=widths),
            targets,
            noise=noise,
            steps=steps,
            batch=batch,
            rate=rate,
            place=pick_device(device),
            seed=seed,
            progress=progress,
        )
        return cls(
            shape=shape,
            dim=dim,
            weights=weights,
            activation=activation,
            norm=norm,
            noise=noise,
            widths=widths,
            provenance=provenance(public, f"steps={steps}, batch={batch}, rate={float(rate)!r}, seed={seed}"),
            device=device,
        )

    @property
    def bound(self) -> Bound:
        """A cube, or short vectors."""
        return Cube(self.dim) if self.activation == "tanh" else Ball(self.dim, self.norm)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, dim), a few masks of one teacher at a time."""
        return encoded(predictions, self.shape, self.dim, self._packed)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) of probabilities."""
        return decoded(codes, self.dim, self.shape, self._unpacked)

    def save(self, path: str | Path) -> Path:
        """Write all of it to one safetensors file, which may be published: nothing private was read to make it."""
        target = Path(path).with_suffix(".safetensors")
        told = {
            "shape": self.shape,
            "dim": self.dim,
            "activation": self.activation,
            "norm": self.norm,
            "noise": self.noise,
            "widths": self.widths,
            "provenance": None if self.provenance is None else asdict(self.provenance),
        }
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self.weights.items()}
        write_tensors(target, tensors, {"kind": KIND, "codec": json.dumps(told, sort_keys=True)}, private=False)
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Autoencoder:
        """Read a codec back. It has the same repr, so it asks the same questions."""
        tensors, metadata = read_tensors(path, kind=KIND)
        try:
            told = json.loads(metadata["codec"])
            seen = told.pop("provenance")
            told["provenance"] = None if seen is None else Provenance(**seen)
            return cls(**told, weights={name: tensor.numpy() for name, tensor in tensors.items()}, device=device)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"`path` must name an autoencoder's file. Got {Path(path).name!r} instead.") from error

    def _packed(self, rows: Array) -> Array:
        """Give codes (rows, dim) of masks (rows, pixels)."""
        network, place = self._network
        with torch.inference_mode():
            values = network.encode(torch.from_numpy(rows).to(place, torch.float32)).cpu()
            return network.bounded(values.double()).numpy()  # bounded in float64: codes on the rim stay inside

    def _unpacked(self, codes: Array) -> Array:
        """Give probabilities (rows, pixels) for codes (rows, dim)."""
        network, place = self._network
        with torch.inference_mode():
            logits = network.decode(torch.from_numpy(codes).to(place, torch.float32))
            return logits.sigmoid().flatten(1).cpu().numpy()

    def _hollow(self) -> Coder:
        """Build the network without numbers: it draws none, and costs nothing."""
        with torch.device("meta"):
            return Coder(self.shape, dim=self.dim, activation=self.activation, norm=self.norm, widths=self.widths)

    @cached_property
    def _network(self) -> tuple[Coder, torch.device]:
        return filled(self._hollow(), self.weights, self.device)

    @cached_property
    def _digest(self) -> str:
        # Not named by what went in, as a linear fit is: after many steps another rounding is another code, not the same one.
        return hashed(*self.weights.values())[:16]

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return (
            f"Autoencoder(shape={self.shape}, dim={self.dim}, activation={self.activation!r}, norm={self.norm!r}, "
            f"noise={self.noise!r}, widths={self.widths}, fitted={self._digest!r})"
        )


def _check(shape: tuple[int, ...], dim: int, activation: str, norm: float, widths: tuple[int, ...]) -> None:
    """Refuse what no network can be built for, before one is trained."""
    whole(dim=dim)
    positive(norm=norm)
    if len(shape) not in (2, 3):
        raise RecipeError(f"`shape` must have two or three sides. Got {shape!r} instead.")
    if activation not in ACTIVATIONS:
        raise RecipeError(f"`activation` must be 'tanh', 'clip' or 'ball'. Got {activation!r} instead.")
    if activation != "clip" and norm != 1:
        raise RecipeError(f"`norm` must be 1 where the activation is not 'clip'. Got {norm!r} instead.")
    most = math.ceil(math.log2(max(max(shape), 2)))
    if len(widths) > most:
        raise RecipeError(f"`widths` must halve a mask of shape {shape} at most {most} times. Got {len(widths)} instead.")
