"""How good a mask or a label is. Masks are (records, *shape); their measures give one number per record.

Two empty masks agree: Dice and surface Dice are 1. An empty mask beside one that is not is a full miss: 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
THRESHOLDS = np.linspace(0.05, 0.95, 19)
BESIDE = ("surface Dice", "cross-entropy", "squared error")  # what stands beside Dice in a run's scores


def judged(masks: Array, shares: Array, truth: Array) -> dict[str, Array]:
    """Give every measure: Dice and surface Dice of masks, cross-entropy and squared error of every pixel's share."""
    real = np.asarray(truth) > 0.5
    found = (surface_dice(masks, real), cross_entropy(shares, real), squared_error(shares, real))
    return {"Dice": dice(masks, real), **dict(zip(BESIDE, found, strict=True))}


def dice(predicted: Array, truth: Array, *, threshold: float = 0.5) -> Array:
    """Give twice the overlap over the sum of the sizes, of what exceeds the threshold; 1 if both are empty."""
    return np.array([_dice(found > threshold, real > 0.5) for found, real in _pairs(predicted, truth)])


def _dice(found: Array, real: Array) -> float:
    sizes = int(found.sum()) + int(real.sum())
    return 2 * int((found & real).sum()) / sizes if sizes else 1.0


def surface_dice(predicted: Array, truth: Array, *, tolerance: float = 1.0, threshold: float = 0.5) -> Array:
    """Give the share of both surfaces that lies within `tolerance` voxels of the other one; 1 if both are empty."""
    if not (isinstance(tolerance, (int, float)) and 0 <= tolerance < float("inf")):
        raise RecipeError(f"`tolerance` must be a finite number of voxels ≥ 0. Got {tolerance!r} instead.")
    pairs = _pairs(predicted, truth)
    return np.array([_surface_dice(found > threshold, real > 0.5, tolerance) for found, real in pairs])


def _surface_dice(found: Array, real: Array, tolerance: float) -> float:
    if not (found.any() and real.any()):
        return float(not found.any() and not real.any())
    box = _box(found | real)  # outside it there is no surface, and a volume is mostly that
    edges = [_surface(found[box]), _surface(real[box])]
    near = [edge & (ndimage.distance_transform_edt(~other) <= tolerance) for edge, other in (edges, edges[::-1])]
    return float((near[0].sum() + near[1].sum()) / (edges[0].sum() + edges[1].sum()))


def _box(mask: Array) -> tuple[slice, ...]:
    """Give the smallest box around a mask that is not empty."""
    axes = (tuple(other for other in range(mask.ndim) if other != axis) for axis in range(mask.ndim))
    ends = [np.flatnonzero(mask.any(axis=rest))[[0, -1]] for rest in axes]
    return tuple(slice(int(first), int(last) + 1) for first, last in ends)


def _surface(mask: Array) -> Array:
    """Mark the voxels of a mask with a neighbour outside it; outside the frame is outside."""
    return np.asarray(mask & ~ndimage.binary_erosion(mask))


def cross_entropy(predicted: Array, truth: Array, *, margin: float = 1e-6) -> Array:
    """Give the mean binary cross-entropy per pixel; probabilities are kept `margin` away from 0 and 1."""
    if not (isinstance(margin, float) and 0 < margin < 0.5):
        raise RecipeError(f"`margin` must lie in (0, 0.5). Got {margin!r} instead.")
    real = np.asarray(truth)
    if real.size and not (real.min() >= 0 and real.max() <= 1):  # also where one is not a number
        raise DataError("`truth` must lie in [0, 1]. Got values outside instead.")
    return np.array([_cross_entropy(np.clip(found, margin, 1 - margin), real) for found, real in _pairs(predicted, truth)])


def _cross_entropy(sure: Array, real: Array) -> float:
    return float(-(real * np.log(sure) + (1 - real) * np.log1p(-sure)).mean())


def squared_error(predicted: Array, truth: Array) -> Array:
    """Give the mean squared error per pixel."""
    return np.array([float(((found - real) ** 2).mean()) for found, real in _pairs(predicted, truth)])


def best_threshold(predicted: Array, public: Public, *, thresholds: npt.ArrayLike = THRESHOLDS) -> float:
    """Choose the threshold with the highest mean Dice on public masks. One chosen on private masks would be a release."""
    if not isinstance(public, Public) or public.targets is None:
        raise DataError("`public` must be Public with masks: a threshold tuned on private ones is a release. Got others instead.")
    tried = np.asarray(thresholds, dtype=np.float64)
    scores = [float(dice(predicted, public.targets, threshold=float(threshold)).mean()) for threshold in tried]
    return float(tried[int(np.argmax(scores))])


def _pairs(predicted: Array, truth: Array) -> Iterator[tuple[Array, Array]]:
    """Go through predictions and truths record by record: volumes are large, and one at a time is enough."""
    found, real = np.asarray(predicted), np.asarray(truth)
    if found.shape != real.shape or found.ndim < 2:
        raise DataError(
            f"`predicted` and `truth` must have one shape (records, *shape). Got {found.shape} and {real.shape} instead."
        )
    return ((one.astype(np.float64), other.astype(np.float64)) for one, other in zip(found, real, strict=True))


# ── labels: what a clinic asks beside accuracy ────────────────────────────────────────────────────────────────────────

_Z = 1.959963984540054  # of 95 % intervals
_DRAWS = 1000
_BINS = 10


def classified(shares: Array, truth: Array, names: Sequence[str], *, probable: bool = True) -> dict[str, Any]:
    """Score class shares (records, classes) against labels (records,): with intervals of 95 %, by class, and beside a constant.

    `probable` says that shares are probabilities, so that they are ranked and calibrated; AUC, balanced accuracy and Brier are
    scikit-learn's. Intervals of shares of records are Wilson's (1927).
    """
    found, real = np.asarray(shares, dtype=np.float64), np.asarray(truth)
    if found.ndim != 2 or real.shape != (len(found),) or not len(real):
        raise DataError(
            f"`shares` and `truth` must be (records, classes) and (records,). Got {found.shape} and {real.shape} instead."
        )
    best, count = found.argmax(axis=1), found.shape[1]
    labels = [names[place] if place < len(names) else str(place) for place in range(count)]
    present = [place for place in range(count) if (real == place).any()]
    recalls = [float((best[real == place] == place).mean()) for place in present]
    common = int(np.bincount(real.astype(np.int64), minlength=count).argmax())
    summary: dict[str, Any] = {
        "records": len(real),
        "accuracy": _share(best == real),
        "balanced accuracy": float(np.mean(recalls)),
        "majority": {"class": labels[common], "accuracy": float((real == common).mean()), "balanced accuracy": 1 / len(present)},
        "classes": [_one_class(found, best, real, place, labels[place], probable=probable) for place in range(count)],
    }
    if probable:
        areas = [row["AUC"] for row in summary["classes"] if row["AUC"] is not None]
        summary["AUC"] = float(np.mean(areas)) if areas else None
        summary |= calibration(found, real)
    return summary


def _one_class(found: Array, best: Array, real: Array, place: int, name: str, *, probable: bool) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    own = real == place
    both = bool(own.any() and (~own).any())
    return {
        "class": name,
        "records": int(own.sum()),
        "sensitivity": _share(best[own] == place),
        "specificity": _share(best[~own] != place),
        "AUC": float(roc_auc_score(own, found[:, place])) if probable and both else None,
    }


def calibration(shares: Array, truth: Array, *, bins: int = _BINS) -> dict[str, float]:
    """Give the expected calibration error (Naeini et al. 2015: bins of one width, of the likeliest class) and the Brier score."""
    found, real = np.asarray(shares, dtype=np.float64), np.asarray(truth)
    sure, right = found.max(axis=1), found.argmax(axis=1) == real
    where = np.minimum((sure * bins).astype(np.int64), bins - 1)
    apart = [
        abs(float(right[where == one].mean() - sure[where == one].mean())) * float((where == one).mean())
        for one in set(where.tolist())
    ]
    wanted = np.eye(found.shape[1])[real.astype(np.int64)]
    return {"ECE": float(sum(apart)), "Brier": float(((found - wanted) ** 2).sum(axis=1).mean())}


def _share(hits: Array) -> dict[str, float] | None:
    """Give a share of records with its interval, or nothing where there are no records."""
    if not len(hits):
        return None
    low, high = wilson(int(hits.sum()), len(hits))
    return {"value": float(hits.mean()), "low": low, "high": high}


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Give Wilson's interval of 95 % for a share."""
    if not 0 <= hits <= count or count < 1:
        raise RecipeError(f"`hits` must be between 0 and `count`, 1 or more. Got {hits!r} of {count!r} instead.")
    share, square = hits / count, _Z**2 / count
    middle = (share + square / 2) / (1 + square)
    reach = _Z * np.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    return max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


def bootstrap(values: Array, *, draws: int = _DRAWS, seed: int = 0) -> dict[str, float]:
    """Give a mean over records with the interval of 95 % of means of records drawn again."""
    given = np.asarray(values, dtype=np.float64)
    if not given.size:
        raise DataError("`values` must hold one number at least. Got none instead.")
    rng = np.random.default_rng(seed)
    means = given[rng.integers(0, len(given), (draws, len(given)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {"value": float(given.mean()), "low": float(low), "high": float(high)}


def drawn(masks: Array, truth: Array) -> dict[str, Any]:
    """Score masks (records, *space): Dice, sensitivity and precision of pixels, and the constants that anybody could draw."""
    found, real = np.asarray(masks) > 0.5, np.asarray(truth) > 0.5
    hit = np.array([int((one & other).sum()) for one, other in zip(found, real, strict=True)])
    own, drew = (np.array([int(one.sum()) for one in some]) for some in (real, found))
    some = own > 0
    return {
        "records": len(real),
        "Dice": bootstrap(dice(found, real)),
        "sensitivity": bootstrap(hit[some] / own[some]) if some.any() else None,
        "precision": bootstrap(hit[drew > 0] / drew[drew > 0]) if (drew > 0).any() else None,
        "empty masks": int((~some).sum()),
        "constants": {
            "nothing": float(dice(np.zeros_like(real), real).mean()),
            "all object": float(dice(np.ones_like(real), real).mean()),
        },
    }


def measured(model: Any, test: Public, names: Sequence[str] = ()) -> dict[str, Any]:
    """Score a model on public test data. Shares that do not belong to what it predicts are not ranked."""
    truth = np.asarray(test.targets)
    answers = np.asarray(model.predict(test.inputs))
    if truth.ndim > 1:
        return drawn(answers, truth)
    shares = np.asarray(model.probabilities(test.inputs)) if hasattr(model, "probabilities") else None
    probable = shares is not None and np.array_equal(shares.argmax(axis=1), answers)
    count = max(int(truth.max()), int(answers.max()), len(names) - 1, 1) + 1
    if shares is None or not probable:
        shares = np.eye(count)[answers.astype(np.int64)]
    elif shares.shape[1] < count:
        shares = np.pad(shares, ((0, 0), (0, count - shares.shape[1])))
    return classified(shares, truth, names, probable=probable)
