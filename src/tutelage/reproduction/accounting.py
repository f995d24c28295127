"""The field's published privacy figures, recomputed: as published, at the published settings, and what is true."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting, consensus
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Row:
    """One claim: what was printed, what its own settings give, and what holds."""

    claim: str
    published: str
    as_published: str
    true: str
    remark: str = ""


def table(votes: Path | None = None) -> list[Row]:
    """Recompute every row; those that need the real vote counts only when their directory is given."""
    from_votes = _from_votes(votes) if votes is not None else []  # first: a wrong directory should not cost a wait
    return [*_vector_pate(), _thesis(), *_generative(), *from_votes]


# ── 003 (2020): noisy means of codes ──────────────────────────────────────────────────────────────────────────────────


def _closed_form(mu: float, delta: float) -> float:
    """Rényi DP of a Gaussian with the classic conversion at the best real order: a + 2√(ab)."""
    a, b = mu**2 / 2, math.log(1 / delta)
    return a + 2 * math.sqrt(a * b)


def _vector_pate() -> list[Row]:
    queries, sigma, delta = 62, 0.075, 1e-2

    def mu(diameter: float, teachers: int) -> float:
        return diameter / teachers * math.sqrt(queries) / sigma

    def fewest(epsilon: Callable[[int], float]) -> int:
        return next(k for k in range(2, 1000) if epsilon(k) < 10)

    exact = accounting.mu_epsilon
    return [
        Row(
            "003 (2020): K = 8, N = 62, σ = 0.075, δ = 1e-2",
            "ε = 125.94",
            f"{_closed_form(mu(1, 8), delta):.2f} (Rényi closed form, sensitivity 1/K); exact {exact(mu(1, 8), delta):.2f}",
            f"{exact(mu(2, 8), delta):.2f} exact, {_closed_form(mu(2, 8), delta):.2f} Rényi",
            "record level: one record moves a code by the diameter, 2/K; δ = 1e-2 with 248 patients is no guarantee",
        ),
        Row(
            "003: single-digit ε from K = 37",
            "K ≥ 37",
            f"K ≥ {fewest(lambda k: exact(mu(1, k), delta))} exact (1/K), "
            f"K ≥ {fewest(lambda k: _closed_form(mu(1, k), delta))} Rényi (1/K)",
            f"K ≥ {fewest(lambda k: exact(mu(2, k), delta))}",
            "record level, exact",
        ),
    ]


def _thesis() -> Row:
    teachers, dimension, queries, epsilon, delta = 16, 16, 16384, 2.0, 1e-7
    reach = 2 * math.sqrt(dimension) / teachers * math.sqrt(queries)
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    own = reach / (math.sqrt(2) * root)
    return Row(
        "002 (2019) Table 4.1: K = 16, l = 16, N = 16,384",
        "(2, 1e-7), Dice 0.745",
        f"its formula needs σ = {own:.0f} on values in [-1, 1] "
        f"({accounting.gaussian_sigma(reach, epsilon, delta):.0f} exact): no signal",
        f"ε ≈ {accounting.mu_epsilon(reach / 1.46, delta):,.0f}",
        "the printed quality fits noise of about 1.46 per query, accounted for one query",
    )


# ── 004 and GS-WGAN: sampled gradients ────────────────────────────────────────────────────────────────────────────────


def _sampled(noise: float, steps: int, grid: float = 1e-4) -> float:
    """ε at δ = 1e-5 of Poisson-sampled Gaussian steps at rate 1/1000. A coarser grid rounds up further, and is quicker."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    with np.errstate(over="ignore"):  # dp-accounting's tails overflow to infinity on purpose
        step = pld.from_gaussian_mechanism(noise, sampling_prob=1e-3, value_discretization_interval=grid)
        return float(step.self_compose(steps).get_epsilon_for_delta(1e-5))


def _generative() -> list[Row]:
    # One critic serves the whole batch of a generator step: its B rows move together, √B times as far as one, and the secret
    # draw of that critic amplifies once per step, not once per row.
    return [
        Row(
            "004: GAN, noise 0.07, q = 1/1000, 2,000 steps",
            "ε = 10 (3.2e4 “worst case”)",
            "no accountant gives 10 at these settings",
            f"≈ {_sampled(0.07, 2000, 1e-2):,.0f} already at batch 1",
            "the critic's gradient penalty bounds nothing per sample",
        ),
        Row(
            "004: the same with noise 1.02 and batch 32",
            "ε = 10",
            f"{_sampled(1.02, 2000):.2g} if a step released one row",
            f"≈ {_sampled(1.02 / math.sqrt(32), 2000, 1e-3):,.0f}",
            "a step releases 32 rows of one critic",
        ),
        Row(
            "GS-WGAN: noise 1.07, q = 1/1000, 20,000 steps, batch 32",
            "ε = 10",
            f"{_sampled(1.07, 20000 * 32):.2f} if all 32 rows of a step were drawn and amplified apart",
            f"≈ {_sampled(1.07 / math.sqrt(32), 20000, 1e-3):,.0f}",
            "one critic per step serves all 32 samples",
        ),
        Row("004: PLDK", "membership privacy 50–53.5 %", "", "no guarantee", "starts from real private images; audit it"),
    ]


# ── 001 (2017) and 2018: real votes ───────────────────────────────────────────────────────────────────────────────────

LONG_ORDERS = np.concatenate((np.arange(2, 101, 0.5), np.geomspace(100, 500, 100)))


def _votes(directory: Path, name: str, rows: int) -> Array:
    """Read one of the published vote files."""
    try:
        found = np.load(directory / name, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise DataError(
            f"`votes` must be a directory with {name} (Papernot et al. 2018's vote counts). Got none in {directory} instead."
        ) from None
    if len(found) < rows:
        raise DataError(f"`votes` must hold {rows:,} rows or more in {name}. Got {len(found):,} instead.")
    return found


def _lnmax(counts: Array, gamma: float, delta: float, moments: int = 8) -> float:
    order = np.arange(1, moments + 1)
    total = consensus.lnmax_log_moments(counts, gamma, order).sum(axis=0)
    return float(((total + math.log(1 / delta)) / order).min())


def _plain_lnmax(queries: int, gamma: float, delta: float) -> float:
    order = np.arange(1, 200)
    per_query = np.minimum(2 * gamma**2 * order * (order + 1), 2 * gamma * order)
    return float(((queries * per_query + math.log(1 / delta)) / order).min())


def _from_votes(directory: Path) -> list[Row]:
    mnist, svhn = _votes(directory, "mnist_250_teachers.npy", 1000), _votes(directory, "svhn_250_teachers.npy", 1000)
    chosen = _votes(directory, "mnist_250_teachers_100_indices_used_by_student.npy", 100)
    rows = [
        Row(
            "001 (2017): MNIST, 100 queries",
            "ε = 2.04",
            f"{_lnmax(mnist[chosen], 0.1, 1e-5):.4f} (γ = 0.1; {_lnmax(mnist[chosen], 0.1, 1e-5, 22):.2f} with 22 moments)",
            f"{_lnmax(mnist[chosen], 0.05, 1e-5):.2f} at the γ = 0.05 that labelled",
            f"data-dependent, hence private; data-independent {_plain_lnmax(100, 0.05, 1e-5):.2f}",
        ),
        Row(
            "001: MNIST, 1,000 queries",
            "ε = 8.03",
            f"{_lnmax(mnist[:1000], 0.1, 1e-5):.3f} (γ = 0.1, first 1,000)",
            f"{_lnmax(mnist[:1000], 0.05, 1e-5):.3f} (γ = 0.05)",
            "the query list is unpublished",
        ),
    ]
    for queries, printed in ((500, "5.04"), (1000, "8.19")):
        rows.append(
            Row(
                f"001: SVHN, {queries:,} queries",
                f"ε = {printed}",
                f"{_lnmax(svhn[:queries], 0.1, 1e-6):.2f} (γ = 0.1: Laplace 10)",
                f"{_lnmax(svhn[:queries], 0.05, 1e-6):.2f} (the labels used Laplace 20)",
                "the script accounted for other noise than was added",
            )
        )
    return [*rows, _confident(mnist)]


def _confident(mnist: Array) -> Row:
    """Realise Confident-GNMax many times on the real votes. The simulation's seed moves a table, not privacy noise.

    The paper does not say which questions it asked: these are the first 640 of its file.
    """
    generator = np.random.default_rng(0)
    counts = mnist[:640].astype(np.float64)
    top = counts.max(axis=1)
    tests = consensus.threshold_rdp(top, 200.0, 150.0, LONG_ORDERS).sum(axis=0)
    answers = consensus.gnmax_rdp(counts, 40.0, LONG_ORDERS)
    passes = top + generator.normal(0, 150, (100, len(counts))) >= 200  # (runs, questions)
    epsilons = [float((tests + answers[row].sum(axis=0) + math.log(1e5) / (LONG_ORDERS - 1)).min()) for row in passes]
    answered = passes.sum(axis=1)
    printed, true, spread = _sanitised_confident(counts, passes[:10])
    return Row(
        "2018 Confident-GNMax: MNIST, T 200, σ 150/40, 640 queries",
        "ε = 1.97, 286 answered",
        f"{np.mean(epsilons):.3f} ± {np.std(epsilons):.3f}, {answered.mean():.0f} ± {answered.std():.0f} answered "
        f"(100 realised runs); sanitised by its Theorem 23: {printed:.2f}",
        f"sanitised {true:.2f} (noise sd {spread:.2f})",
        "data-dependent, hence private, until its own release is paid for; Theorem 23, which prices that release, is no upper "
        "bound for α·β above about 1/4, so that β and σ are chosen again under the exact price",
    )


def _sanitised_confident(counts: Array, passes: Array) -> tuple[float, float, float]:
    """Mean sanitised ε over realised runs: as the paper prices the release, and as it really costs, with the noise's sd.

    β and σ are the best for the first run under "price plus two sd", the paper's own criterion; the order stays 14.
    """
    order, betas = 14.0, np.linspace(0.04, 0.48, 12) / 14.0
    top = counts.max(axis=1)
    tests = float(consensus.threshold_rdp(top, 200.0, 150.0, order).sum())
    answers = consensus.gnmax_rdp(counts, 40.0, order)[:, 0]
    local_tests = consensus.threshold_local_sensitivity(top, 200.0, 150.0, order, 250).sum(axis=0)
    local_answers = consensus.gnmax_local_sensitivity(counts, 40.0, order, 250)
    prices = (accounting.published_smooth_release_rdp, accounting.smooth_release_rdp)
    first = local_tests + local_answers[passes[0]].sum(axis=0)
    chosen = [_best_release(price, first, order, betas) for price in prices]
    costs = [float(price(beta, sigma, order)[0]) for price, (beta, sigma) in zip(prices, chosen, strict=True)]
    beta, sigma = chosen[1]
    figures = []
    for passed in passes:
        raw = tests + answers[passed].sum() + math.log(1e5) / (order - 1)
        smooth = consensus.discounted_max(local_tests + local_answers[passed].sum(axis=0), beta)
        figures.append([raw + costs[0], raw + costs[1], smooth * sigma])
    printed, true, spread = np.mean(figures, axis=0)
    return float(printed), float(true), float(spread)


def _best_release(price: Callable[..., Array], local: Array, order: float, betas: Array) -> tuple[float, float]:
    smooth = {float(beta): consensus.discounted_max(local, float(beta)) for beta in betas}
    grid = [(beta, float(sigma)) for beta in smooth for sigma in np.geomspace(1, 50, 40)]
    return min(grid, key=lambda pair: float(price(*pair, order)[0]) + 2 * pair[1] * smooth[pair[0]])
