"""Does it suffice to simulate a student in order to choose a plan for Interactive-GNMax? Tried on real ones.

python benchmarks/student.py --data DIR --votes FILE      prints, and writes results/student.json

DIR holds MNIST, FILE the votes of 250 teachers that Papernot et al. published (mnist_250_teachers.npy). A student learns from
what most of the teachers say about 150 images. Then a plan is chosen on its own shares, and others on students of its accuracy
simulated beside the same votes; all are tried on the real one. Its worth is right answers that are news less wrong labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import result
from tutelage.choice import Choice, best
from tutelage.data.idx import read_digits
from tutelage.privacy.ledger import Budget
from tutelage.simulation import PublicVotes, right_chance, with_student
from tutelage.worth import Worth

BUDGET, QUERIES, ROUNDS, SEEDS = Budget(2.0, 1e-5), 300, 3, 3
TAUGHT, SOME = 150, 2000
ALIKE = (0.0, 0.4, 0.7, 1.0)


def chosen(votes: PublicVotes) -> Choice:
    """Give the plan to take."""
    return best(votes, BUDGET, queries=QUERIES, methods=["interactive-gnmax"], rounds=ROUNDS)[0]


def tried(votes: PublicVotes, plan: Choice) -> float:
    """Tell what a plan is worth on other votes than those it was chosen on."""
    sigma = plan.how.sigma or 0.0
    worth = Worth(votes, plan.how, [sigma], right_chance(votes, sigma)[None])
    at = (plan.queries, sigma, plan.how.threshold, sigma * plan.how.test_ratio)
    labels = worth.labels(*(np.asarray([value]) for value in at))
    held = np.minimum(1.0, (plan.how.answers or 0) / labels.answers)  # where more pass than were planned for, the budget ends
    return float(labels.held(held).worth(1.0)[0])


def shares(kind: str, seed: int, images: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Teach a student and give what it expects of the teachers: (questions, classes)."""
    models: dict[str, Any] = {
        "linear": LogisticRegression(max_iter=300),
        "forest": RandomForestClassifier(200, random_state=seed),
        "kernel": SVC(C=10),  # it has no shares of its own: all on the class that it predicts
    }
    model = models[kind].fit(images, labels)
    if kind == "kernel":
        return np.eye(10)[model.predict(asked)]
    found = np.zeros((len(asked), 10))
    found[:, model.classes_] = model.predict_proba(asked)
    return found


def row(kind: str, where: str, votes: PublicVotes) -> dict[str, Any]:
    """Compare plans for one student."""
    assert votes.student is not None
    sure, guess, rows = votes.student.max(axis=1), votes.student.argmax(axis=1), np.arange(len(votes))
    accuracy = float(np.mean(guess == votes.truth))
    alone = PublicVotes(votes.counts, votes.truth)
    plans = {f"{alike:g}": chosen(with_student(alone, accuracy, alike=alike)) for alike in ALIKE}
    own = chosen(votes)
    spread = (sure.mean() - 0.1) * (1 - sure.mean())
    ranks = spearmanr(votes.counts[rows, votes.truth], votes.student[rows, votes.truth])[0]
    return {
        "student": kind,
        "questions": where,
        "accuracy": round(accuracy, 3),
        "mean_largest_share": round(float(sure.mean()), 3),
        "variance_of_it": round(float(sure.var() / spread), 3) if spread > 1e-9 else None,  # of the largest that there could be
        "correlation_of_ranks": round(float(ranks), 3),
        "worth_by_its_shares": round(tried(votes, own), 1),
        "worth_by_simulation": {alike: round(tried(votes, plan), 1) for alike, plan in plans.items()},
        "promised_by_simulation": round(plans["0.7"].utility, 1),
        "plan_by_its_shares": own.toml(),
        "plan_by_simulation": plans["0.7"].toml(),
    }


def main() -> None:
    """Compare plans for three kinds of students, on questions at random and on those that they are least sure of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--votes", type=Path, required=True)
    given = parser.parse_args()
    counts = np.load(given.votes)
    digits = read_digits(given.data / "t10k-images-idx3-ubyte.gz", given.data / "t10k-labels-idx1-ubyte.gz")
    images = np.asarray(digits.inputs, dtype=np.float64)[: len(counts)].reshape(len(counts), -1)
    truth = np.asarray(digits.targets)[: len(counts)]
    found = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(counts))
        taught, rest = order[:TAUGHT], order[TAUGHT:]
        for kind in ("linear", "forest", "kernel"):
            expected = shares(kind, seed, images[taught], counts[taught].argmax(axis=1), images[rest])
            sets = {"at random": np.arange(SOME), "least sure": np.argsort(expected.max(axis=1), kind="stable")[:SOME]}
            for where in ("at random",) if kind == "kernel" else sets:
                some = sets[where]
                votes = PublicVotes(counts[rest[some]], truth[rest[some]], student=expected[some])
                found.append({"seed": seed, **row(kind, where, votes)})
                print({name: value for name, value in found[-1].items() if not name.startswith("plan")}, flush=True)
    result.write("student", {"rows": found})


if __name__ == "__main__":
    main()
