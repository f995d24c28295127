"""Every record a teacher: the student's accuracy over ε, with features of the public pool, next to the same without noise.

python benchmarks/corrections.py --set cifar-10 --data DIR           writes results/corrections.cifar-10.json

Features are learned once and every record is looked at once; for every ε the rounds are asked again through a curator with a
book of its own. Settings are those of the set's recipe; nothing is chosen here.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import result
from tutelage.data.dataset import Public
from tutelage.features.correction import Descent
from tutelage.features.sight import Sight
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.recipes import linear
from tutelage.recipes.run import classes, embedded, loaded
from tutelage.students.linear import LinearModel, LinearStudent
from tutelage.teachers.records import RecordTeachers

RECIPES = {"cifar-10": "cifar-10-records", "fashion-mnist": "fashion-mnist-ours", "mnist": "mnist-records", "adult": "adult-ours"}


def main() -> None:
    """Run one set's curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=tuple(RECIPES), default="adult")
    parser.add_argument("--data", required=True)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[8.0, 4.0, 2.0, 1.0, 0.5])
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    recipe = embedded(f"pate/{RECIPES[given.set]}")
    private, public, test = loaded(recipe, given.data)
    how, codec, begin = linear.settings(recipe), linear.codec(recipe, classes(recipe)), time.perf_counter()
    sight = Sight.learn(public, how.seeing(), seed=recipe.seed, device=given.device)
    teachers = RecordTeachers(sight).fit(private, private.split(recipe.teachers.shards, seed=recipe.seed))
    rounds, units = recipe.aggregation.queries, recipe.teachers.shards
    figures: dict[str, Any] = {"recipe": recipe.name, "units": units, "delta": recipe.privacy.delta, "rounds": rounds}
    figures |= {"settings": repr(how), "seconds to see": round(time.perf_counter() - begin, 1), "rows": []}

    def accuracy(model: LinearModel) -> float:
        return float(np.mean(model.predict(test.inputs) == test.targets))

    for epsilon in given.epsilons:
        budget = Budget(epsilon, recipe.privacy.delta, recipe.budget().unit)
        mechanism, _ = Aggregation("mean").built(budget, rounds, units, codec.bound)
        descent, start = Descent(codec.width, codec.classes, rounds), time.perf_counter()
        with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
            curator = Curator(teachers, codec, mechanism, ledger)
            for _ in range(rounds):
                descent.follow(curator.answer(descent.guess[None])[0])
            spent = ledger.spent().epsilon
        row = {"epsilon": spent, "student": accuracy(LinearModel(sight, descent.weights))}
        figures["rows"].append({**row, "seconds": round(time.perf_counter() - start, 1)})
        print(figures["rows"][-1], flush=True)
        result.write(f"corrections.{given.set}", figures)  # a run that is stopped has shown something
    student = LinearStudent(sight, classes=codec.classes, rounds=rounds, rate=codec.rate)
    everything = Public(private.inputs, source="private, for the control alone")
    free, clipped = student.fit_all(everything, private.targets, clips=(None, codec.clip))
    figures |= {"not private": accuracy(free), "no noise, clipped": accuracy(clipped)}
    print(result.write(f"corrections.{given.set}", figures), figures)


if __name__ == "__main__":
    main()
