"""The game on a mechanism: two neighbouring inputs, thousands of releases, and how well these can be distinguished.

Nothing is trained. The inputs are the worst that are known for the mechanism, and a contribution is ten times larger than its
bound, so that a clip that is missing shows. It is close to the truth: half the noise is found.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special

from tutelage.audits.bounds import checked, lower, upper
from tutelage.privacy import bounds
from tutelage.privacy.accounting import Cost, cost, event_mu
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import GNMax, LNMax, Mechanism, NoisyMean
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed

Array = npt.NDArray[Any]

ALARM = 1e-6  # how often a mechanism that keeps its promise is accused, at most
_LOUD = 10.0  # times what the bound lets through
_VALUES = 8_000_000  # noisy numbers on each side
_MOST, _LEAST = 50_000, 400  # releases on each side
_CLEAR = 2.0  # μ of all questions that are played at most
_ENOUGH = 1e7  # ε of the ledger that only counts


@final
@dataclass(frozen=True)
class Game:
    """What was found, beside what was charged."""

    epsilon: float
    mu: float
    charged: Cost
    releases: int
    queries: int

    @property
    def refuted(self) -> bool:
        """Tell whether the releases contradict what was charged for them."""
        return self.beyond(self.charged.epsilon, self.charged.mu if self.charged.method == "exact Gaussian" else None)

    def beyond(self, epsilon: float, mu: float | None = None) -> bool:
        """Tell whether the releases contradict a claim; `mu` where it is one of Gaussian DP."""
        return self.epsilon > epsilon or (mu is not None and self.mu > mu)


def compare(first: npt.ArrayLike, second: npt.ArrayLike, delta: float, *, alarm: float = ALARM) -> tuple[float, float]:
    """Bound ε and μ from below by samples of one number each: the threshold is chosen on one half, and counted on the other."""
    one, two = checked(first, "first"), checked(second, "second")
    choose, measure = (one[::2], two[::2]), (one[1::2], two[1::2])
    cuts = np.unique(np.quantile(np.concatenate(choose), np.linspace(0, 1, 401)))
    found = []
    for bound in (lambda likely, other: np.log(np.maximum(likely - delta, 1e-300)) - np.log(other), _gap):
        guesses = np.stack([bound(*pair) for pair in _events(*choose, cuts, alarm / 4)])
        event, cut = np.unravel_index(int(np.argmax(guesses)), guesses.shape)
        found.append(max(0.0, float(bound(*_events(*measure, cuts[[cut]], alarm / 4)[int(event)])[0])))
    return found[0], found[1]


def _events(one: Array, two: Array, cuts: Array, alarm: float) -> list[tuple[Array, Array]]:
    above = [values.size - np.searchsorted(np.sort(values), cuts, side="right") for values in (one, two)]
    sizes = (one.size, two.size)
    below = [size - count for size, count in zip(sizes, above, strict=True)]
    ways = [(hits, likely) for hits in (above, below) for likely in (0, 1)]
    return [
        (lower(hits[likely], sizes[likely], alarm), upper(hits[1 - likely], sizes[1 - likely], alarm)) for hits, likely in ways
    ]


def _gap(likely: Array, other: Array) -> Array:
    inner = (likely > 0) & (other < 1)
    return np.where(inner, special.ndtri(np.where(inner, likely, 0.5)) - special.ndtri(np.where(inner, other, 0.5)), 0.0)


def play(mechanism: Mechanism, queries: int, delta: float, *, releases: int | None = None, alarm: float = ALARM) -> Game | None:
    """Play against a mechanism that answers `queries` questions; None for one whose worst inputs are not known here.

    What it costs is what a ledger holds after a curator answered so many questions. The mechanism is made as small as it goes
    without changing its noise or its sensitivity, and where so many numbers would take minutes fewer questions are asked.
    """
    worst = _worst(mechanism)
    if worst is None:
        return None
    small, one, other, statistic = worst
    width = one.shape[-1]
    each = event_mu(small.event())
    few = queries if each is None else int((_CLEAR / each) ** 2)  # beyond, hardly any release could be mistaken for the other
    asked = max(1, min(queries, few, _VALUES // (_LEAST * width)))
    size = releases or min(_MOST, max(_LEAST, _VALUES // (asked * width)))
    samples = (_released(small, ballots, size, asked, statistic) for ballots in (one, other))
    epsilon, mu = compare(*samples, delta, alarm=alarm)
    return Game(epsilon, mu, charged(small, one, asked, delta), size, asked)


def charged(mechanism: Mechanism, ballots: Array, queries: int, delta: float) -> Cost:
    """Let a curator answer, and give the price of what its ledger holds afterwards."""
    unit = getattr(mechanism, "unit", None)
    budget = Budget(_ENOUGH, delta) if unit is None else Budget(_ENOUGH, delta, unit)
    with tempfile.TemporaryDirectory() as place, Ledger(Path(place) / "ledger.sqlite", budget) as ledger:
        curator = Curator(_Given(ballots), _AsGiven(_bound(mechanism)), mechanism, ledger)
        curator.ask(Query.inputs(np.arange(queries, dtype=np.float64)[:, None]))
        return cost(ledger.totals(), delta)


@final
class _Given:
    """Teachers that always contribute the same."""

    key = "the game's"

    def __init__(self, ballots: Array) -> None:
        self.ballots = ballots

    def vote(self, inputs: Array) -> Sealed:
        return Sealed(np.repeat(self.ballots[:, None], len(inputs), axis=1))


@final
@dataclass(frozen=True)
class _AsGiven:
    """A codec that leaves contributions as they are."""

    bound: bounds.Bound

    def encode(self, predictions: Array) -> Array:
        return predictions

    def decode(self, codes: Array, inputs: Array) -> Array:
        return codes


def _released(mechanism: Mechanism, ballots: Array, releases: int, queries: int, statistic: Callable[[Array], Array]) -> Array:
    """Release again and again, and give one number of each release: blocks keep memory small."""
    block, found = max(1, 500_000 // (queries * ballots.size)), []
    for start in range(0, releases, block):
        size = min(block, releases - start)
        released = mechanism.contribute(Sealed(np.repeat(ballots[:, None], size * queries, axis=1)))
        found.append(statistic(released).reshape(size, queries).sum(axis=1))
    return np.concatenate(found).astype(np.float64)


def _bound(mechanism: Mechanism) -> bounds.Bound:
    return mechanism.bound if isinstance(mechanism, NoisyMean) else bounds.OneHot(mechanism.classes)  # type: ignore[attr-defined]


def _worst(mechanism: Mechanism) -> tuple[Any, Array, Array, Callable[[Array], Array]] | None:
    """Give the smallest mechanism of the same price, its worst neighbours (teachers, dimension), and what to look at."""
    if isinstance(mechanism, (GNMax, LNMax)):
        small = dataclasses.replace(mechanism, classes=2, teachers=2 + mechanism.unit.teachers)
        moved = np.ones((mechanism.unit.teachers, 1))
        tie = np.eye(2)
        one, other = (np.vstack([tie, moved * _LOUD * tie[side]]) for side in (0, 1))
        return small, one, other, lambda labels: labels == 0
    if isinstance(mechanism, NoisyMean):
        far = _furthest(mechanism.bound)
        if far is None:
            return None
        bound, first, second = far
        small = dataclasses.replace(mechanism, bound=bound, teachers=1 + mechanism.unit.teachers)
        rest, reach = np.maximum(first, 0)[None], mechanism.unit.teachers
        one, other = (np.vstack([rest, np.repeat(_LOUD * end[None], reach, axis=0)]) for end in (first, second))
        return small, one, other, lambda released: released @ (first - second)
    return None


def _furthest(bound: bounds.Bound) -> tuple[bounds.Bound, Array, Array] | None:
    """Give two members that lie furthest apart, of the same bound in as few dimensions as keep its diameter."""
    ends = np.eye(2)
    if isinstance(bound, bounds.Ball):
        return bounds.Ball(1, bound.norm), np.array([bound.norm]), np.array([-bound.norm])
    if isinstance(bound, bounds.Orthant):
        return (bounds.Orthant(2, bound.norm), *(bound.norm * ends)) if bound.dimension > 1 else None
    if isinstance(bound, (bounds.OneHot, bounds.Simplex)):
        return (type(bound)(2), *ends)
    if isinstance(bound, bounds.Cube):
        corner = np.full(bound.dimension, bound.side)
        return bound, corner, -corner
    if isinstance(bound, bounds.Binary):
        return bound, np.ones(bound.dimension), np.zeros(bound.dimension)
    return None


def scaled(mu: float, queries: int, played: int) -> float:
    """Give μ of fewer Gaussian answers out of so many, all of one price."""
    return mu * math.sqrt(played / queries)
