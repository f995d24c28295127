"""Audit the runs that the README shows, undefended models beside them, and every recipe's mechanism.

python benchmarks/audits.py game                             every carried recipe's mechanism, played against
python benchmarks/audits.py digits                           the demo: 16 shadow runs timed, then 64, two kinds of canaries
python benchmarks/audits.py records --data DIR               MNIST and Adult with every record a teacher
python benchmarks/audits.py picture                          undefended models and DP descent on digits, as Aerni et al.
python benchmarks/audits.py duplicates --data DIR            what PneumoniaMNIST's own split shares
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

import result
from tutelage.audits.audit import examine
from tutelage.audits.game import play
from tutelage.audits.pipeline import of_callable, of_recipe
from tutelage.audits.verdict import Claim, Verdict
from tutelage.data.dataset import Private
from tutelage.data.digits import digits as digit_parts
from tutelage.data.overlap import copies
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import Error
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.recipes import run

MU = float(accounting.epsilon_mu(8.0, 1e-5))


def say(text: str) -> None:
    print(text, flush=True)


def figures(found: Verdict) -> dict[str, Any]:
    """Give the figures that stand in a table; the data of all these is public."""
    say(found.line)
    first = next(iter(found.curves.items()), None)
    told: dict[str, Any] = {"refuted": found.refuted, "seconds": found.seconds, "shadow_models": found.models}
    told |= {"canaries": found.canaries, "claim": None if found.claim is None else [found.claim.epsilon, found.claim.delta]}
    told["bounds"] = {bound.method: {"epsilon": bound.epsilon, "mu": bound.mu} for bound in found.bounds}
    if first is not None:
        told["attacks"] = {name: roc.document() for name, roc in found.curves.items()}
        say(f"  {first[0]}: AUC {first[1].auc:.3f}; " + "; ".join(f"{rate:.1%}: {first[1].at(rate)}" for rate in (1e-3, 1e-2)))
    if found.game is not None:
        told["game"] = {"epsilon": found.game.epsilon, "mu": found.game.mu, "charged": vars(found.game.charged)}
    return told


def claim_of(recipe: Any) -> Claim:
    """Take the budget for what is claimed, and its μ where every answer is Gaussian and their number is fixed."""
    budget, gaussian = recipe.budget(), recipe.aggregation.method in ("gnmax", "mean") and recipe.aggregation.selection is None
    return Claim(budget.epsilon, budget.delta, float(accounting.epsilon_mu(budget.epsilon, budget.delta)) if gaussian else None)


def game(only: list[str]) -> dict[str, Any]:
    """Play against the mechanisms of recipes, all that the package carries by default; a bound must be known without data."""
    found: dict[str, Any] = {}
    for name in only or run.carried():
        recipe = run.embedded(name)
        try:
            bound, known = run.bound(recipe)
            steps = recipe.how().built(recipe.budget(), recipe.aggregation.queries, recipe.teachers.shards, bound)
        except Error as error:
            say(f"{name}: {type(error).__name__}")
            continue
        played = play(steps[0], recipe.aggregation.queries, recipe.budget().delta) if known else None
        if played is None:
            say(f"{name}: its worst inputs are not known here")
            continue
        found[name] = {"refuted": played.refuted, "epsilon": played.epsilon, "mu": played.mu, "charged": vars(played.charged)}
        found[name] |= {"queries": played.queries, "of": recipe.aggregation.queries, "releases": played.releases}
        say(f"{name}: {found[name]}")
    return found


def digits(only: list[str], shadows: int, canaries: int, kind: str) -> dict[str, Any]:
    """Audit the digits demo: all three mechanisms by default."""
    found: dict[str, Any] = {}
    for name in only or run.EMBEDDED:
        recipe = run.embedded(name)
        say(name)
        found[name] = figures(examine(of_recipe(recipe), claim_of(recipe), shadows=shadows, canaries=canaries, kind=kind))
    return found


def records(data: Path, names: list[str], shadows: int) -> dict[str, Any]:
    """Audit runs in which every record is a teacher."""
    found = {}
    for name in names:
        recipe = run.embedded(f"pate/{name}")
        place = next((one for one in (data / str(recipe.data.set), data) if one.is_dir()), data)
        say(name)
        line = of_recipe(recipe, place)
        found[name] = figures(examine(line, claim_of(recipe), shadows=shadows, canaries=100, say=say))
    return found


class Shaped:
    """A scikit-learn model that takes images, or one network of an ensemble."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def probabilities(self, inputs: Any) -> Any:
        """Give class probabilities (records, classes) in 64 bits."""
        if hasattr(self.model, "predict_proba"):
            return self.model.predict_proba(np.asarray(inputs).reshape(len(inputs), -1))
        logits = [one.double().cpu() for *_, one in self.model.stream(inputs, 1, 512)]
        return np.concatenate([one.softmax(dim=2)[0].numpy() for one in logits])


class Linear:
    """A softmax regression on pixels."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def probabilities(self, inputs: Any) -> Any:
        """Give class probabilities (records, classes)."""
        rows = np.asarray(inputs).reshape(len(inputs), -1) - 0.3
        return softened(np.hstack([rows, np.ones((len(rows), 1))]) @ self.weights)


def softened(scores: Any) -> Any:
    """Give the softmax of each row."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def picture(shadows: int) -> dict[str, Any]:
    """Attack undefended models and DP gradient descent on 1,000 digits by mislabelled canaries; give accuracies, too."""
    from sklearn.ensemble import RandomForestClassifier

    from tutelage.nets.networks import ConvNet
    from tutelage.nets.training import Training
    from tutelage.teachers.ensemble import Ensemble

    private, _, test = digit_parts()
    factory = ConvNet(shape=(1, 8, 8), widths=(16, 32), hidden=64)
    seeds = iter(range(10**6))

    def network(records: Private) -> Any:
        held, how = np.flatnonzero(records.units != ""), Training(steps=250, batch=64, rate=4e-3, augmentation=None)
        given = {"training": how, "seed": next(seeds), "device": "cpu", "engine": "sequential"}
        return Shaped(Ensemble.fit(factory, records.inputs, records.targets, [held], **given))

    def forest(records: Private) -> Any:
        held = records.units != ""
        rows = records.inputs[held].reshape(int(held.sum()), -1)
        return Shaped(RandomForestClassifier(100, random_state=next(seeds)).fit(rows, records.targets[held]))

    def private_descent(records: Private) -> Any:
        """Full-batch DP gradient descent of a softmax regression, every record clipped and all noise exact."""
        held = records.units != ""
        rows = np.hstack([records.inputs[held].reshape(int(held.sum()), -1) - 0.3, np.ones((int(held.sum()), 1))])
        wanted, weights, steps, clip = np.eye(10)[records.targets[held]], np.zeros((65, 10)), 80, 1.0
        sigma = 2 * clip * np.sqrt(steps) / MU * (1 + 1e-6)
        mechanism = NoisyMean(Ball(650, clip), float(sigma), records.places or 1)
        blank = np.zeros(((records.places or 1) - len(rows), 1, 650))  # places whose record is not there
        for _ in range(steps):
            given = softened(rows @ weights) - wanted
            each = (rows[:, :, None] * given[:, None, :]).reshape(len(rows), 1, 650)
            weights -= 25.0 * mechanism.contribute(Sealed(np.concatenate([each, blank]))).reshape(65, 10)
        return Linear(weights)

    found = {}
    claim_ = Claim(8.0, 1e-5, MU)
    ways = {"forest": (forest, None), "network": (network, None), "DP gradient descent": (private_descent, claim_)}
    for name, (train, claim) in ways.items():
        say(name)
        line = of_callable(train, private, classes=10, population=test, public_data=True)
        found[name] = figures(examine(line, claim, shadows=shadows, canaries=max(20, -(-2000 // shadows)), say=say))
        said = line.observed(train(private), test.inputs, test.targets)
        found[name]["accuracy"] = float(np.mean(said.argmax(axis=1) == test.targets))
        say(f"  accuracy {found[name]['accuracy']:.3f}")
    return found


def duplicates(data: Path) -> dict[str, Any]:
    """Count images that PneumoniaMNIST's training and other parts share."""
    with np.load(data / "medmnist" / "pneumoniamnist.npz", allow_pickle=False) as file:
        parts = {name: file[f"{name}_images"] for name in ("train", "val", "test")}
    found = {f"{name} in train": len(copies(parts[name], parts["train"])) for name in ("val", "test")}
    rows = parts["train"].reshape(len(parts["train"]), -1)
    found["twice in train"] = len(rows) - len(np.unique(rows, axis=0))
    say(str(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("game", "digits", "records", "picture", "duplicates"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--shadows", type=int, default=64)
    parser.add_argument("--canaries", type=int, default=20)
    parser.add_argument("--kind", default="")
    parser.add_argument("--name", help="of the result (default: audits.PART)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    if arguments.part == "game":
        found = game(arguments.only)
    elif arguments.part == "digits":
        found = digits(arguments.only, arguments.shadows, arguments.canaries, arguments.kind)
    elif arguments.part == "records":
        found = records(arguments.data, arguments.only or ["adult-ours", "mnist-records"], arguments.shadows)
    elif arguments.part == "picture":
        found = picture(arguments.shadows)
    else:
        found = duplicates(arguments.data)
    result.write(arguments.name or f"audits.{arguments.part}", {**found, "seconds": time.perf_counter() - began})


if __name__ == "__main__":
    main()
