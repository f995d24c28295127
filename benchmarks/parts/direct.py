"""Baselines that train on the patients directly, for hippocampus.py: DP-SGD and noisy FedAvg, at their best.

Every setting is tried on split 0 and judged by Dice on the masks of that split's public pool, which a student never sees and a
real consortium would not have; what the tries read of private data is not counted either. Both favour the baseline.
All settings are tried at the largest ε; at the others the best few of them, those with the fewest releases first. The best one
then trains on every split, afresh. With no minutes at all nothing is tried: the setting of `FROZEN` is taken, which was best on
split 0 at that ε.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from tutelage.baselines.dpsgd import DPSGD
from tutelage.baselines.fedavg import NoisyFedAvg
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice
from tutelage.nets.networks import Factory
from tutelage.nets.unet import UNet, Which, free_parameters
from tutelage.nets.warps import VOLUMES, Warp
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.units import Unit

Setting = dict[str, Any]
Split = tuple[Private, Public, Public]
AGAIN = 6  # settings that are tried again at every other ε: what suits much noise is not what suits little

# The noise on a gradient grows with the root of its length, so small networks come first. With Adam the clip matters only
# where it is above most gradients' norms: then it adds noise and takes nothing off. "plain": without warps.
TINY, SMALL, DEEP, WIDE = "2-4", "4-8", "4-8-16", "8-16-32"  # 1,277, 4,929, 22,305 and 88,673 parameters
PLAINLY: Setting = {"optimizer": "sgd", "momentum": 0.0}
# Fewer parameters still: scales, shifts and the head of a network whose convolutions stay as they were drawn.
LIGHTLY: Setting = {"free": "norms", "plain": True, **PLAINLY}
DESCENTS: tuple[Setting, ...] = (
    {"widths": SMALL, "steps": 150, "learning_rate": 1e-2, "clip": 0.1, "plain": True},
    {"widths": SMALL, "steps": 30, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": TINY, "steps": 30, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": SMALL, "steps": 60, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": DEEP, "steps": 60, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": SMALL, "steps": 60, "learning_rate": 3e-2, "clip": 0.1},
    {"widths": TINY, "steps": 60, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": SMALL, "steps": 60, "learning_rate": 1e-1, "clip": 0.1, "plain": True},
    {"widths": DEEP, "steps": 60, "learning_rate": 1e-2, "clip": 0.1, "plain": True},
    {"widths": SMALL, "steps": 60, "learning_rate": 3e-2, "clip": 1.0, "plain": True},
    {"widths": SMALL, "steps": 150, "learning_rate": 3e-2, "clip": 0.1, "plain": True},
    {"widths": WIDE, "steps": 60, "learning_rate": 1e-2, "clip": 0.1, "plain": True},
    {"widths": DEEP, "steps": 150, "learning_rate": 1e-2, "clip": 0.1},
    # Adam gives a coordinate that is all noise as long a step as any other, plain descent does not: for small ε, where only what
    # was among the best at the largest is tried; so `--optimizer sgd --epsilons 1` tries them there alone.
    {"widths": TINY, "steps": 80, "learning_rate": 3.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": SMALL, "steps": 20, "learning_rate": 3.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": TINY, "steps": 20, "learning_rate": 3.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": SMALL, "steps": 20, "learning_rate": 10.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": TINY, "steps": 40, "learning_rate": 3.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": SMALL, "steps": 20, "learning_rate": 1.0, "clip": 1.0, "plain": True, **PLAINLY},
    {"widths": SMALL, "steps": 40, "learning_rate": 1.0, "clip": 0.1, "plain": True, **PLAINLY},
    {"widths": DEEP, "steps": 40, "learning_rate": 3.0, "clip": 0.1, **LIGHTLY},
    {"widths": DEEP, "steps": 40, "learning_rate": 1.0, "clip": 0.1, **LIGHTLY},
    {"widths": SMALL, "steps": 40, "learning_rate": 3.0, "clip": 0.1, **LIGHTLY},
)
FEDERATIONS: tuple[Setting, ...] = (
    {"widths": SMALL, "rounds": 20, "local_steps": 4, "local_rate": 0.3, "clip": 0.3, "plain": True},
    {"widths": SMALL, "rounds": 20, "local_steps": 4, "local_rate": 0.3, "clip": 0.1, "plain": True},
    {"widths": TINY, "rounds": 20, "local_steps": 4, "local_rate": 0.3, "clip": 0.3, "plain": True},
    {"widths": SMALL, "rounds": 10, "local_steps": 8, "local_rate": 0.3, "clip": 0.3, "plain": True},
    {"widths": SMALL, "rounds": 40, "local_steps": 4, "local_rate": 0.3, "clip": 0.1, "plain": True},
    {"widths": DEEP, "rounds": 20, "local_steps": 4, "local_rate": 0.3, "clip": 0.3, "plain": True},
    {"widths": SMALL, "rounds": 20, "local_steps": 4, "local_rate": 0.3, "clip": 0.3},
)

#: What was best at each ε when all of these were tried: for splits that nothing was chosen on.
FROZEN: dict[tuple[str, float], Setting] = {
    ("DP-SGD", 8.0): DESCENTS[0],
    ("DP-SGD", 3.0): DESCENTS[3],
    ("DP-SGD", 1.0): DESCENTS[13],
    **{("FedAvg", epsilon): FEDERATIONS[0] for epsilon in (1.0, 3.0, 8.0)},
}


@dataclass(frozen=True)
class Bench:
    """Hold what all trainings share."""

    delta: float
    device: str
    chunk: int

    def descent(self, epsilon: float, setting: Setting, shape: tuple[int, ...]) -> DPSGD:
        """Plan DP-SGD: every patient in every step, averaged weights."""
        names = ("steps", "learning_rate", "clip", "optimizer", "momentum")
        told = {name: setting[name] for name in names if name in setting}
        return DPSGD(
            network(setting, shape), epsilon=epsilon, delta=self.delta, averaging=0.9, multiplicity=1, chunk=self.chunk,
            augmentation=warps(setting), device=self.device, **told,
        )  # fmt: skip

    def federation(self, epsilon: float, setting: Setting, shape: tuple[int, ...]) -> NoisyFedAvg:
        """Plan noisy FedAvg: every patient is a client in every round."""
        told = {name: setting[name] for name in ("rounds", "local_steps", "local_rate", "clip")}
        return NoisyFedAvg(
            network(setting, shape), epsilon=epsilon, delta=self.delta, views=1, chunk=self.chunk,
            augmentation=warps(setting), device=self.device, **told,
        )  # fmt: skip

    def trained(self, plan: DPSGD | NoisyFedAvg, private: Private) -> Any:
        """Train under a book of its own."""
        budget = Budget(plan.epsilon, self.delta, Unit("patient"))
        with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
            model = plan.fit(private, ledger=ledger)
            assert ledger.spent().epsilon <= plan.epsilon * (1 + 1e-9)
        return model


def warps(setting: Setting) -> Warp | None:
    """Give the setting's warps."""
    return None if setting.get("plain") else VOLUMES


@dataclass(frozen=True)
class Partly:
    """Build a network of which only some parameters may move."""

    whole: UNet
    free: Which

    def __call__(self) -> nn.Module:
        """Hold the others fast."""
        network = self.whole()
        free = set(free_parameters(network, self.free))
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in free)
        return network


def network(setting: Setting, shape: tuple[int, ...]) -> Factory:
    """Build the setting's network."""
    widths = tuple(int(width) for width in setting["widths"].split("-"))
    whole = UNet(shape=shape, widths=widths, groups=min(8, widths[0]))
    return Partly(whole, setting["free"]) if "free" in setting else whole


def rows(
    name: str,
    planned: Callable[[float, Setting, tuple[int, ...]], Any],
    settings: Sequence[Setting],
    splits: dict[int, Split],
    *,
    bench: Bench,
    epsilons: Sequence[float],
    minutes: float,
) -> Iterator[tuple[int, str, dict[str, Any], Any]]:
    """Try, choose and train: give (split, what, facts, test masks or None for a try) one by one.

    Where time runs out fewer settings are tried, so that what is chosen still trains on every split.
    """
    begin, order = time.perf_counter(), list(settings)
    at = min(splits)  # the split that choices are made on
    for number, epsilon in enumerate(sorted(epsilons, reverse=True)):
        tried: list[tuple[float, int, float]] = []  # (minus the score, place, seconds)
        left = len(splits) * (len(epsilons) - number)  # trainings that the figures need, each as long as the best one's
        if number:
            order[:AGAIN] = sorted(order[:AGAIN], key=releases)
        for place, setting in enumerate((order if number == 0 else order[:AGAIN]) if minutes else ()):
            start = time.perf_counter()
            if tried and start - begin + left * min(tried)[2] > 60 * minutes:
                break
            pool = pooled(bench.trained(planned(epsilon, setting, shaped(splits[at])), splits[at][0]), splits[at][1])
            tried.append((-pool, place, time.perf_counter() - start))
            yield at, f"{name}, tried", {"epsilon": epsilon, "pool": pool, **setting}, None
        order = [order[place] for _, place, _ in sorted(tried)] + order[len(tried) :]
        best = order[0] if minutes else FROZEN.get((name, epsilon), order[0])
        for split, (private, public, test) in splits.items():
            model = bench.trained(planned(epsilon, best, shaped(splits[at])), private)
            facts = {"epsilon": epsilon, "pool": pooled(model, public), **best}
            yield split, name, facts, model.predict(test.inputs)


def releases(setting: Setting) -> int:
    """Count what a setting lets out."""
    return int(setting.get("steps") or setting["rounds"])


def shaped(split: Split) -> tuple[int, ...]:
    """Give the shape of one image."""
    return tuple(split[1].inputs.shape[1:])


def pooled(model: Any, public: Public) -> float:
    """Score a model on the masks of the public pool."""
    return round(float(dice(model.probabilities(public.inputs), public.targets).mean()), 4)
