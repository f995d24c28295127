"""A release checked by itself: its files, its ledger, and ε again by somebody else's accountant.

Nothing here prices with our own accounting: the rows are read, their chain is checked, and Google's dp-accounting prices them.
What it has no event for (a smooth release) is written out a second time here, from the definition.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, final

import numpy as np
from scipy import special

from tutelage import manifest
from tutelage.claims import FIGURES, check_files, check_rows, check_words, number, read_claim, unbound
from tutelage.guarantee import counted, later, opened_with
from tutelage.privacy.entries import canonical
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.events import (
    Event,
    Gaussian,
    Laplace,
    NoisyMax,
    NonPrivate,
    Reserved,
    Sampled,
    SmoothRelease,
    SparseVector,
    SummedGaussian,
    Threshold,
    to_record,
)
from tutelage.privacy.ledger import Entry, check_chain, quotable, read_lines
from tutelage.runs import RunFolder

#: Loss distributions round upwards to a grid, and a Rényi conversion to its orders: up to this share on top of the exact figure.
TOLERANCE = 5e-3
#: Nothing is rounded where every answer is Gaussian. At ε = 10,000 the figure above would pass a claim that is 50 too low.
EXACT = 1e-6
#: Nor are μ and an attacker's rate that follow from ε by a formula; two ways to compute them differ by less than this.
_WRITTEN = 1e-5

#: Grids that privacy losses are rounded to, coarse to fine. The last is dp-accounting's own.
_GRIDS = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
_ROUNDING = 1e-4  # of ε: a grid that costs no more is fine enough. Far below the tolerance, since the estimate is a rough one

#: What is priced on a grid has at most so many events, and so large a budget. Beyond, a grid takes minutes or all memory.
_MOST, _LARGEST = 10**6, 2e4

_OPENING = {"budget_epsilon": "epsilon"} | {name: name for name in ("delta", "unit", "unit_teachers", "adjacency")}

Price = Callable[[float], float]  # δ to ε, never below the true one


@final
@dataclass(frozen=True)
class Opinion:
    """Another accountant's price of a book, who it is, and how far its figure may lie above the exact one."""

    price: Price
    accountant: str
    slack: float = EXACT


@final
@dataclass(frozen=True)
class Verdict:
    """What an independent reading of a release found."""

    claimed_epsilon: float
    recomputed_epsilon: float
    delta: float
    quotes: str  # "cost" or "budget"
    rows: int
    events: int
    head: str
    manifest: str  # SHA-256 of the manifest, which binds every released file: to compare with what the custodian noted
    accountant: str
    against_private_book: bool  # False where only release/ was at hand
    unbound: tuple[str, ...]  # what in the release cannot be checked


@final
@dataclass(frozen=True)
class Together:
    """What an independent reading found of several releases that share one ledger."""

    epsilon: float  # what all of them cost together, as far as the longest of their ledgers tells
    budget_epsilon: float
    delta: float


def verify(run: str | os.PathLike[str] | RunFolder) -> Verdict:
    """Check a release: its files against the manifest, the ledger's chain and order, every figure and sentence.

    Raise an error if anything is off. `unbound` of the verdict lists what cannot be checked against anything.
    """
    return _verified(run)[0]


def verify_together(runs: Sequence[str | os.PathLike[str] | RunFolder]) -> tuple[list[Verdict], Together]:
    """Check several releases, each by itself and all together: they must share one ledger, within its budget."""
    found = [_verified(run) for run in runs]
    verdicts, ledgers = [verdict for verdict, _, _ in found], [rows for _, rows, _ in found]
    longest = max(ledgers, key=len)
    apart = {verdict.manifest for verdict, _, own in found if own}  # a run's own ledger speaks about no other release
    if len(apart) > 1 or any(rows != longest[: len(rows)] for rows in ledgers):
        total, delta = (sum(getattr(verdict, name) for verdict in verdicts) for name in ("claimed_epsilon", "delta"))
        raise LedgerError(
            "releases must share one ledger to be checked together. Got several ledgers instead: if they are of the same data, "
            f"no more than ε = {total:.6g} at δ = {delta:.6g} is known for all of them."
        )
    budget = opened_with(longest)
    return verdicts, Together(_price(_tallied(longest), budget.delta)[1], budget.epsilon, budget.delta)


def _verified(run: str | os.PathLike[str] | RunFolder) -> tuple[Verdict, list[Entry], bool]:
    folder = (run if isinstance(run, RunFolder) else RunFolder(run)).existing()
    manifest.check_sizes(folder.published)
    claim = read_claim(folder.guarantee)
    files, digest = manifest.check(folder.published)
    rows = read_lines(folder.exported_book)
    check_chain(rows)
    if rows[-1].hash != claim["ledger_head"]:
        raise LedgerError(
            "the book must end at the row that guarantee.json names. Got another end (rows missing or added) instead."
        )
    inside = folder.holds_book
    if inside:
        with folder.copied() as ledger:
            _check_inside(ledger.entries(), rows, claim["run"], digest)
    check_rows(rows)
    for name, written in _OPENING.items():
        if claim[name] != rows[0].body[written]:
            raise LedgerError(f"`{name}` must be what the book was opened with. Got {claim[name]!r} instead.")
    pairs = _tallied(rows)
    _check_events(claim, pairs)
    _check_room(rows, pairs)
    _check_size(rows, pairs)
    opinion, again = _price(pairs, claim["delta"])
    with pricing():
        _check_figures(claim, rows, pairs, opinion, again)
    check_words(claim, rows)
    check_files(claim, rows, folder.published, files)
    events = sum(count for _, count in pairs)
    verdict = Verdict(
        number(claim["epsilon"]), again, claim["delta"], claim["quotes"], len(rows), events, rows[-1].hash, digest,
        opinion.accountant, inside, unbound(claim, files),
    )  # fmt: skip
    return verdict, rows, claim["ledger"] == "own"


def _check_inside(known: list[Entry], rows: list[Entry], run: str, digest: str) -> None:
    """Hold the release to the ledger under `private/`, which may have gone on with other runs, and which noted the manifest."""
    if known[: len(rows)] != rows:
        raise LedgerError("the exported book must equal the one under private/. Got a different one instead.")
    after = known[len(rows) :]
    if not later(after, run):
        raise LedgerError(
            "the exported book must equal the one under private/. Got one without what this run was charged for since instead."
        )
    if not any(row.kind == "note" and row.body.get("manifest") == digest for row in after):
        raise LedgerError("the manifest must be one that the book under private/ noted. Got another instead.")


@contextmanager
def pricing() -> Iterator[None]:
    """Turn what an accountant raises on a noise or a δ that no mechanism has into one line."""
    try:
        yield
    except (ArithmeticError, ValueError, MemoryError):
        raise LedgerError("the book's events and δ must be ones that dp-accounting can price. Got others instead.") from None


def _price(pairs: list[tuple[Event, int]], delta: float) -> tuple[Opinion, float]:
    with pricing():
        opinion = recomputed(pairs)
        return opinion, opinion.price(delta)


def _tallied(rows: list[Entry]) -> list[tuple[Event, int]]:
    with pricing():
        return counted(rows)


def _check_room(rows: list[Entry], pairs: list[tuple[Event, int]]) -> None:
    """Refuse a book beyond its budget before it is priced: a grid for what somebody wrote into it could take all memory."""
    with pricing():
        budget = opened_with(rows)
        if budget.exceeded(pairs):
            raise LedgerError(f"the book must not cost more than its budget, {budget.epsilon:g}. Got more instead.")


def _check_size(rows: list[Entry], pairs: list[tuple[Event, int]]) -> None:
    """Refuse what no grid of bearable size prices. Gaussian answers need no grid."""
    if all(_noise_multiplier(event) is not None for event, _ in pairs):
        return
    count, epsilon = sum(count for _, count in pairs), opened_with(rows).epsilon
    if count > _MOST or epsilon > _LARGEST:
        raise LedgerError(
            f"a book whose answers are not all Gaussian must have at most {_MOST:,} events and ε = {_LARGEST:,.0f}. "
            f"Got {count:,} and {epsilon:g}, which cannot be checked, instead."
        )


def _check_events(claim: dict[str, Any], pairs: list[tuple[Event, int]]) -> None:
    booked = [canonical({**to_record(event), "count": count}) for event, count in pairs]  # texts: 1 is not True, nor 1.0
    if sorted(booked) != sorted(map(canonical, claim["events"])):
        raise LedgerError("guarantee.json must list the book's events. Got others instead.")


def _check_figures(
    claim: dict[str, Any], rows: list[Entry], pairs: list[tuple[Event, int]], opinion: Opinion, again: float
) -> None:
    """Refuse figures that promise more than the book gives. Those that promise less are the owner's to state."""
    claim = {**claim, **{name: number(claim[name]) for name in FIGURES}}
    # `again` is never below the true ε, so what passes is at most the slack too low, however coarsely it was priced.
    for name in ("epsilon", "data_independent_epsilon"):
        _refuse_below(claim, name, again, "what the book costs", opinion.slack)
    tested, own = any(isinstance(event, Threshold) for event, _ in pairs), quotable(rows, claim["run"])
    if tested and not claim["adaptive"]:
        raise LedgerError("`adaptive` must be true where a test decides what is answered. Got false instead.")
    # What happened to be spent is no bound where it depends on answers: only the budget is, which the filter held.
    if claim["quotes"] == "cost" and (claim["adaptive"] or not own):
        raise LedgerError(
            "`quotes` must be 'budget' where answers decide what is asked: after a test, a second plan or a second run. "
            "Got 'cost' instead."
        )
    if claim["quotes"] == "budget":
        _refuse_below(claim, "epsilon", claim["budget_epsilon"], "the budget, where that is quoted,")
    looked = any(isinstance(event, NonPrivate) for event, _ in pairs)
    if not looked and again > claim["budget_epsilon"] * (1 + TOLERANCE) + 1e-3:
        raise LedgerError(f"the book must not cost more than its budget, {claim['budget_epsilon']:g}. Got {again:.6g} instead.")
    if claim["data_independent_epsilon"] > claim["epsilon"]:
        raise LedgerError("`data_independent_epsilon` must be at most `epsilon`. Got more instead.")
    if math.isinf(claim["epsilon"]):
        _refuse_below(claim, "mu", math.inf, "infinity, as ε is,")
        _refuse_below(claim, "implied_tpr_at_fpr_0.001", 1.0, "1, as ε is infinite,")
        return
    gaussian = all(_noise_multiplier(event) is not None for event, _ in pairs) and own
    if claim["mu_is_exact"] and not gaussian:
        raise LedgerError(
            "`mu_is_exact` must be false where not every event is Gaussian, and where there was a second plan or run. "
            "Got true instead."
        )
    if claim["epsilon"] > 0:
        _refuse_below(
            claim, "mu", _mu_at_least(claim["epsilon"], claim["delta"]), "that of a Gaussian answer with this ε", _WRITTEN
        )
    fpr, name = 1e-3, "implied_tpr_at_fpr_0.001"
    if claim["mu_is_exact"]:
        _refuse_below(claim, name, float(special.ndtr(claim["mu"] + special.ndtri(fpr))), "what its μ implies", _WRITTEN)
    elif claim["quotes"] == "budget":
        _refuse_below(claim, name, _rate(claim["epsilon"], claim["delta"], fpr), "what its ε implies", _WRITTEN)
    else:
        _refuse_below(claim, name, _best_rate(opinion.price, fpr) * 0.99, "what the book implies")


def _rate(epsilon: float, delta: float, fpr: float) -> float:
    """Bound an attacker's true-positive rate by one (ε, δ), from both of its inequalities."""
    return min(1.0, math.exp(min(epsilon, 700.0)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr))


def _best_rate(price: Price, fpr: float) -> float:
    """Bound an attacker's true-positive rate by many (ε, δ) at once."""
    best = 1.0
    for delta in np.geomspace(0.1, 1e-9, 33).tolist():
        reached = math.exp(min(price(delta), 700.0)) * fpr
        if reached >= 1:
            break  # a smaller δ has a larger ε
        best = min(best, reached + delta)
    return best


def _refuse_below(claim: dict[str, Any], name: str, least: float, what: str, slack: float = TOLERANCE) -> None:
    absolute = min(slack, 1e-3) if name.endswith("epsilon") else 0.0  # near ε = 0 the grid is not small beside it
    if claim[name] < least * (1 - slack) - absolute:
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


def recomputed(pairs: list[tuple[Event, int]]) -> Opinion:
    """Price events with dp-accounting: exactly where all are Gaussian, else by privacy loss distributions.

    Where an event has no distribution, by its Rényi conversion.
    """
    if any(isinstance(event, NonPrivate) for event, _ in pairs):
        return Opinion(lambda delta: math.inf, "none: somebody looked")
    if not pairs:
        return Opinion(lambda delta: 0.0, "nothing was released")
    if all(_noise_multiplier(event) is not None for event, _ in pairs):
        return Opinion(_quiet(_by_gaussian(pairs)), "dp-accounting, exact Gaussian")
    if any(isinstance(event, SmoothRelease) for event, _ in pairs):
        return Opinion(_quiet(_by_renyi(pairs)), "dp-accounting, Rényi", TOLERANCE)
    return Opinion(_quiet(_by_distribution(pairs)), "dp-accounting, privacy loss distributions", TOLERANCE)


def _quiet(price: Price) -> Price:
    """Let dp-accounting's tails overflow to infinity, and logarithms of nothing go to minus infinity: both are meant."""

    def quietly(delta: float) -> float:
        with np.errstate(over="ignore", divide="ignore"):
            return price(delta)

    return quietly


def _noise_multiplier(event: Event) -> float | None:
    """σ over the distance one unit moves the noisy quantity, for events that are one Gaussian answer."""
    match event:
        case Gaussian() | SummedGaussian():
            return event.sigma / event.sensitivity
        case NoisyMax(noise="gaussian"):
            return event.scale / (event.votes * 2**0.5)
        case Threshold():
            return event.sigma / event.votes
    return None


def _by_gaussian(pairs: list[tuple[Event, int]]) -> Price:
    """Price Gaussian answers as the one that they are together. A grid would need 10⁸ steps where ε is 10,000."""
    from dp_accounting import get_epsilon_gaussian

    # dp-accounting's own composition rule: Gaussian answers at noise z₁, z₂ … are one at 1/√(Σ 1/z²).
    square = sum(count / noise**2 for event, count in pairs if (noise := _noise_multiplier(event)) is not None)
    return lambda delta: float(get_epsilon_gaussian(square**-0.5, delta))


def _by_distribution(pairs: list[tuple[Event, int]]) -> Price:
    """Compose loss distributions on the coarsest grid that is fine beside ε; every grid rounds upwards."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    @cache
    def whole(step: float) -> Any:
        made = (_distribution(event, count, pld, step) for event, count in pairs)
        return reduce(lambda one, two: one.compose(two), made)

    rounded = sum(count for event, count in pairs if isinstance(event, SparseVector))  # to the next step above
    answers = sum(count for event, count in pairs if _noise_multiplier(event) is None)  # to both, in the mean step²/8 too high

    def price(delta: float) -> float:
        for step in _GRIDS:
            found = float(whole(step).get_epsilon_for_delta(delta))
            if (1 + rounded + answers * step / 8) * step <= _ROUNDING * found:
                break
        return found

    return price


def _distribution(event: Event, count: int, pld: Any, step: float) -> Any:
    grid = {"value_discretization_interval": step}
    noise = _noise_multiplier(event)
    if noise is not None:  # `count` Gaussians at noise z are one at z/√count
        return pld.from_gaussian_mechanism(noise / count**0.5, **grid)
    match event:
        case Sampled(event=Gaussian() as inner, sampler="poisson"):
            one = pld.from_gaussian_mechanism(inner.sigma / inner.sensitivity, sampling_prob=event.rate, **grid)
        case Sampled(event=Laplace() as inner, sampler="poisson"):
            one = pld.from_laplace_mechanism(inner.scale / inner.sensitivity, sampling_prob=event.rate, **grid)
        case NoisyMax():  # two counts move: two Laplace answers
            one, count = pld.from_laplace_mechanism(event.scale / event.votes, **grid), 2 * count
        case Laplace():
            one = pld.from_laplace_mechanism(event.scale / event.sensitivity, **grid)
        case SparseVector():
            from dp_accounting.pld import common

            pure = common.DifferentialPrivacyParameters(event.epsilon_threshold + event.epsilon_answers, 0.0)
            one = pld.from_privacy_parameters(pure, **grid)
        case Reserved():
            from dp_accounting.pld import common

            _check_reserved(event, pld)
            pair = common.DifferentialPrivacyParameters(event.epsilon, event.delta)
            one = pld.from_privacy_parameters(pair, **grid)
        case Sampled(event=Gaussian() as inner, sampler="fixed"):
            one = _without_replacement(inner.sensitivity / inner.sigma, event.rate, step)
        case _:
            raise LedgerError(f"every event must be one that dp-accounting can price. Got {type(event).__name__} instead.")
    return one.self_compose(count)


@cache
def _check_reserved(event: Reserved, pld: Any) -> None:
    """Refuse a reservation that costs more than the pair it was charged as."""
    step = 1e-4 if event.rounds <= 2000 else 1e-5  # rounding adds up over the rounds
    again = float(_distribution(event.event, event.rounds, pld, step).get_epsilon_for_delta(event.delta))
    if again > event.epsilon * (1 + TOLERANCE) + 1e-3:
        raise LedgerError(f"the rounds reserved must cost at most what was charged, {event.epsilon:g}. Got {again:.6g} instead.")


def _without_replacement(mu: float, rate: float, step: float) -> Any:
    """Dominate a Gaussian answer on a fixed-size sample without replacement, where one unit is replaced.

    Balle, Barthe & Gaboardi 2018, Theorem 9, written out a second time: at a loss of l ≥ 0 the curve is rate·δ(l′) with
    e^l′ = 1 + (e^l − 1)/rate; below, it follows from the same for the pair in the other order.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    far = 1 + int(math.log1p(rate * math.expm1(min(mu * (mu / 2 + 9.4), 500.0))) / step)  # 1e-20 lies beyond 9.3 deviations
    loss = np.arange(0, far + 1) * step
    deeper = np.log1p(np.expm1(loss) / rate)
    up = rate * (special.ndtr(mu / 2 - deeper / mu) - np.exp(np.minimum(deeper + special.log_ndtr(-mu / 2 - deeper / mu), 0.0)))
    up = np.maximum(up, 0.0)
    down = 1 - np.exp(-loss[:0:-1]) * (1 - up[:0:-1])
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -far, far, np.concatenate([down, up]))
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


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
