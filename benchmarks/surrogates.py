"""What an ensemble's settings are chosen on: surrogate teachers that learn from shards of the public pool, and no private vote.

A surrogate's shard is as large as a teacher's. Its votes on the rest of the pool say how right and how alike teachers will be;
as many teachers as the recipe has are simulated with these chances, their votes meet the noise of the recipe's budget, and

    python benchmarks/surrogates.py adult-shares --data DIR           a student for every number of teachers and questions
    python benchmarks/surrogates.py fashion-mnist-votes --data DIR    what `plan --choose` takes on votes like these

The student is judged on records of the pool that nobody was asked about. No private and no test record is read. Few teachers
have large shards, of which the pool holds few: 100 are simulated by 4 surrogates and seem more alike than they are, 1,000 by 50.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import result
from tutelage.choosing import choices
from tutelage.data import load
from tutelage.data.dataset import Public
from tutelage.estimators import estimator, flat
from tutelage.privacy import accounting
from tutelage.recipes import learners
from tutelage.recipes.recipe import Recipe
from tutelage.recipes.run import classes, embedded
from tutelage.students.supervised import SupervisedStudent

KINDS = ("bagged", "levelled-bagged")
TEACHERS = (100, 250, 400, 600, 1000)
QUESTIONS = (250, 500, 1000, 2000)
STUDENTS = ("boosted", "forest", "linear")
MOST = (400, 1000)  # questions that the planner may ask; the first ones are also looked at as prototypes
TAUGHT = 1600  # records of the pool that surrogates of a table learn from, others in every draw


# ── a table: shares of forests' votes ─────────────────────────────────────────────────────────────────────────────────


def noise(recipe: Recipe, questions: int) -> float:
    """Give the deviation on a count at which so many histograms of votes cost the recipe's budget."""
    budget = recipe.budget()
    return float(np.sqrt(2 * questions) / accounting.epsilon_mu(budget.epsilon, budget.delta))


def students(recipe: Recipe, pool: Public, private: int, draws: int) -> Iterator[dict[str, Any]]:
    """Judge every kind and number of teachers, number of questions and student, on other parts of the pool in every draw."""
    inputs, truth = flat(pool.inputs), np.asarray(pool.targets)
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        order = generator.permutation(len(truth))
        taught, rest = order[:TAUGHT], order[TAUGHT:]
        for kind, teachers in ((kind, teachers) for kind in KINDS for teachers in TEACHERS):
            size = private // teachers
            shards = [taught[start : start + size] for start in range(0, TAUGHT - size + 1, size)]
            models = [estimator(kind, seed=place).fit(inputs[shard], truth[shard]) for place, shard in enumerate(shards)]
            chance = np.mean([model.predict(inputs[rest]) == 1 for model in models], axis=0)  # (rest,)
            for questions in QUESTIONS:
                named = generator.binomial(teachers, chance[:questions])
                counts = np.stack([teachers - named, named], axis=1)
                noisy = counts + generator.normal(0, noise(recipe, questions), counts.shape)  # a simulation: nothing is let out
                for student in STUDENTS:
                    learner = SupervisedStudent(student, seed=draw)
                    learner.fit(Public.of(inputs[rest[:questions]]), noisy / teachers)
                    right = learner.predict(inputs[rest[questions:]]) == truth[rest[questions:]]
                    names = {"kind": kind, "teachers": teachers, "questions": questions, "student": student, "draw": draw}
                    yield {**names, "surrogates": len(shards), "pool": float(right.mean())}


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give mean and deviation over the draws, the best first."""
    names = ("kind", "teachers", "questions", "student")
    kinds: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        kinds.setdefault(tuple(row[name] for name in names), []).append(row["pool"])
    found = [
        {**dict(zip(names, kind, strict=True)), "pool": float(np.mean(scores)), "deviation": float(np.std(scores, ddof=1))}
        for kind, scores in kinds.items()
    ]
    return sorted(found, key=lambda row: -row["pool"])


# ── images: votes of networks, and the planner ────────────────────────────────────────────────────────────────────────


def planned(recipe: Recipe, pool: Public, private: int, count: int, device: str) -> dict[str, Any]:
    """Train surrogate networks, measure how right and how alike they are on the others, and let the planner choose."""
    from tutelage.teachers.ensemble import Ensemble

    truth, size = np.asarray(pool.targets), private // recipe.teachers.shards
    network = learners.network(recipe.teachers, pool.inputs, classes(recipe))
    shards = [np.arange(place * size, (place + 1) * size) for place in range(count)]
    training = learners.training(recipe)
    cut = count * size
    ensemble = Ensemble.fit(network, pool.inputs[:cut], truth[:cut], shards, training=training, device=device)
    asked = {"first": np.arange(cut, len(truth))}
    chosen = learners.questions(recipe)
    if chosen is not None:
        typical = np.asarray(chosen(pool.unlabelled(), MOST[0]))
        asked[recipe.aggregation.questions] = typical[typical >= cut]
    names = np.asarray(ensemble.predict(pool.inputs))  # (surrogates, records)
    found: dict[str, Any] = {"surrogates": count, "shard": size}
    for name, records in asked.items():
        votes = names[:, records]
        accuracy = float((votes == truth[records]).mean())
        pairs = [float((votes[i] == votes[j]).mean()) for i in range(count) for j in range(i)]
        agreement = float(np.mean(pairs))
        plans = {
            str(most): [
                one.figures()
                for one in choices(
                    recipe.budget(), classes(recipe), recipe.teachers.shards, most,
                    accuracy=round(accuracy, 3), agreement=round(agreement, 3),
                )
            ]
            for most in MOST
        }  # fmt: skip
        found[name] = {"records": len(records), "accuracy": accuracy, "agreement": agreement, "plans": plans}
    return found


def main() -> None:
    """Choose for one recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=("adult-shares", "fashion-mnist-votes"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=8, help="of a table's parts")
    parser.add_argument("--surrogates", type=int, default=10, help="networks for images")
    parser.add_argument("--device", default="auto")
    how = parser.parse_args()
    recipe = embedded(f"pate/{how.recipe}")
    study = load(recipe.data.set, how.data, split=recipe.data.split)
    if how.recipe == "adult-shares":
        rows = list(students(recipe, study.public, len(study.private), how.draws))
        figures: dict[str, Any] = {"table": table(rows)}
    else:
        figures = planned(recipe, study.public, len(study.private), how.surrogates, how.device)
    result.write(f"surrogates.{how.recipe}", figures)


if __name__ == "__main__":
    main()
