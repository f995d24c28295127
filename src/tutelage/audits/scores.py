"""What a model says of one record, as a number that is higher for members: no other model is needed.

The thresholds of Yeom et al. (2018: loss), Song & Mittal (2021: confidence, entropy, modified entropy), and the scaled logit
that LiRA reads (Carlini et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_LEAST = 1e-45  # added to a probability before its logarithm, as the reference code does: in 64 bits it is no zero


def shares(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array]:
    """Read probabilities (records, classes) and labels (records,), or refuse them."""
    given, wanted = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if given.ndim != 2 or wanted.shape != given.shape[:1]:
        raise DataError(
            f"`probabilities` must be (records, classes) for as many labels. Got {given.shape} for {wanted.shape} instead."
        )
    if wrong := int((~np.isfinite(given)).any(axis=1).sum()):
        raise DataError(f"`probabilities` must be finite. Got {wrong} of {len(given)} records with others instead.")
    if wanted.dtype.kind not in "iu" or (len(wanted) and not 0 <= wanted.min() <= wanted.max() < given.shape[1]):
        raise DataError(f"`labels` must be whole numbers from 0 to {given.shape[1] - 1}. Got others instead.")
    return given, wanted


def confidence(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give the probability of the record's label."""
    given, wanted = shares(probabilities, labels)
    return np.asarray(given[np.arange(len(given)), wanted])


def loss(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give minus the cross-entropy."""
    return np.log(confidence(probabilities, labels) + _LEAST)


def entropy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give minus the entropy of the prediction, which the label does not enter."""
    given, _ = shares(probabilities, labels)
    return np.asarray((given * np.log(given + _LEAST)).sum(axis=1))


def modified_entropy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give minus the modified entropy: sure and right is low, sure and wrong is high (Song & Mittal 2021, Eq. 8)."""
    given, wanted = shares(probabilities, labels)
    own = np.zeros(given.shape, dtype=bool)
    own[np.arange(len(given)), wanted] = True
    right = (1 - given) * np.log(given + _LEAST)
    wrong = given * np.log(np.maximum(1 - given, 0) + _LEAST)
    return np.asarray(np.where(own, right, wrong).sum(axis=1))


def logit(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give log p − log of what all other classes have together, which is nearly normal over trained models."""
    given, wanted = shares(probabilities, labels)
    rest = given.copy()
    rest[np.arange(len(given)), wanted] = 0
    return np.log(confidence(given, wanted) + _LEAST) - np.log(rest.sum(axis=1) + _LEAST)


SCORES: dict[str, Callable[[npt.ArrayLike, npt.ArrayLike], Array]] = {
    "loss": loss,
    "confidence": confidence,
    "entropy": entropy,
    "modified entropy": modified_entropy,
}
