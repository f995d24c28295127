"""Named scikit-learn models, and how they are stored without pickle. Shared by teachers, students and controls."""

from __future__ import annotations

import difflib
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]

# What skops does not trust by itself and our four kinds hold: compiled parts that are data, not code.
_TRUSTED = (
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
)


def _linear(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=1000, random_state=seed)


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=100, random_state=seed)


def _kernel(seed: int) -> Any:
    from sklearn.svm import SVC

    return SVC(C=10.0, gamma="scale", random_state=seed)


def _neighbours(seed: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(n_neighbors=1)


ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "linear": _linear,
    "forest": _forest,
    "kernel": _kernel,
    "neighbours": _neighbours,
}


def estimator(name: str, *, seed: int = 0) -> Any:
    """Build an unfitted scikit-learn classifier by its name in recipes."""
    if name not in ESTIMATORS:
        near = difflib.get_close_matches(name, ESTIMATORS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RecipeError(f"`kind` must be one of {', '.join(ESTIMATORS)}. Got {name!r} instead.{hint}")
    return ESTIMATORS[name](seed)


def flat(inputs: npt.ArrayLike) -> Array:
    """Give every record as one row of features: (records, features)."""
    array = np.asarray(inputs)
    return array.reshape(len(array), math.prod(array.shape[1:]))


def store(model: Any, path: Path) -> None:
    """Write a fitted scikit-learn model without pickle."""
    import skops.io

    skops.io.dump(model, path)


def load(path: Path) -> Any:
    """Read a stored model; a file that holds anything but plain scikit-learn models is refused unread."""
    import skops.io

    try:
        strangers = sorted(set(skops.io.get_untrusted_types(file=path)) - set(_TRUSTED))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise DataError(f"`path` must be a model stored by this package. Got {path.name} instead.") from None
    if strangers:
        raise DataError(f"`path` must hold scikit-learn models only. Got {', '.join(strangers)} in {path.name} instead.")
    return skops.io.load(path, trusted=list(_TRUSTED))
