"""ε again, from the book alone, by somebody else's accountant.

Nothing here uses our own accounting: the rows are read, their chain is checked, and Google's dp-accounting prices them.
What it has no event for (a smooth release) is written out a second time here, from the definition.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy as np
from scipy import special

from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.events import (
    Event,
    Gaussian,
    Laplace,
    NoisyMax,
    NonPrivate,
    Sampled,
    SmoothRelease,
    SparseVector,
    Threshold,
    to_record,
)
from tutelage.privacy.ledger import Entry, Ledger, charges, check_chain, read_lines
from tutelage.runs import RunFolder

#: dp-accounting rounds privacy losses upwards to a grid, which costs it up to this much on top of the exact figure.
TOLERANCE = 5e-3

_FIELDS = ("epsilon", "data_independent_epsilon", "budget_epsilon", "delta", "mu", "implied_tpr_at_fpr_0.001")
_OPENING = {"budget_epsilon": "epsilon"} | {name: name for name in ("delta", "unit", "unit_teachers", "adjacency")}
_OTHERS = (*_OPENING, "adaptive", "mu_is_exact", "events", "ledger_head")

Price = Callable[[float], float]  # δ to ε


@final
@dataclass(frozen=True)
class Verdict:
    """What an independent reading of the book found."""

    claimed_epsilon: float
    recomputed_epsilon: float
    delta: float
    rows: int
    events: int
    head: str
    accountant: str
    against_private_book: bool  # False where only release/ was at hand


def verify(run: str | os.PathLike[str] | RunFolder) -> Verdict:
    """Check a run: chain, head, export against database, budget, events, ε, μ and the attacker's rate.

    Raise LedgerError if anything is off. Not checked, because the book does not hold it: `sanitised_epsilon`, `units`, scores.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder(run)
    claim = _claim(folder.existing())
    rows = read_lines(folder.exported_book)
    check_chain(rows)
    if rows[-1].hash != claim["ledger_head"]:
        raise LedgerError(
            "the book must end at the row that guarantee.json names. Got another end (rows missing or added) instead."
        )
    if folder.holds_book:
        with Ledger(folder.book) as ledger:
            if ledger.entries() != rows:
                raise LedgerError("the exported book must equal the one under private/. Got a different one instead.")
    for name, written in _OPENING.items():
        if claim[name] != rows[0].body.get(written):
            raise LedgerError(f"`{name}` must be what the book was opened with. Got {claim[name]!r} instead.")
    pairs = _tallied(rows)
    _check_events(claim, pairs)
    delta = claim["delta"]
    price, accountant = recomputed(pairs)
    again = price(delta)
    _check_figures(claim, pairs, price, again)
    events = sum(count for _, count in pairs)
    return Verdict(claim["epsilon"], again, delta, len(rows), events, rows[-1].hash, accountant, folder.holds_book)


def _claim(folder: RunFolder) -> dict[str, Any]:
    """Read guarantee.json with every figure as a number."""
    try:
        claim = json.loads(folder.guarantee.read_text(encoding="utf-8"), parse_constant=_no_number)
        if not isinstance(claim, dict) or not {*_FIELDS, *_OTHERS} <= set(claim):
            raise ValueError
        return {**claim, **{name: _number(claim[name]) for name in _FIELDS}}
    except (OSError, ValueError):
        raise RecipeError(
            "`run` must hold a readable guarantee.json with its documented fields. Got another file instead."
        ) from None


def _no_number(constant: str) -> NoReturn:
    raise ValueError(constant)


def _number(value: Any) -> float:
    if value == "infinity":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ValueError
    return float(value)


def _tallied(rows: list[Entry]) -> list[tuple[Event, int]]:
    tally: dict[Event, int] = {}
    for event, count in charges(rows):
        tally[event] = tally.get(event, 0) + count
    return list(tally.items())


def _check_events(claim: dict[str, Any], pairs: list[tuple[Event, int]]) -> None:
    booked = [{**to_record(event), "count": count} for event, count in pairs]
    stated = claim["events"]
    if not isinstance(stated, list) or len(stated) != len(booked) or any(event not in stated for event in booked):
        raise LedgerError("guarantee.json must list the book's events. Got others instead.")


def _check_figures(claim: dict[str, Any], pairs: list[tuple[Event, int]], price: Price, again: float) -> None:
    """Refuse figures that promise more than the book gives. Those that promise less are the owner's to state."""
    for name in ("epsilon", "data_independent_epsilon"):
        _refuse_below(claim, name, again, "what the book costs")
    # A test decided how often was answered: what happened to be spent is no bound, only the budget that the filter held.
    adaptive = any(isinstance(event, Threshold) for event, _ in pairs)
    if adaptive:
        _refuse_below(claim, "epsilon", claim["budget_epsilon"], "the budget, where a test decides what is answered,")
    if math.isinf(claim["epsilon"]):
        return
    gaussian = all(_noise_multiplier(event) is not None for event, _ in pairs)
    if claim["mu_is_exact"] is not False and not gaussian:
        raise LedgerError("`mu_is_exact` must be false where not every event is Gaussian. Got true instead.")
    if claim["epsilon"] > 0:
        _refuse_below(claim, "mu", _mu_at_least(claim["epsilon"], claim["delta"]), "that of a Gaussian answer with this ε")
    fpr, name = 1e-3, "implied_tpr_at_fpr_0.001"
    if gaussian:
        _refuse_below(claim, name, float(special.ndtr(claim["mu"] + special.ndtri(fpr))), "what its μ implies")
    elif adaptive:
        _refuse_below(claim, name, min(1.0, math.exp(claim["epsilon"]) * fpr) * 0.99, "what its ε implies")
    else:
        best = min(math.exp(min(price(delta), 700.0)) * fpr + delta for delta in np.geomspace(1e-9, 0.1, 33).tolist())
        _refuse_below(claim, name, min(1.0, best) * 0.99, "what the book implies")


def _refuse_below(claim: dict[str, Any], name: str, least: float, what: str) -> None:
    if claim[name] < least * (1 - TOLERANCE) - (1e-3 if name.endswith("epsilon") else 0.0):
        raise LedgerError(f"`{name}` must not be below {what}, {least:.6g}. Got {claim[name]:.6g} instead.")


def _mu_at_least(epsilon: float, delta: float) -> float:
    """Find by bisection the μ at which δ(ε) of a Gaussian answer reaches δ."""
    low, high = 1e-9, 1e6
    for _ in range(100):
        mu = math.sqrt(low * high)
        log_second = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
        reached = float(special.ndtr(mu / 2 - epsilon / mu)) - math.exp(min(log_second, 0.0)) >= delta
        low, high = (low, mu) if reached else (mu, high)
    return low


def recomputed(pairs: list[tuple[Event, int]]) -> tuple[Price, str]:
    """Price events with dp-accounting: privacy loss distributions, or its Rényi conversion where an event has no distribution."""
    if any(isinstance(event, NonPrivate) for event, _ in pairs):
        return lambda delta: math.inf, "none: somebody looked"
    if not pairs:
        return lambda delta: 0.0, "nothing was released"
    renyi = any(isinstance(event, SmoothRelease) for event, _ in pairs)
    with np.errstate(over="ignore"):  # dp-accounting's tails overflow to infinity on purpose
        price = _by_renyi(pairs) if renyi else _by_distribution(pairs)

    def quietly(delta: float) -> float:
        with np.errstate(over="ignore"):
            return price(delta)

    return quietly, "dp-accounting, Rényi" if renyi else "dp-accounting, privacy loss distributions"


def _noise_multiplier(event: Event) -> float | None:
    """σ over the distance one unit moves the noisy quantity, for events that are one Gaussian answer."""
    match event:
        case Gaussian():
            return event.sigma / event.sensitivity
        case NoisyMax(noise="gaussian"):
            return event.scale / (event.votes * 2**0.5)
        case Threshold():
            return event.sigma / event.votes
    return None


def _by_distribution(pairs: list[tuple[Event, int]]) -> Price:
    from dp_accounting.pld import privacy_loss_distribution as pld

    whole = pld.identity()
    for event, count in pairs:
        whole = whole.compose(_distribution(event, count, pld))
    return lambda delta: float(whole.get_epsilon_for_delta(delta))


def _distribution(event: Event, count: int, pld: Any) -> Any:
    noise = _noise_multiplier(event)
    if noise is not None:  # dp-accounting's own composition rule for Gaussians: count of them at noise z are one at z/√count
        return pld.from_gaussian_mechanism(noise / count**0.5)
    match event:
        case Sampled(event=Gaussian() as inner, sampler="poisson"):
            return pld.from_gaussian_mechanism(inner.sigma / inner.sensitivity, sampling_prob=event.rate).self_compose(count)
        case Sampled(event=Laplace() as inner, sampler="poisson"):
            return pld.from_laplace_mechanism(inner.scale / inner.sensitivity, sampling_prob=event.rate).self_compose(count)
        case NoisyMax():  # two counts move: two Laplace answers
            return pld.from_laplace_mechanism(event.scale / event.votes).self_compose(2 * count)
        case Laplace():
            return pld.from_laplace_mechanism(event.scale / event.sensitivity).self_compose(count)
        case SparseVector():
            from dp_accounting.pld import common

            pure = common.DifferentialPrivacyParameters(event.epsilon_threshold + event.epsilon_answers, 0.0)
            return pld.from_privacy_parameters(pure).self_compose(count)
    raise LedgerError(f"every event must be one that dp-accounting can price. Got {type(event).__name__} instead.")


def _by_renyi(pairs: list[tuple[Event, int]]) -> Price:
    from dp_accounting import dp_event
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    orders = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.arange(2, 64, 0.25), np.geomspace(64, 1024, 80)]))
    total = np.zeros_like(orders)
    for event, count in pairs:
        noise = _noise_multiplier(event)
        if noise is not None:
            accountant = rdp.RdpAccountant(orders)
            accountant.compose(dp_event.GaussianDpEvent(noise), count)
            total += np.asarray([float(value) for value in accountant._rdp])
        elif isinstance(event, SmoothRelease):
            total += count * _smooth_renyi(event, orders)
        else:
            raise LedgerError(f"every event beside a smooth release must be Gaussian. Got {type(event).__name__} instead.")
    return lambda delta: float(rdp.compute_epsilon(orders, total, delta)[0])


def _smooth_renyi(event: SmoothRelease, orders: Any) -> Any:
    """Largest Rényi divergence of two normals whose deviations differ by at most e^β and whose means by the smaller S.

    With S = 1 the smaller deviation is σ. Gil, Alajaji & Linder 2013, Table 2, in both directions and with equal deviations.
    """
    worst = np.zeros_like(orders)
    for first, second in ((1.0, 1.0), (math.exp(event.beta), 1.0), (1.0, math.exp(event.beta))):
        mixed = orders * second**2 + (1 - orders) * first**2
        proper = mixed > 0
        safe = np.where(proper, mixed, 1.0)
        spread = math.log(second / first) + (2 * math.log(second) - np.log(safe)) / (2 * (orders - 1))
        worst = np.maximum(worst, np.where(proper, spread + orders / (2 * event.sigma**2 * safe), math.inf))
    return worst
