"""A decoder that sees the public image: the code says roughly what and where, the image says where exactly.

Fay et al. 2019 (Section 5.4) wish for skip connections from the image to the decoder. The release does not change by it:
what is encoded, clipped, noised and paid for is the inner codec's, and a decoder is post-processing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.codecs.checks import not_negative, positive, settle, sizes, whole
from tutelage.codecs.fitting import Provenance, hashed, public_masks, rounded
from tutelage.codecs.guiding import GENTLE, beside, heard, learn
from tutelage.codecs.passes import slices, valid_codes
from tutelage.codecs.weights import filled, settled
from tutelage.data.dataset import Public
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.pieces import Source, images_of
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.bounds import Bound, OneHot
from tutelage.privacy.curator import Codec
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
KIND = "tutelage.guided/1"
WIDTHS = (16, 32, 64)
_LOOKED_AT = 64  # public masks whose noised answers say how large such answers are


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Guided:
    """Encode as another codec does, and decode by a U-Net that sees the public image beside that codec's own answer.

    Bound and codes are the inner codec's to the last bit. The network learned on public images with public masks, under noise
    of the deviation `noise` on every coordinate of a released *mean* (`NoisyMean.sigma / teachers`), the one it will meet.
    Where public masks are many it may need the teachers no more: compare with a network that learned those masks alone.
    """

    codec: Codec
    shape: tuple[int, ...]  # of a mask
    channels: int  # of an image
    weights: Mapping[str, Array]
    widths: tuple[int, ...] = WIDTHS
    noise: float = 0.0
    scale: float = 1.0  # brings the inner answer, noise and all, to about the size of a mask
    provenance: Provenance | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("shape", "widths"):
            object.__setattr__(self, name, sizes(name, getattr(self, name)))
        whole(channels=self.channels)
        not_negative(noise=self.noise)
        positive(scale=self.scale)
        settle(self, channels=int(self.channels), noise=float(self.noise), scale=float(self.scale))
        _check(self.codec)
        object.__setattr__(self, "weights", settled(self.weights, self._hollow()))

    @classmethod
    def fit(
        cls,
        codec: Codec,
        public: Public,
        *,
        noise: float = 0.0,
        widths: tuple[int, ...] = WIDTHS,
        steps: int = 2000,
        batch: int = 16,
        rate: float = 2e-3,
        augmentation: Warp | None = GENTLE,
        device: str = "auto",
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Guided:
        """Train the decoder on public images with masks: mask, encoded, noised, decoded; from that and the image to the mask.

        `augmentation` bends image and mask together before they are encoded. Another machine rounds otherwise, and so learns
        a decoder of another name: fit once, `save`.
        """
        targets = public_masks(public)
        _check(codec)
        whole(steps=steps, batch=batch)
        positive(rate=rate)
        not_negative(noise=noise)
        shape = tuple(int(size) for size in targets.shape[1:])
        images = images_of(public.inputs, np.arange(len(targets)), torch.device("cpu"))  # a batch at a time is brought elsewhere
        if tuple(images.shape[2:]) != shape or len(shape) not in (2, 3):
            raise DataError(f"`public` must hold images (channels, *shape) with their masks. Got masks {shape} instead.")
        plan, scale = UNet(shape=(images.shape[1] + 1, *shape), widths=widths), _scale(codec, images, targets, noise, seed)
        weights = learn(
            plan,
            codec,
            images,
            targets,
            noise=noise,
            scale=scale,
            steps=steps,
            batch=batch,
            rate=rate,
            augmentation=augmentation,
            place=pick_device(device),
            seed=seed,
            progress=progress,
        )
        how = f"steps={steps}, batch={batch}, rate={float(rate)!r}, augmentation={augmentation!r}, seed={seed}"
        return cls(
            codec=codec,
            shape=shape,
            channels=images.shape[1],
            weights=weights,
            widths=widths,
            noise=noise,
            scale=scale,
            provenance=Provenance(public.source, hashed(np.asarray(public.inputs), targets), len(targets), how),
            device=device,
        )

    @property
    def bound(self) -> Bound:
        """The inner codec's."""
        return self.codec.bound

    def encode(self, predictions: Array) -> Array:
        """Encode as the inner codec does."""
        return self.codec.encode(predictions)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) of probabilities, drawn from each code and its image; no answer hangs on another."""
        given, images = valid_codes(codes, self.bound.dimension), as_inputs(inputs)
        wanted = (len(given), self.channels, *self.shape)
        if tuple(images.shape) != wanted:
            raise DataError(f"`inputs` must be {wanted[0]} images of shape {wanted[1:]}. Got {tuple(images.shape)} instead.")
        answers = np.empty((len(given), *self.shape), dtype=np.float32)
        for part in slices(len(given), (self.channels + 1) * math.prod(self.shape)):
            told = self.codec.decode(given[part], np.asarray(inputs)[part])
            answers[part] = self._drawn(images[part], told)
        return answers

    def save(self, path: str | Path) -> Path:
        """Write the decoder to one safetensors file, which may be published; the inner codec is kept by whoever made it."""
        target = Path(path).with_suffix(".safetensors")
        told = {name: getattr(self, name) for name in ("shape", "channels", "widths", "noise", "scale")}
        told |= {"provenance": None if self.provenance is None else asdict(self.provenance), "codec": repr(self.codec)}
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self.weights.items()}
        write_tensors(target, tensors, {"kind": KIND, "decoder": json.dumps(told, sort_keys=True)}, private=False)
        return target

    @classmethod
    def load(cls, path: str | Path, *, codec: Codec, device: str = "auto") -> Guided:
        """Read a decoder back, for the codec that it was trained with. It has the same repr, so it asks the same questions."""
        tensors, metadata = read_tensors(path, kind=KIND)
        try:
            told = json.loads(metadata["decoder"])
            seen, trained_with = told.pop("provenance"), told.pop("codec")
            told["provenance"] = None if seen is None else Provenance(**seen)
            made = cls(**told, codec=codec, weights={name: tensor.numpy() for name, tensor in tensors.items()}, device=device)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"`path` must name a guided decoder's file. Got {Path(path).name!r} instead.") from error
        if trained_with != repr(codec):
            raise DataError("`codec` must be the one that the decoder was trained with. Got another instead.")
        return made

    def _drawn(self, images: Tensor, told: Array) -> Array:
        """Let the network draw: (rows, *shape)."""
        network, place = self._network
        with torch.inference_mode():
            # One at a time: sums over a larger batch round otherwise.
            seen = [
                beside(as_float(image[None].to(place)), answer[None], self.scale)
                for image, answer in zip(images, told, strict=True)
            ]
            return torch.cat([network(one) for one in seen]).float().sigmoid()[:, 0].cpu().numpy()

    def _hollow(self) -> nn.Module:
        """Build the network without numbers: it draws none, and costs nothing."""
        with torch.device("meta"):
            return UNet(shape=(self.channels + 1, *self.shape), widths=self.widths)()

    @cached_property
    def _network(self) -> tuple[nn.Module, torch.device]:
        return filled(self._hollow(), self.weights, self.device)

    @cached_property
    def _digest(self) -> str:
        return hashed(*self.weights.values())[:16]  # as for an autoencoder: another rounding is another decoder

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        seen = "" if self.provenance is None else f", saw={self.provenance.sha256[:16]!r}"
        return (
            f"Guided({self.codec!r}, channels={self.channels}, widths={self.widths}, noise={self.noise!r}, "
            f"scale={self.scale!r}{seen}, fitted={self._digest!r})"
        )


def _check(codec: Any) -> None:
    """Refuse what has no codes that noise could be added to."""
    if not hasattr(codec, "encode") or isinstance(codec.bound, OneHot):
        raise RecipeError(f"`codec` must let out noisy means, and not votes. Got {type(codec).__name__} instead.")


def _scale(codec: Codec, images: Source, targets: Array, noise: float, seed: int) -> float:
    """Give one over the root mean square of noised answers about a few public masks, or 1 where they are smaller."""
    drawn = np.asarray(targets[:_LOOKED_AT], dtype=np.float32)
    told = heard(codec, drawn, as_float(images[: len(drawn)]).numpy(), noise=noise, rng=np.random.default_rng(seed))
    return rounded(1 / max(1.0, math.sqrt(float(np.square(told, dtype=np.float64).mean()))))
