"""Wavelet coefficients that each mask chooses itself (Fay et al. 2020, Section 2.4): as published, and at a price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.fitting import public_norm, rounded
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.planning import Selection
from tutelage.privacy import accounting
from tutelage.privacy.mechanisms import AboveThreshold, NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.reproduction.prices import FIRST

Array = npt.NDArray[Any]


def whole(public: Public, *, levels: int) -> Wavelet:
    """Keep every coefficient, under a clip from public masks."""
    masks = np.asarray(public.targets)
    shape = tuple(masks.shape[1:])
    one = Wavelet(shape, np.array([0]), 1.0, levels=levels)
    return Wavelet(shape, np.arange(one.coefficients), public_norm(masks), levels=levels)  # a rotation: norms stay


def budget(sigma: float) -> tuple[float, float]:
    """Give the (ε, δ) that noise of this σ, in clips, costs all of 003's answers; of the honest σ its honest budget."""
    return FIRST.honest if sigma == FIRST.point else (FIRST.epsilon(sigma), FIRST.delta)


@final
@dataclass(frozen=True)
class Largest:
    """Keep each mask's own largest coefficients, as published. Which ones is a private choice that nothing here pays for."""

    wavelet: Wavelet  # of all coefficients
    kept: int

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into codes of which all but `kept` are 0."""
        codes = self.wavelet.encode(predictions)
        least = np.partition(np.abs(codes), -self.kept, axis=-1)[..., -self.kept, None]
        return np.where(np.abs(codes) >= least, codes, 0.0)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape)."""
        return self.wavelet.decode(codes, inputs)


@final
@dataclass(frozen=True)
class Chosen:
    """Let the sparse vector technique choose up to `kept` coefficients, and release those under Gaussian noise.

    `sigma` says what all of 003's answers may cost together: as much as with Gaussian noise of that deviation, in clips, on the
    mean of its teachers' codes. Half of that ε buys the choices, which are pure, and half with all of δ the values.
    """

    wavelet: Wavelet
    kept: int
    threshold: float  # on the size of a mean coefficient

    @classmethod
    def fit(cls, public: Public, *, kept: int, levels: int) -> Chosen:
        """Set the threshold where a public mask has `kept` coefficients above it, in the mean over masks that are not empty."""
        wavelet, masks = whole(public, levels=levels), np.asarray(public.targets)
        some = masks[masks.reshape(len(masks), -1).any(axis=1)][:200]
        sizes = np.abs(wavelet.encode(some[None])[0])
        return cls(wavelet, kept, rounded(np.partition(sizes, -kept, axis=1)[:, -kept].mean()))

    @property
    def norm(self) -> float:
        """The clip, in which σ counts."""
        return self.wavelet.norm

    def released(self, masks: Array, sigma: float) -> Array:
        """Choose, add noise and decode masks (queries, *shape) on which all teachers agree."""
        if not sigma:
            return Largest(self.wavelet, self.kept).decode(Largest(self.wavelet, self.kept).encode(masks[None])[0], masks)
        (epsilon, delta), bound, teachers = budget(sigma), self.wavelet.bound, FIRST.teachers
        own = Selection(self.threshold, self.kept).divided(epsilon / 2 / FIRST.answers)
        choose = AboveThreshold(bound, self.threshold, *own, self.kept, teachers)
        reach = math.sqrt(FIRST.answers) * NoisyMean(bound, 1.0, teachers).event().sensitivity  # that which is charged
        value = NoisyMean(bound, float(accounting.gaussian_sigma(reach, epsilon / 2, delta)), teachers)
        answers = np.empty(masks.shape, dtype=np.float32)
        for start in range(0, len(masks), 32):  # every teacher's ballots are as long as a mask
            part = slice(start, start + 32)
            codes = self.wavelet.encode(masks[None, part])[0]
            found = choose.contribute(Sealed(np.broadcast_to(codes, (teachers, *codes.shape))))
            kept = np.broadcast_to(np.where(found, codes, 0.0), (teachers, *codes.shape))
            answers[part] = self.wavelet.decode(value.contribute(Sealed(kept)) * found, masks[part])
        return answers
