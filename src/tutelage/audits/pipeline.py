"""What an audit repeats: a whole run, from records to a model, and what is looked at in the model."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

import tutelage
from tutelage.audits import volumes
from tutelage.data.dataset import Private, Public
from tutelage.data.provenance import fingerprint
from tutelage.guarantee import versions
from tutelage.privacy.bounds import Bound
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.mechanisms import Mechanism

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Array = npt.NDArray[Any]
_POPULATION = 500  # public records that RMIA compares with


@final
@dataclass(frozen=True, eq=False)
class Pipeline:
    """Hold private records and the function that makes a model of them; `key` names the function, its settings and the code."""

    private: Private
    train: Callable[[Private], Any]
    classes: int  # 0 where targets are masks
    key: str
    population: Public | None = None  # public records with targets that no shadow model learns from
    mechanism: Mechanism | None = None
    queries: int = 0
    public_data: bool = False  # the private data is public anyway

    def observed(self, model: Any, inputs: Array, targets: Array) -> Array:
        """Look at what a model says of records: probabilities (records, classes), or signals of masks (records, signals)."""
        if self.classes:
            return probabilities(model, inputs, self.classes)
        return volumes.signals(np.asarray(model.probabilities(inputs)), targets)

    def compared(self) -> tuple[Array, Array] | None:
        """Give the population's first records, and their labels."""
        if self.population is None or self.population.targets is None or not self.classes:
            return None
        return self.population.inputs[:_POPULATION], np.asarray(self.population.targets[:_POPULATION])

    @property
    def fingerprint(self) -> str:
        """Hash data, function and code: a shadow model of another one is never taken for this one's. It stays in private/."""
        parts = [fingerprint(self.private), self.key, code(), "" if self.population is None else self.population.sha256]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def code() -> str:
    """Hash this package's source, and the versions that it runs with."""
    home, state = Path(tutelage.__file__).parent, hashlib.sha256()
    for path in sorted(home.rglob("*")):
        if path.suffix in (".py", ".toml"):
            state.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes())
    return hashlib.sha256(json.dumps([state.hexdigest(), versions()], sort_keys=True).encode()).hexdigest()


def of_recipe(recipe: Recipe, data: str | Path | None = None, *, device: str = "auto", engine: str = "auto") -> Pipeline:
    """Repeat what a recipe says: sharding, teachers, answers, student. `data` is where its files lie."""
    from tutelage.recipes import run
    from tutelage.recipes.learners import require

    require(recipe, device=device, engine=engine)
    recipe = run.rostered(recipe, data)
    private, public, test, _ = run.gathered(recipe, data)
    shards, places = recipe.teachers.shards, private.places

    def train(records: Private) -> Any:
        everyone = places is not None and shards == places  # a teacher for every place: canaries have places, too
        with tempfile.TemporaryDirectory() as place:
            count = records.places if everyone else shards
            return run.again(recipe, records, public, Path(place) / "shadow", shards=count, device=device, engine=engine)

    bound, known = run.bound(recipe)
    return Pipeline(
        private,
        train,
        0 if recipe.about_masks else run.classes(recipe),
        f"recipe {recipe.sha256}",
        None if recipe.about_masks else test,
        _mechanism(recipe, bound) if known else None,
        recipe.aggregation.answers or recipe.aggregation.queries,  # after a test, as many as the budget was planned for
        run.is_benchmark(recipe),
    )


def _mechanism(recipe: Recipe, bound: Bound) -> Mechanism:
    return recipe.how().built(recipe.budget(), recipe.aggregation.queries, recipe.teachers.shards, bound)[0]


def of_callable(
    train: Callable[[Private], Any],
    private: Private,
    *,
    classes: int,
    key: str = "",
    population: Public | None = None,
    mechanism: Mechanism | None = None,
    queries: int = 0,
    public_data: bool = False,
) -> Pipeline:
    """Repeat a run that was made from Python objects: `train` takes private records and gives a model.

    `key` says what the function is and how it is set: shadow models are kept under it. Without one they are not kept.
    """
    if not callable(train):
        raise RecipeError(f"`train` must be a function from private records to a model. Got {type(train).__name__} instead.")
    return Pipeline(private, train, classes, key and f"callable {key}", population, mechanism, queries, public_data)


def probabilities(model: Any, inputs: Array, classes: int) -> Array:
    """Give class probabilities (records, classes): by the model's own method, or all on the class that it predicts."""
    own = next((getattr(model, name) for name in ("probabilities", "predict_proba") if hasattr(model, name)), None)
    given = None
    if own is not None:
        try:
            given = np.asarray(own(inputs), dtype=np.float64)
        except AttributeError:  # scikit-learn: a wrapped model that has none
            given = None
    if given is None:
        given = np.asarray(np.asarray(model.predict(inputs))[:, None] == np.arange(classes), dtype=np.float64)
    if given.ndim != 2 or len(given) != len(inputs) or given.shape[1] > classes:
        raise DataError(f"`model` must give (records, at most {classes}) probabilities. Got {given.shape} instead.")
    if wrong := int((~np.isfinite(given)).any(axis=1).sum()):
        raise DataError(f"`model` must give finite probabilities. Got {wrong} of {len(given)} records with others instead.")
    labels = getattr(getattr(model, "model", model), "classes_", None)
    if given.shape[1] < classes and labels is not None and len(labels) == given.shape[1] and own is not None:
        placed = np.zeros((len(given), classes))
        placed[:, np.asarray(labels, dtype=np.int64)] = given
        return placed
    return np.pad(given, ((0, 0), (0, classes - given.shape[1])))
