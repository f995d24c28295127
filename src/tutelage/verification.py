"""ε again, from the book alone, by somebody else's accountant.

Nothing here uses our own accounting: the rows are read, their chain is checked, and Google's dp-accounting prices them.
What it has no event for (a smooth release) is written out a second time here, from the definition.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any, NoReturn, final
from zipfile import BadZipFile

import numpy as np
from scipy import special

from tutelage.data.provenance import SHOWN
from tutelage.guarantee import statement
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
from tutelage.privacy.ledger import Budget, Entry, Ledger, charges, check_chain, read_lines
from tutelage.privacy.units import Adjacency, Unit
from tutelage.runs import RunFolder

#: Loss distributions round upwards to a grid, and a Rényi conversion to its orders: up to this share on top of the exact figure.
TOLERANCE = 5e-3
#: Nothing is rounded where every answer is Gaussian. At ε = 10,000 the figure above would pass a claim that is 50 too low.
EXACT = 1e-6

#: Grids that privacy losses are rounded to, coarse to fine. The last is dp-accounting's own.
_GRIDS = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
_ROUNDING = 1e-4  # of ε: a grid that costs no more is fine enough. Far below the tolerance, since the estimate is a rough one

_HASH = re.compile(r"[0-9a-f]{64}")
_ALIGNMENT = re.compile(r"alignment-[0-9a-f]{12}\.npz")
_FIELDS = ("epsilon", "data_independent_epsilon", "budget_epsilon", "delta", "mu", "implied_tpr_at_fpr_0.001")
_OPENING = {"budget_epsilon": "epsilon"} | {name: name for name in ("delta", "unit", "unit_teachers", "adjacency")}
_OTHERS = (*_OPENING, "adaptive", "mu_is_exact", "events", "ledger_head")

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
    folder = (run if isinstance(run, RunFolder) else RunFolder(run)).existing()
    claim = _claim(folder)
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
    _check_order(rows)
    pairs = _tallied(rows)
    _check_events(claim, pairs)
    delta = claim["delta"]
    try:
        opinion = recomputed(pairs)
        again = opinion.price(delta)
        _check_figures(claim, pairs, opinion, again)
    except (ArithmeticError, ValueError):  # a noise or a δ that no mechanism has
        raise LedgerError("the book's events and δ must be ones that dp-accounting can price. Got others instead.") from None
    _check_words(claim, rows, folder)
    events = sum(count for _, count in pairs)
    return Verdict(claim["epsilon"], again, delta, len(rows), events, rows[-1].hash, opinion.accountant, folder.holds_book)


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


def _check_order(rows: list[Entry]) -> None:
    """Refuse rows that no ledger writes, and more answers than had been charged for when they were let out."""
    charged = released = 0
    for row in rows[1:]:
        if row.kind not in ("charge", "release", "note"):
            raise LedgerError(f"the book's rows must be charges, releases and notes. Got another at row {row.seq} instead.")
        count = row.body.get("count", 0) if row.kind != "note" else 0
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise LedgerError(f"a release must hold a count ≥ 0. Got another at row {row.seq} instead.")
        charged, released = charged + count * (row.kind == "charge"), released + count * (row.kind == "release")
        if released > charged:
            raise LedgerError(
                f"every answer must be charged for before it is let out. Got more answers at row {row.seq} instead."
            )


def _check_words(claim: dict[str, Any], rows: list[Entry], folder: RunFolder) -> None:
    """Hold what guarantee.json says in words to its figures and to the book."""
    if not isinstance(claim["adaptive"], bool) or not isinstance(claim.get("excepted"), list):
        raise LedgerError("`adaptive` and `excepted` must be a truth value and a list. Got others instead.")
    told = rows[0].body
    unit = Unit(told["unit"], told["unit_teachers"])
    budget = Budget(told["epsilon"], told["delta"], unit, adjacency=Adjacency(told["adjacency"]))
    if claim.get("statement") != statement(claim["epsilon"], budget, bool(claim["excepted"])):
        raise LedgerError("`statement` must say what the figures say. Got another sentence instead.")
    _check_data(claim.get("data"), folder)
    _check_warnings(claim.get("warnings"), rows)
    if (claim.get("recipe_sha256") or "") != told.get("purpose", ""):
        raise LedgerError("`recipe_sha256` must be the book's purpose. Got another instead.")


def _check_warnings(said: Any, rows: list[Entry]) -> None:
    """Refuse warnings without what the book's notes declare public. Both stand in the release: the message may quote them."""
    if not isinstance(said, list):
        raise LedgerError("`warnings` must be a list. Got another value instead.")
    noted = [row.body["declared"] for row in rows if row.kind == "note" and "declared" in row.body]
    missing = [one for one in noted if one not in said]
    if missing:
        raise LedgerError(f"`warnings` must hold all that the book's notes declare. Got a list without {missing[0]!r} instead.")


def _check_data(data: Any, folder: RunFolder) -> None:
    """Refuse a hash of anything but public parts: one of private records is a function of them, without noise."""
    if data is None:  # a run from Python, or one older than this field
        return
    known = isinstance(data, dict) and set(data) - {"alignment"} == {"set", "split", "published", "hashes"}
    hashes = data.get("hashes") if known else None
    if not isinstance(hashes, dict) or not set(hashes) <= set(SHOWN):
        raise LedgerError(f"`data` must name a set, its split and hashes of {', '.join(SHOWN)} alone. Got others instead.")
    plain = isinstance(data["published"], bool) and all(isinstance(data[name], (str, type(None))) for name in ("set", "split"))
    if not plain or not all(isinstance(one, str) and _HASH.fullmatch(one) for one in hashes.values()):
        raise LedgerError("`data` must hold names, a truth value and hashes of 64 digits. Got others instead.")
    named = "alignment" in data and isinstance(data["alignment"], str) and bool(_ALIGNMENT.fullmatch(data["alignment"]))
    if not named == ("moved" in hashes) == ("alignment" in data):
        raise LedgerError(
            "`data.alignment` must name the file that says where public images went, beside the hash `moved` of where that is. "
            "Got one without the other, or another name, instead."
        )
    if named and (file := folder.release / data["alignment"]).exists() and _moved(file) != hashes["moved"]:
        raise LedgerError(f"`{file.name}` must move the public pool to where `data.hashes.moved` says. Got another file instead.")
    if "split" in hashes and data.get("published") is not True:
        raise LedgerError("`data` must hash the split of a published set alone. Got that of another instead.")


def _moved(file: Path) -> str:
    """Read which pool a file moves the images to; nothing where it cannot be read."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return bytes(arrays["moved"]).hex()
    except (OSError, ValueError, KeyError, BadZipFile):
        return ""


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


def _check_figures(claim: dict[str, Any], pairs: list[tuple[Event, int]], opinion: Opinion, again: float) -> None:
    """Refuse figures that promise more than the book gives. Those that promise less are the owner's to state."""
    # `again` is never below the true ε, so what passes is at most the slack too low, however coarsely it was priced.
    for name in ("epsilon", "data_independent_epsilon"):
        _refuse_below(claim, name, again, "what the book costs", opinion.slack)
    # A test decided how often was answered: what happened to be spent is no bound, only the budget that the filter held.
    adaptive = any(isinstance(event, Threshold) for event, _ in pairs)
    if adaptive:
        _refuse_below(claim, "epsilon", claim["budget_epsilon"], "the budget, where a test decides what is answered,")
    looked = any(isinstance(event, NonPrivate) for event, _ in pairs)
    if not looked and again > claim["budget_epsilon"] * (1 + TOLERANCE) + 1e-3:
        raise LedgerError(f"the book must not cost more than its budget, {claim['budget_epsilon']:g}. Got {again:.6g} instead.")
    if math.isinf(claim["epsilon"]):
        _refuse_below(claim, "mu", math.inf, "infinity, as ε is,")
        _refuse_below(claim, "implied_tpr_at_fpr_0.001", 1.0, "1, as ε is infinite,")
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
        _refuse_below(claim, name, min(1.0, math.exp(min(claim["epsilon"], 700.0)) * fpr) * 0.99, "what its ε implies")
    else:
        _refuse_below(claim, name, _best_rate(opinion.price, fpr) * 0.99, "what the book implies")


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
        case Gaussian():
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
        case _:
            raise LedgerError(f"every event must be one that dp-accounting can price. Got {type(event).__name__} instead.")
    return one.self_compose(count)


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
