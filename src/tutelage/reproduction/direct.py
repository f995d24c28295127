"""Baselines beside a table's honest columns, which train on private data directly: DP-SGD and noisy federated averaging."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from tutelage.baselines.dpsgd import DPSGD
from tutelage.baselines.fedavg import NoisyFedAvg
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.ledger import Budget, Ledger

Progress = Callable[[str, int, int], None]
DESCENT, FEDERATION = "DP-SGD", "noisy FedAvg"
BASELINES = (DESCENT, FEDERATION)


@final
@dataclass(frozen=True, kw_only=True)
class Direct:
    """Say how both baselines train. Fixed before private data is read: a search on it would be a price that nobody pays."""

    widths: tuple[int, ...]  # noise grows with the root of the number of parameters: small networks do best
    steps: int = 60
    rate: float = 1.0  # share of the units in a step
    learning_rate: float = 3e-2
    clip: float = 0.1  # of a unit's gradient
    rounds: int = 20
    clients: float = 1.0  # share of the units in a round
    local_steps: int = 4
    local_rate: float = 0.3
    change: float = 0.3  # clip of a client's change
    warp: Warp | None = None
    chunk: int = 64  # units at a time: time and memory, no figure

    def descent(self, shape: tuple[int, ...], budget: Budget, *, device: str, seed: int) -> DPSGD:
        """Plan DP-SGD; the mean of the last weights is the model."""
        return DPSGD(
            self._network(shape), epsilon=budget.epsilon, delta=budget.delta, steps=self.steps, rate=self.rate, clip=self.clip,
            learning_rate=self.learning_rate, averaging=0.9, augmentation=self.warp, multiplicity=1, chunk=self.chunk,
            device=device, seed=seed,
        )  # fmt: skip

    def federation(self, shape: tuple[int, ...], budget: Budget, *, device: str, seed: int) -> NoisyFedAvg:
        """Plan noisy FedAvg: every unit is a client."""
        return NoisyFedAvg(
            self._network(shape), epsilon=budget.epsilon, delta=budget.delta, rounds=self.rounds, rate=self.clients,
            clip=self.change, local_steps=self.local_steps, local_rate=self.local_rate, augmentation=self.warp, views=1,
            chunk=self.chunk, device=device, seed=seed,
        )  # fmt: skip

    def _network(self, shape: tuple[int, ...]) -> UNet:
        return UNet(shape=shape, widths=self.widths, groups=min(8, self.widths[0]))


def trained(
    how: Direct,
    private: Private,
    test: Public,
    budget: Budget,
    *,
    kept: Path,
    purpose: str,
    device: str,
    seed: int,
    say: Progress,
) -> dict[str, float]:
    """Train both under books of their own and give their Dice, and the ε that their books came to; or read what is kept.

    A baseline that was killed is trained anew under a new book: it had let nothing out. Without Opacus there is no DP-SGD.
    """
    shape, found = tuple(private.inputs.shape[1:]), _read(kept, purpose)
    plans: dict[str, Callable[[], DPSGD | NoisyFedAvg]] = {
        DESCENT: lambda: how.descent(shape, budget, device=device, seed=seed),
        FEDERATION: lambda: how.federation(shape, budget, device=device, seed=seed),
    }
    for name, plan in plans.items():
        if name in found or (name == DESCENT and importlib.util.find_spec("opacus") is None):
            continue
        found |= _one(name, plan(), private, test, budget, say)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"purpose": purpose, "found": found}, indent=2) + "\n", encoding="utf-8")
    return found


def _one(name: str, plan: DPSGD | NoisyFedAvg, private: Private, test: Public, budget: Budget, say: Progress) -> dict[str, float]:
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
        model = plan.fit(private, ledger=ledger, progress=lambda done, total: say(name, done, total))
        spent = ledger.spent().epsilon
    assert test.targets is not None
    return {name: float(dice(model.predict(test.inputs), test.targets).mean()), f"{name}: ε": float(spent)}


def _read(kept: Path, purpose: str) -> dict[str, float]:
    try:
        told: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return dict(told["found"]) if told["purpose"] == purpose else {}
    except (OSError, ValueError, KeyError):
        return {}
