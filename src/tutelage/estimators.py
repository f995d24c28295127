"""Named scikit-learn models, and how they are stored without pickle. Shared by teachers, students and controls."""

from __future__ import annotations

import copy
import difflib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.files import write_whole
from tutelage.telling import tells

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]  # (done, in all)
TREES = 10  # at least, that are grown before the next word

# What skops does not trust by itself and our kinds hold: compiled parts that are data, not code, and our own class.
_TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
    "tutelage.estimators.Fitted",
    "tutelage.estimators.Levelled",
    "tutelage.estimators.Regressed",
)


def grow(model: Any, inputs: Array, targets: Array, progress: Progress | None = None) -> Any:
    """Fit a scikit-learn model; trees some at a time, so that many of them can tell how far they are. They are the same trees."""
    if progress is None:
        return model.fit(inputs, targets)
    if tells(model.fit):
        return model.fit(inputs, targets, progress=progress)
    name = _counted(model)
    total = getattr(model, name) if name else 0
    if not name or total <= TREES:
        progress(0, 1)
        model.fit(inputs, targets)
        progress(1, 1)
        return model
    progress(0, total)
    try:
        some = max(TREES, total // 10)  # every part looks at the records anew
        for count in (*range(some, total, some), total):
            model.set_params(**{name: count}, warm_start=count > some)  # the first ones forget an earlier fit
            model.fit(inputs, targets)
            enough = _stopped(model, count)
            progress(total if enough else count, total)
            if enough:
                break
    finally:
        model.set_params(**{name: total}, warm_start=False)
    return model


def _stopped(model: Any, count: int) -> bool:
    """Tell whether boosting that watches itself has stopped, also where it did so with the very last of `count` trees."""
    if not getattr(model, "do_early_stopping_", False) or model.n_iter_ < count:
        return bool(getattr(model, "n_iter_", count) < count)
    scores = model.train_score_ if model.validation_fraction is None else model.validation_score_
    lately = model.n_iter_no_change
    return bool(len(scores) > lately and max(scores[-lately:]) <= scores[-lately - 1] + model.tol)


def _counted(model: Any) -> str | None:
    """Name the parameter that counts a model's trees, if they can be grown some at a time."""
    given = model.get_params() if hasattr(model, "get_params") else {}
    if "warm_start" not in given:
        return None
    # `max_iter` counts trees where there are leaves, and steps of an optimiser elsewhere.
    signs = {"n_estimators": "n_estimators", "max_iter": "max_leaf_nodes"}
    return next((name for name, sign in signs.items() if {name, sign} <= given.keys()), None)


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


def _bagged(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=50, max_features=1.0, random_state=seed)


def _boosted(seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=100, learning_rate=0.05, subsample=0.5, random_state=seed)


@final
class Levelled:
    """Predict by chance over the square root of the class's share in the training records, not by chance alone.

    A model of a hundred records leans towards the common class, and hundreds of them lean the same way: their plurality then
    hardly ever names the rare one. This is half-way (geometrically) to treating all classes as equally common.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.shares = model, np.ones(0)

    def fit(self, inputs: Array, targets: Array, *, progress: Progress | None = None) -> Levelled:
        """Fit the model, and count the classes."""
        grow(self.model, inputs, targets, progress)
        _, counts = np.unique(targets, return_counts=True)
        self.shares = counts / len(targets)
        return self

    @property
    def classes_(self) -> Array:
        """Give the labels, as scikit-learn does."""
        return np.asarray(self.model.classes_)

    def predict_proba(self, inputs: Array) -> Array:
        """Give levelled shares (records, classes)."""
        chances = self.model.predict_proba(inputs) / np.sqrt(self.shares)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def predict(self, inputs: Array) -> Array:
        """Give labels (records,)."""
        return self.classes_[self.predict_proba(inputs).argmax(axis=1)]


ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "linear": _linear,
    "forest": _forest,
    "kernel": _kernel,
    "neighbours": _neighbours,
    "bagged": _bagged,
    "boosted": _boosted,
    "levelled-bagged": lambda seed: Levelled(_bagged(seed)),
}


def estimator(name: str, *, seed: int = 0) -> Any:
    """Build an unfitted scikit-learn classifier by its name in recipes."""
    return _named(ESTIMATORS, name)(seed)


def _named(table: dict[str, Callable[[int], Any]], name: str) -> Callable[[int], Any]:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RecipeError(f"`kind` must be one of {', '.join(table)}. Got {name!r} instead.{hint}")
    return table[name]


# ── for shares in place of labels ─────────────────────────────────────────────────────────────────────────────────────


def _ridge(seed: int) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=10.0)


def _regression_forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=100, max_features=0.3, min_samples_leaf=10, random_state=seed)


def _boosted_regression(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=400, learning_rate=0.03, max_leaf_nodes=3, min_samples_leaf=20, l2_regularization=20, max_features=0.15,
        early_stopping=False, random_state=seed,
    )  # fmt: skip


REGRESSORS: dict[str, Callable[[int], Any]] = {
    "linear": _ridge,
    "forest": _regression_forest,
    "boosted": _boosted_regression,
}


@final
class Regressed:
    """Fit every class's noisy share by squared error and predict the class whose share comes out largest.

    The noise has mean zero, so that squared error is least, on average, where the prediction is the teachers' own share.
    """

    def __init__(self, kind: str, *, seed: int = 0) -> None:
        _named(REGRESSORS, kind)
        self.kind, self.seed, self.count = kind, seed, 0
        self.models: list[Any] = []

    def fit(self, inputs: Array, shares: Array, *, progress: Progress | None = None) -> Regressed:
        """Learn from shares (records, classes) that add up to one; of two classes one says all."""
        self.count = shares.shape[1]
        columns = shares.T if self.count > 2 else shares.T[1:]
        self.models = []
        for place, column in enumerate(columns):

            def told(done: int, total: int, before: int = place) -> None:
                if progress:
                    progress(before * total + done, len(columns) * total)

            self.models.append(grow(REGRESSORS[self.kind](self.seed), inputs, column, progress and told))
        return self

    @property
    def classes_(self) -> Array:
        """Give the labels, as scikit-learn does."""
        return np.arange(self.count)

    def predict_proba(self, inputs: Array) -> Array:
        """Give shares (records, classes), the noise's remains below zero cut off."""
        raw = np.stack([model.predict(inputs) for model in self.models], axis=1)
        shares = np.clip(raw if self.count > 2 else np.hstack([1 - raw, raw]), 0.0, None)
        total = shares.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1 / self.count))

    def predict(self, inputs: Array) -> Array:
        """Give labels (records,)."""
        return np.asarray(self.predict_proba(inputs).argmax(axis=1))


@final
class Fitted:
    """Hold a fitted model and the inputs it takes: inputs as the public pool's, or raw bytes of images."""

    def __init__(self, model: Any, accepted: Accepted) -> None:
        self.model, self.accepted = model, accepted.plain()

    @property
    def classes_(self) -> Array:
        """Give the labels, as scikit-learn does."""
        return np.asarray(self.model.classes_)

    def predict(self, inputs: Any) -> Array:
        """Give labels (records,)."""
        return np.asarray(self.model.predict(self._rows(inputs)))

    def predict_proba(self, inputs: Any) -> Array:
        """Give shares (records, classes), where the model has them."""
        return np.asarray(self.model.predict_proba(self._rows(inputs)))

    def _rows(self, inputs: Any) -> Array:
        return flat(Accepted.read(self.accepted)(inputs))


def flat(inputs: npt.ArrayLike) -> Array:
    """Give every record as one row of features: (records, features)."""
    array = np.asarray(inputs)
    return array.reshape(len(array), math.prod(array.shape[1:]))


def store(model: Any, path: Path) -> None:
    """Write a fitted scikit-learn model without pickle: equal models give equal files."""
    import skops.io

    write_whole(path, _plain(skops.io.dumps(model)))


def _plain(content: bytes) -> bytes:
    """Write an archive of skops again without times, and with numbers in place of addresses of memory.

    Numbers follow the order of first use in the description of the model.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema, names = json.loads(archive.read("schema.json")), {}
        parts = {name: archive.read(name) for name in archive.namelist() if name != "schema.json"}
    _renamed(schema, {}, names)
    if set(names) != set(parts):
        raise DataError("`model` must be one whose parts skops names once each. Got another instead.")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in sorted((new, parts[old]) for old, new in names.items()):
            archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("schema.json"), json.dumps(schema, indent=2), zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _renamed(node: Any, ids: dict[Any, int], names: dict[str, str]) -> None:
    """Number what skops names by addresses: objects (`__id__`) and files (`file`), in place."""
    for part in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
        _renamed(part, ids, names)
    if isinstance(node, dict) and "__loader__" in node:
        if "__id__" in node:
            node["__id__"] = ids.setdefault(node["__id__"], len(ids))
        if isinstance(file := node.get("file"), str):
            node["file"] = names.setdefault(file, f"{len(names):06d}{Path(file).suffix}")


def store_private(content: Any, path: Path) -> None:
    """Write models of private records without pickle: under `private/`, for their owner alone, whole or not at all."""
    import skops.io

    if "private" not in path.resolve().parent.parts:
        raise Unsealed("`path` must lie in a folder named 'private'. Got one outside instead.")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b") as file:
            skops.io.dump(content, file, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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


# ── forests in a few arrays: to write a hundred trees one by one takes longer than to grow them ───────────────────────


def packed(model: Any) -> dict[str, Any]:
    """Give a model as a small dict; of a forest one tree as it is and all trees' nodes, one after the other."""
    forest = model.model if isinstance(model, Levelled) else model
    if type(forest).__name__ != "RandomForestClassifier":
        return {"model": model}
    states = [tree.tree_.__getstate__() for tree in forest.estimators_]
    bare = copy.copy(forest)
    bare.estimators_ = forest.estimators_[:1]
    if isinstance(model, Levelled):
        outer = copy.copy(model)
        outer.model = bare
    return {
        "model": outer if isinstance(model, Levelled) else bare,
        "sizes": np.asarray([state["node_count"] for state in states]),
        "depths": np.asarray([state["max_depth"] for state in states]),
        "nodes": np.concatenate([state["nodes"] for state in states]),
        "values": np.concatenate([state["values"] for state in states]),
    }


def unpacked(parts: dict[str, Any]) -> Any:
    """Take a packed model back; a forest predicts as it did before, and is not meant to be grown further."""
    model = parts["model"]
    if "nodes" not in parts:
        return model
    forest = model.model if isinstance(model, Levelled) else model
    first, ends = forest.estimators_[0], np.cumsum(parts["sizes"])
    trees = []
    for end, size, depth in zip(ends, parts["sizes"], parts["depths"], strict=True):
        own = slice(end - size, end)
        make, given, _ = first.tree_.__reduce__()
        tree = copy.copy(first)
        tree.tree_ = make(*given)
        tree.tree_.__setstate__(
            {
                "max_depth": int(depth),
                "node_count": int(size),
                "nodes": np.ascontiguousarray(parts["nodes"][own]),
                "values": np.ascontiguousarray(parts["values"][own]),
            }
        )
        trees.append(tree)
    forest.estimators_ = trees
    return model
