"""What happened: a closed union of records, each exactly what one mechanism did once.

An event says nothing about its price (accounting.py) and holds no private value: only parameters that were fixed before
any data was read. The meaning of an event never changes; a new meaning is a new class. Each has a proof in docs/theory/.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, final, get_args

from tutelage.privacy.errors import LedgerError, RecipeError


def _check(event: object, **rules: bool) -> None:
    for name, holds in rules.items():
        if not holds:
            raise RecipeError(
                f"`{name}` of {type(event).__name__} must be a finite number > 0. Got {getattr(event, name)!r} instead."
            )


def _finite_positive(value: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _whole(value: int, least: int = 1) -> bool:
    """Tell whether this is a whole number that a float holds exactly."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= 2**53


@final
@dataclass(frozen=True)
class Gaussian:
    """A vector of 2-sensitivity `sensitivity` was released with N(0, sigma²) added to every coordinate."""

    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        _check(self, sensitivity=_finite_positive(self.sensitivity), sigma=_finite_positive(self.sigma))


@final
@dataclass(frozen=True)
class SummedGaussian:
    """A vector of 2-sensitivity `sensitivity` was released as a sum, to which `parts` parties or more added noise of their own.

    Each part is round(N(0, sigma²/parts)), at least 32 grid steps wide, and nobody saw a part alone. `sigma` is the noise that
    the worst coalition faces: parties that know their own noise, and could take it off, are not among the `parts`.
    """

    sensitivity: float
    sigma: float
    parts: int

    def __post_init__(self) -> None:
        _check(
            self,
            sensitivity=_finite_positive(self.sensitivity),
            sigma=_finite_positive(self.sigma),
            parts=_whole(self.parts, 2),
        )


@final
@dataclass(frozen=True)
class Laplace:
    """A vector of 1-sensitivity `sensitivity` was released with (discrete) Laplace noise of scale `scale` on every coordinate."""

    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        _check(self, sensitivity=_finite_positive(self.sensitivity), scale=_finite_positive(self.scale))


@final
@dataclass(frozen=True)
class NoisyMax:
    """The arg-max of vote counts was released after noise on every count; one unit moves `votes` ballots.

    noise='gaussian': N(0, scale²), counts move by √2·votes in the 2-norm. noise='laplace': Laplace of scale 1/γ = `scale`,
    counts move by 2·votes in the 1-norm.
    """

    noise: Literal["gaussian", "laplace"]
    scale: float
    votes: int = 1

    def __post_init__(self) -> None:
        if self.noise not in ("gaussian", "laplace"):
            raise RecipeError(f"`noise` of NoisyMax must be 'gaussian' or 'laplace'. Got {self.noise!r} instead.")
        _check(self, scale=_finite_positive(self.scale), votes=_whole(self.votes))


@final
@dataclass(frozen=True)
class Threshold:
    """Whether the largest vote count plus N(0, sigma²) reaches a public threshold was released; one unit moves it by `votes`."""

    sigma: float
    votes: int = 1

    def __post_init__(self) -> None:
        _check(self, sigma=_finite_positive(self.sigma), votes=_whole(self.votes))


@final
@dataclass(frozen=True)
class SparseVector:
    """A whole run of the sparse vector technique: up to `answers` indices above a threshold, values not included.

    Laplace noise of scale sensitivity/epsilon_threshold on the threshold and 2·answers·sensitivity/epsilon_answers on
    every comparison: pure ε = epsilon_threshold + epsilon_answers (Lyu, Su & Li 2017, Algorithm 1 and Theorem 4).
    """

    epsilon_threshold: float
    epsilon_answers: float
    answers: int

    def __post_init__(self) -> None:
        _check(
            self,
            epsilon_threshold=_finite_positive(self.epsilon_threshold),
            epsilon_answers=_finite_positive(self.epsilon_answers),
            answers=_whole(self.answers),
        )


@final
@dataclass(frozen=True)
class SmoothRelease:
    """A number was released with Gaussian noise of `sigma` times its `beta`-smooth sensitivity (GNSS, Papernot et al. 2018)."""

    beta: float
    sigma: float

    def __post_init__(self) -> None:
        _check(self, beta=_finite_positive(self.beta), sigma=_finite_positive(self.sigma))


@final
@dataclass(frozen=True)
class Sampled:
    """`event` ran on a secret fresh sample, drawn anew each time and kept out of every output.

    sampler='poisson': every unit joins with probability `rate` (add-remove adjacency). sampler='fixed': `size` of
    `population` units without replacement (replace-one adjacency); `rate` is then size/population.
    """

    event: Gaussian | Laplace
    rate: float
    sampler: Literal["poisson", "fixed"] = "poisson"
    size: int = 0
    population: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.event, (Gaussian, Laplace)):
            raise RecipeError(f"`event` of Sampled must be Gaussian or Laplace. Got {type(self.event).__name__} instead.")
        if not (_finite_positive(self.rate) and 0 < self.rate <= 1):
            raise RecipeError(f"`rate` of Sampled must lie in (0, 1]. Got {self.rate!r} instead.")
        if self.sampler not in ("poisson", "fixed"):
            raise RecipeError(f"`sampler` of Sampled must be 'poisson' or 'fixed'. Got {self.sampler!r} instead.")
        if not (_whole(self.size, 0) and _whole(self.population, 0)):
            raise RecipeError(
                f"`size` and `population` of Sampled must be whole numbers. Got {self.size!r} and {self.population!r} instead."
            )
        if self.sampler == "fixed" and not (0 < self.size <= self.population and self.rate == self.size / self.population):
            raise RecipeError(
                "`rate` of Sampled must be size/population with 0 < size ≤ population. "
                f"Got {self.rate!r}, {self.size!r} and {self.population!r} instead."
            )


@final
@dataclass(frozen=True)
class Reserved:
    """All `rounds` of a sampled event were reserved before the first of them; together they are (epsilon, delta)-DP.

    Fewer may have been used: nothing is given back. The pair was priced once, when the rounds were reserved.
    """

    event: Sampled
    rounds: int
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not isinstance(self.event, Sampled):
            raise RecipeError(f"`event` of Reserved must be Sampled. Got {type(self.event).__name__} instead.")
        _check(self, rounds=_whole(self.rounds), epsilon=_finite_positive(self.epsilon))
        if not (_finite_positive(self.delta) and self.delta < 1):
            raise RecipeError(f"`delta` of Reserved must lie in (0, 1). Got {self.delta!r} instead.")


@final
@dataclass(frozen=True)
class NonPrivate:
    """Somebody looked: a private value left without noise. The price is infinite."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise RecipeError(f"`reason` of NonPrivate must be a text. Got {type(self.reason).__name__} instead.")


Event: TypeAlias = (
    Gaussian | SummedGaussian | Laplace | NoisyMax | Threshold | SparseVector | SmoothRelease | Sampled | Reserved | NonPrivate
)

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def to_record(event: Event) -> dict[str, Any]:
    """Write an event as plain data for the book."""
    record: dict[str, Any] = {"kind": type(event).__name__}
    for name, value in asdict(event).items():
        record[name] = to_record(event.event) if isinstance(event, (Sampled, Reserved)) and name == "event" else value
    return record


def from_record(record: dict[str, Any]) -> Event:
    """Read an event back; what is not exactly one of ours is refused."""
    kind = _KINDS.get(str(record.get("kind"))) if isinstance(record, dict) else None
    if kind is None or set(record) != {"kind"} | {field.name for field in fields(kind)}:
        raise LedgerError("an event in the book must be one of this version's kinds with its own fields. Got another instead.")
    values = {name: value for name, value in record.items() if name != "kind"}
    if kind in (Sampled, Reserved):
        values["event"] = from_record(values["event"])
    try:
        event: Event = kind(**values)
    except (RecipeError, TypeError):
        raise LedgerError("an event in the book must have valid parameters. Got others instead.") from None
    return event
