"""The choice of a plan for votes: noise, test and number of questions, made on public or simulated votes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.planning import Aggregation, Sanitise, room_beside
from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Event, Threshold
from tutelage.privacy.ledger import Budget
from tutelage.rounding import rounded_up
from tutelage.simulation import PublicVotes, right_chance
from tutelage.worth import Worth, parts, situations

Array = npt.NDArray[Any]

PLAIN, INTERACTIVE = ("gnmax", "confident-gnmax"), "interactive-gnmax"
PARTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the questions that could be asked
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(2, 20))  # shares of the teachers
RATIOS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # the test's noise over the answers'
EXCESS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0)  # noise over the least that fits the budget: teachers may bear more
SLACK = 0.01  # of the best usefulness: what is given up for a cheaper or a simpler plan
ORDERS = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0, 20.0, 28.0)  # of a sanitised figure
BETAS, NOISES = np.geomspace(0.002, 0.4, 18), np.geomspace(2.0, 200.0, 18)
RELEASE_SHARE = 0.1  # of the budget's Rényi room, at most, for the sanitised figure's own release
_ROWS = 250  # votes that a smooth sensitivity is estimated on
_ITERATIONS = 30


@final
@dataclass(frozen=True)
class Choice:
    """Hold a plan and what it is worth on the votes it was chosen on; every figure is an expectation."""

    how: Aggregation
    queries: int
    teachers: int
    classes: int
    right: float  # answers
    wrong: float
    penalty: float
    epsilon: float  # what the plan costs whatever the votes: at most the budget
    source: str
    known: float = 0.0  # of the right answers: those that a student had right already
    own: float = 0.0  # a student's own labels, where teachers have nothing to add
    mistaken: float = 0.0  # of its own labels: those that are wrong
    dependent_epsilon: float | None = None  # of these votes, raw
    sanitised_epsilon: float | None = None  # of these votes, with its own release
    sanitised_deviation: float | None = None  # standard deviation of that figure's noise

    @property
    def utility(self) -> float:
        """What the plan is worth: right answers that are news, less the penalty for wrong labels."""
        return self.right - self.known - self.penalty * (self.wrong + self.mistaken)

    def events(self, budget: Budget) -> list[tuple[Event, int]]:
        """List what the plan will have been."""
        return self.how.planned(budget, self.queries, self.teachers, OneHot(self.classes))

    def figures(self) -> dict[str, Any]:
        """Name the figures of a table's row; None where a plan has no such figure."""
        how, tested = self.how, self.how.adaptive
        return {
            "method": how.method,
            "queries": self.queries,
            "sigma": how.sigma,
            "threshold": how.threshold if tested else None,
            "test_ratio": how.test_ratio if tested else None,
            "answers": how.answers,
            "right": round(self.right, 1),
            "known": round(self.known, 1) if how.interactive else None,
            "wrong": round(self.wrong, 1),
            "own": round(self.own, 1) if how.interactive else None,
            "mistaken": round(self.mistaken, 1) if how.interactive else None,
            "utility": round(self.utility, 1),
            "epsilon": float(rounded_up(self.epsilon, 6)),
            "dependent_epsilon": None if self.dependent_epsilon is None else round(self.dependent_epsilon, 3),
            "sanitised_epsilon": None if self.sanitised_epsilon is None else round(self.sanitised_epsilon, 3),
            "sanitised_deviation": None if self.sanitised_deviation is None else round(self.sanitised_deviation, 3),
        }

    def toml(self, *, questions: str = "first") -> str:
        """Write the plan as a recipe has it; how that chooses `questions` is no part of the plan."""
        how = self.how
        lines = [f"# tuned_on = {_quoted(self.source)}", "[aggregation]", f'method = "{how.method}"', f"queries = {self.queries}"]
        lines.append(f"sigma = {float(how.sigma or 0.0)!r}")
        if how.adaptive:
            lines += [f"threshold = {how.threshold!r}", f"test_ratio = {how.test_ratio!r}", f"answers = {how.answers}"]
        if how.interactive:
            lines.append(f"sure = {how.sure!r}")
        lines += [] if how.rounds is None else [f"rounds = {how.rounds}"]
        lines += [] if questions == "first" else [f'questions = "{questions}"']
        if how.sanitise is not None:
            names = ("order", "beta", "sigma")
            lines += ["", "[aggregation.sanitise]", *(f"{name} = {getattr(how.sanitise, name)!r}" for name in names)]
        return "\n".join(lines) + "\n"


def best(
    votes: PublicVotes,
    budget: Budget,
    *,
    queries: int,
    penalty: float = 1.0,
    flip_rate: float | None = None,
    methods: Sequence[str] = PLAIN,
    rounds: int | None = None,
    sure: float = Aggregation.sure,
    keep: int = 5,
) -> list[Choice]:
    """Give the plan to take, and after it others with their worth, for at most `queries` questions.

    What counts is the expected number of right answers minus `penalty` times the wrong ones; plans of which more than
    `flip_rate` of the answers would be wrong are left out. A plan with a test is taken if it is better than any without by
    more than a hundredth, and of plans within a hundredth of the best, the cheapest. All of them fit the budget whatever the
    votes will be: that price does not depend on them.

    For `methods` ("interactive-gnmax",) the votes must come with a student, and a right answer counts if it had guessed wrong.
    `rounds` and `sure` are those of the plans. Neither is chosen: a right label of the student's own is no news, so that by this
    measure it had better never be sure.
    """
    _check(queries, penalty, flip_rate, methods, keep)
    sigmas = _sigmas(budget, queries)
    right = np.stack([right_chance(votes, float(sigma)) for sigma in sigmas])  # (sigmas, questions)
    hows = [Aggregation(method, rounds=rounds, sure=sure if method == INTERACTIVE else Aggregation.sure) for method in methods]
    worths = [Worth(votes, how, sigmas, right) for how in hows]
    found = [choice for worth in worths for choice in _searched(worth, budget, queries, penalty, flip_rate)]
    if not found:
        raise RecipeError("`budget` must hold a plan on the grid with these limits. Got one that holds none instead.")
    top = {method: max((c.utility for c in found if c.how.method == method), default=-math.inf) for method in methods}
    plain = max((utility for method, utility in top.items() if method == "gnmax"), default=-math.inf)
    tested = max((utility for method, utility in top.items() if method != "gnmax"), default=-math.inf)
    method = "gnmax" if plain >= tested - SLACK * abs(tested) else next(name for name in methods if name != "gnmax")
    near = [c for c in found if c.how.method == method and c.utility >= top[method] - SLACK * abs(top[method])]
    taken = min(near, key=lambda choice: (choice.epsilon, -choice.utility))
    return [_fitting(choice, budget) for choice in [taken, *_others(found, taken)][:keep]]


def _check(queries: int, penalty: float, flip_rate: float | None, methods: Sequence[str], keep: int) -> None:
    for name, value in (("queries", queries), ("keep", keep)):
        if not (isinstance(value, int) and value >= 1):
            raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
    if not (isinstance(penalty, (int, float)) and 0 <= penalty < math.inf):
        raise RecipeError(f"`penalty` must be a finite number ≥ 0. Got {penalty!r} instead.")
    if flip_rate is not None:
        accounting.probability(flip_rate=flip_rate)
    # What a student knows is worth nothing to one method and everything to the others: their worths do not compare.
    if list(methods) != [INTERACTIVE] and (not methods or set(methods) - set(PLAIN)):
        raise RecipeError(
            f"`methods` must be among 'gnmax' and 'confident-gnmax', or 'interactive-gnmax' alone. Got {list(methods)!r} instead."
        )


def _fitting(choice: Choice, budget: Budget) -> Choice:
    """Let the book's own filter judge a plan: the search has a formula of its own for prices, and must not be trusted with it."""
    if not accounting.admits(choice.events(budget), budget.epsilon, budget.delta):
        raise RecipeError(f"every plan must fit ε = {budget.epsilon:g}. Got {choice.how} for {choice.queries} questions instead.")
    return choice


def _others(found: list[Choice], taken: Choice) -> list[Choice]:
    """Give the most useful plan of every method and number of questions, the most useful first."""
    best_of: dict[tuple[str, int], Choice] = {}
    for choice in sorted(found, key=lambda choice: (-choice.utility, choice.epsilon)):
        best_of.setdefault((choice.how.method, choice.queries), choice)
    return [choice for choice in best_of.values() if choice is not taken]


# ── the search ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sigmas(budget: Budget, queries: int) -> Array:
    """Give noises from the least to the most that a plan on the grid can have."""
    fewest = max(1, round(min(PARTS) * queries))
    low, high = _least_sigma(budget, fewest, 1.0, math.inf), _least_sigma(budget, queries, queries, min(RATIOS))
    return np.geomspace(float(low) * 0.99, float(high) * max(EXCESS) * 1.01, 40)


def _searched(worth: Worth, budget: Budget, queries: int, penalty: float, flip_rate: float | None) -> list[Choice]:
    """Judge every plan of one method on the grid."""
    votes, tested = worth.votes, worth.how.adaptive
    asked = np.unique(np.maximum(1, np.rint(np.asarray(PARTS) * queries)))
    axes = (asked, EXCESS, THRESHOLDS, RATIOS) if tested else (asked, EXCESS, (1.0,), (math.inf,))  # no test costs nothing
    count, excess, threshold, ratio = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    answers = count
    if tested:  # a larger number of answers needs more noise, and noise decides how many pass: go round until both hold
        for _ in range(_ITERATIONS):
            noise = ratio * excess * _least_sigma(budget, count, answers, ratio)
            answers = (answers + _enough(count, worth.passed(count, threshold, noise))) / 2
        answers = np.clip(np.ceil(answers), 1, count)
    sigma = _rounded_up(excess * _least_sigma(budget, count, answers, ratio))
    labels = worth.labels(count, sigma, threshold, ratio * sigma)
    labels = labels.held(np.minimum(1.0, answers / np.maximum(labels.answers, 1e-300)))
    utility = labels.worth(penalty)
    price = accounting.mu_epsilon(_mu(budget, count, answers, sigma, ratio), budget.delta)
    allowed = np.ones(len(count), dtype=bool) if flip_rate is None else labels.wrong <= flip_rate * labels.answers
    chosen = np.flatnonzero(allowed)
    if tested:  # thousands of plans differ in little: the best of each size and price are enough
        order = chosen[np.lexsort((price[chosen], -utility[chosen]))]
        _, first = np.unique(np.stack([count[order], excess[order]]), axis=1, return_index=True)
        chosen = order[np.unique(np.concatenate([first, np.arange(min(20, len(order)))]))]
    names = [{"threshold": float(threshold[i]), "test_ratio": float(ratio[i]), "answers": int(answers[i])} for i in chosen]
    return [
        Choice(
            replace(worth.how, sigma=float(sigma[i]), **(extra if tested else {})),
            int(count[i]),
            votes.teachers,
            votes.classes,
            float(labels.right[i]),
            float(labels.wrong[i]),
            float(penalty),
            float(price[i]),
            votes.source,
            known=float(labels.known[i]),
            own=float(labels.own[i]),
            mistaken=float(labels.mistaken[i]),
        )
        for i, extra in zip(chosen, names, strict=True)
    ]


def _mu(budget: Budget, tests: Any, answers: Any, sigma: Any, ratio: Any) -> Array:
    """Price a plan as one Gaussian answer: every test moves by 1 and every answer by √2, each m times for m teachers."""
    return np.asarray(budget.unit.teachers * np.sqrt(tests / np.square(ratio) + 2 * answers) / sigma)


def _least_sigma(budget: Budget, tests: Any, answers: Any, ratio: Any) -> Array:
    """Give the noise at which a plan costs the budget."""
    return _mu(budget, tests, answers, 1.0, ratio) / float(accounting.epsilon_mu(budget.epsilon, budget.delta))


def _enough(count: Array, share: Array) -> Array:
    """Plan for one standard deviation more answers than are expected, and no more than there are questions."""
    return np.clip(count * share + np.sqrt(count * share * np.maximum(1 - share, 0.0)), 1.0, count)


def _rounded_up(sigma: Array) -> Array:
    """Keep four figures, upwards: a plan that is read off a screen must fit the budget too."""
    unit = 10.0 ** (np.floor(np.log10(sigma)) - 3)
    return np.asarray([float(f"{value:.6g}") for value in np.ceil(sigma / unit - 1e-10) * unit])


# ── the sanitised figure ──────────────────────────────────────────────────────────────────────────────────────────────


def sanitised(votes: PublicVotes, choice: Choice, budget: Budget) -> Choice:
    """Add to a plan the release of its data-dependent ε with the least expected figure plus standard deviation of its noise.

    Order, β and σ are chosen on these votes, and the answers' noise is raised so that the release fits beside them: fewer
    answers will be right. Papernot et al. 2018 choose the three on the private votes; that would be another release.
    """
    rows, how = votes.first(_ROWS), choice.how
    for turn in range(4):  # the release takes room, answers get noisier, and the best release for noisier answers is another
        assert how.sigma is not None
        release = _least_figure(rows, replace(choice, how=how), budget)
        tests, answers = (choice.queries, how.answers or choice.queries) if how.adaptive else (0, choice.queries)
        least = float(_mu(budget, tests, answers, 1.0, how.test_ratio)) / room_beside(release, budget)
        noise = float(_rounded_up(np.asarray([max(least, choice.how.sigma or 0.0)]))[0])
        how = replace(how, sigma=noise, sanitise=release)
        if turn and all(consensus.gnmax_smooth_conditions(noise, choice.classes, release.order)):
            break
    assert how.sigma is not None
    worth = Worth(votes, how, [how.sigma], right_chance(votes, how.sigma)[None])
    plan = (choice.queries, how.sigma, how.threshold, how.sigma * how.test_ratio)
    labels = worth.labels(*(np.asarray([value]) for value in plan))
    names = ("right", "wrong", "known", "own", "mistaken")
    final = _fitting(replace(choice, how=how, **{name: float(getattr(labels, name)[0]) for name in names}), budget)
    assert how.sanitise is not None
    figure, deviation = _figure(rows, final, budget, how.sanitise)
    price = accounting.cost(final.events(budget), budget.delta).epsilon
    raw = dependent_epsilon(votes, final, budget)
    return replace(final, epsilon=price, dependent_epsilon=raw, sanitised_epsilon=figure, sanitised_deviation=deviation)


def dependent_epsilon(votes: PublicVotes, choice: Choice, budget: Budget) -> float:
    """Give the data-dependent ε that the plan would have on votes like these."""
    rdp = _expected_rdp(votes, choice, accounting.ORDERS)
    if choice.how.sanitise is not None:
        rdp = rdp + accounting.event_rdp(choice.how.sanitise.release().event(), accounting.ORDERS)
    return accounting.rdp_to_epsilon(rdp, accounting.ORDERS, budget.delta)[0]


def _passing(votes: PublicVotes, choice: Choice) -> Array:
    """Give the chance (questions,) that each is answered, in whichever round it is asked."""
    how = choice.how
    if not how.adaptive:
        return np.ones(len(votes))
    assert how.sigma is not None
    chances = [one.passing(how.threshold * choice.teachers, how.sigma * how.test_ratio) for one in situations(votes, how)]
    return np.asarray((parts(how, choice.queries) * chances).sum(axis=0))


def _expected_rdp(votes: PublicVotes, choice: Choice, orders: Any) -> Array:
    """Price as many questions as planned, each like these on average: (orders,)."""
    how, scale = choice.how, choice.queries / len(votes)
    assert how.sigma is not None
    total = _passing(votes, choice) @ consensus.gnmax_rdp(votes.counts, how.sigma, orders)
    noise = how.sigma * how.test_ratio
    if how.interactive:  # what is beyond a student is not a whole number of votes: a run prices these tests as any others
        total = total + len(votes) * accounting.event_rdp(Threshold(noise), orders)
    elif how.adaptive:
        top = votes.counts.max(axis=1)
        total = total + consensus.threshold_rdp(top, how.threshold * choice.teachers, noise, orders).sum(axis=0)
    return np.asarray(scale * total)


def _local(votes: PublicVotes, choice: Choice, order: float) -> Array:
    """Give the expected local sensitivity of that price at every distance: (teachers,)."""
    how, scale = choice.how, choice.queries / len(votes)
    assert how.sigma is not None
    total = _passing(votes, choice) @ consensus.gnmax_local_sensitivity(votes.counts, how.sigma, order, choice.teachers)
    if how.adaptive and not how.interactive:
        top, noise = votes.counts.max(axis=1), how.sigma * how.test_ratio
        tests = consensus.threshold_local_sensitivity(top, how.threshold * choice.teachers, noise, order, choice.teachers)
        total = total + tests.sum(axis=0)
    return np.asarray(scale * total)


def _figure(votes: PublicVotes, choice: Choice, budget: Budget, release: Sanitise) -> tuple[float, float]:
    """Give the sanitised ε to expect, and the standard deviation of its noise."""
    rdp = _expected_rdp(votes, choice, release.order)
    rdp = rdp + accounting.smooth_release_rdp(release.beta, release.sigma, release.order)
    smooth = consensus.discounted_max(_local(votes, choice, release.order), release.beta)
    return accounting.rdp_to_epsilon(rdp, [release.order], budget.delta)[0], release.sigma * smooth


def _least_figure(votes: PublicVotes, choice: Choice, budget: Budget) -> Sanitise:
    """Find the release whose expected figure plus standard deviation is least, for a small part of the budget."""
    assert choice.how.sigma is not None
    at = accounting.filter_order(budget.epsilon, budget.delta)
    room = RELEASE_SHARE * (budget.epsilon - math.log(1 / budget.delta) / (at - 1))
    pairs = [
        (float(beta), float(noise))
        for beta in BETAS
        for noise in NOISES
        if accounting.smooth_release_rdp(float(beta), float(noise), at)[0] <= room
    ]
    least, found = math.inf, None
    for order in ORDERS:
        if not all(consensus.gnmax_smooth_conditions(choice.how.sigma, choice.classes, order)):
            continue
        price, local = _expected_rdp(votes, choice, order), _local(votes, choice, order)
        smooth = {beta: consensus.discounted_max(local, beta) for beta, _ in pairs}
        for beta, noise in pairs:
            own = accounting.smooth_release_rdp(beta, noise, order)
            if not math.isfinite(own[0]):
                continue
            figure = accounting.rdp_to_epsilon(price + own, [order], budget.delta)[0] + noise * smooth[beta]
            if figure < least:
                least, found = figure, Sanitise(order, float(f"{beta:.2g}"), float(f"{noise:.3g}"))
    if found is None:
        raise RecipeError("`budget` must leave room for a sanitised figure at an order that C5 and C6 allow. Got none instead.")
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
