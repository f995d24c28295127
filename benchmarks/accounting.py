"""Time the data-dependent accountants against a straightforward per-query loop, and the exact Gaussian against dp-accounting.

The loops do what the published research scripts do: one query at a time, `scipy.stats` for its tail, the bound over all orders
of that query (GNMax); q again for every query and moment (LNMax); one vote after the other (smooth sensitivity). Outputs must
agree before a ratio is written. Times are processor seconds, the best of several; the smooth-sensitivity loop runs once.

    python benchmarks/accounting.py [--votes DIR]     real votes (mnist_250_teachers.npy) instead of simulated ones
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

import result
from tutelage.privacy import accounting, consensus
from tutelage.privacy.events import Gaussian

TEACHERS, CLASSES, ROWS, SMOOTH_ROWS = 250, 10, 9_000, 1_000
SIGMA, GAMMA, ORDER, BETA = 40.0, 0.05, 20.0, 0.02
ORDERS = np.linspace(1.5, 100, 100)
MOMENTS = np.arange(1, 9)
AIMS = {"gnmax_rdp": 90, "smooth_sensitivity": 60, "lnmax_moments": 200}


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def simulated_votes(seed: int = 20180224) -> np.ndarray:
    """Draw votes with the quantiles of the real MNIST ones: most queries near agreement, a tail of real disagreement."""
    generator = np.random.default_rng(seed)
    easy = generator.random(ROWS) < 0.65
    agree = np.where(easy, generator.beta(150, 38, ROWS), generator.beta(6, 4.5, ROWS))
    rest = generator.standard_gamma(np.where(easy, 3.0, 0.5)[:, None], (ROWS, CLASSES - 1))
    rest *= ((1 - agree) / rest.sum(axis=1))[:, None]
    votes = generator.multinomial(TEACHERS, np.column_stack([agree, rest]))
    return generator.permuted(votes, axis=1).astype(np.float64)


def real_votes(folder: Path) -> np.ndarray:
    return np.load(folder / "mnist_250_teachers.npy", allow_pickle=False)[:ROWS].astype(np.float64)


# ── the loops ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def log1mexp(x: float) -> float:
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def loop_log_q(counts: np.ndarray, sigma: float) -> float:
    winner = int(np.argmax(counts))
    gaps = (counts[winner] - counts)[np.arange(len(counts)) != winner]
    return min(float(logsumexp(stats.norm.logsf(gaps, loc=0, scale=math.sqrt(2) * sigma))), math.log(1 - 1 / len(counts)))


def loop_rdp(log_q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Theorem 6 of one query at every order."""
    variance = sigma**2
    plain = orders / variance
    mu2 = sigma * math.sqrt(-log_q)
    mu1 = mu2 + 1
    if mu2 <= 1:
        return plain
    eps1, eps2 = mu1 / variance, mu2 / variance
    limit = (mu2 - 1) * eps2 - mu2 * (math.log(1 + 1 / (mu1 - 1)) + math.log(1 + 1 / (mu2 - 1)))
    if not (log_q <= limit and -log_q > eps2):
        return plain
    log_rest = log1mexp(log_q)
    log_a = log_rest - log1mexp((log_q + eps2) * (1 - 1 / mu2))
    log_b = eps1 - log_q / (mu1 - 1)
    mixture = np.logaddexp(log_rest + (orders - 1) * log_a, log_q + (orders - 1) * log_b) / (orders - 1)
    return np.where(mu1 > orders, np.minimum(np.maximum(mixture, 0), plain), plain)


def loop_gnmax(votes: np.ndarray) -> np.ndarray:
    return np.array([loop_rdp(loop_log_q(row, SIGMA), SIGMA, ORDERS) for row in votes])


def loop_q(counts: np.ndarray, gamma: float) -> float:
    winner = int(np.argmax(counts))
    q = 0.0
    for k, count in enumerate(counts):
        if k != winner:
            gap = gamma * (counts[winner] - count)
            q += (gap + 2) / (4 * math.exp(gap))
    return min(q, 1 - 1 / len(counts))


def loop_log_moment(counts: np.ndarray, gamma: float, moment: float) -> float:
    q = loop_q(counts, gamma)
    plain = min(2 * gamma**2 * moment * (moment + 1), 2 * gamma * moment)
    if q > 1 / (math.exp(2 * gamma) + 1):
        return plain
    kept = (1 - q) * ((1 - q) / (1 - math.exp(2 * gamma) * q)) ** moment
    return min(plain, math.log(kept + q * math.exp(2 * gamma * moment)))


def loop_lnmax(votes: np.ndarray) -> np.ndarray:
    return np.array([[loop_log_moment(row, GAMMA, moment) for moment in MOMENTS] for row in votes])


class SmoothLoop:
    """Algorithms 3 to 5 of the 2018 appendix for one query after the other. What no query changes is computed once."""

    def __init__(self, sigma: float, order: float, classes: int, teachers: int) -> None:
        self.sigma, self.order, self.classes, self.teachers = sigma, order, classes, teachers
        self.log_q0 = consensus.gnmax_log_q0(sigma, order)
        self.log_q1 = self.neighbour(self.log_q0, -1)
        self.plateau = self.local(self.log_q1)

    def price(self, log_q: float) -> float:
        if log_q >= self.log_q0 * (1 + 1e-10):
            return self.order / self.sigma**2
        return float(loop_rdp(log_q, self.sigma, np.array([self.order]))[0])

    def neighbour(self, log_q: float, direction: int) -> float:
        quantile = stats.norm.isf(math.exp(log_q) / (self.classes - 1))
        return min(0.0, math.log(self.classes - 1) + float(stats.norm.logsf(quantile - direction * math.sqrt(2) / self.sigma)))

    def local(self, log_q: float) -> float:
        if self.log_q1 <= log_q <= self.log_q0:
            log_q = self.log_q1
        here = self.price(log_q)
        return max(self.price(self.neighbour(log_q, 1)) - here, here - self.price(self.neighbour(log_q, -1)))

    def query(self, counts: np.ndarray) -> np.ndarray:
        """Walk towards the plateau, one vote at a time."""
        found = np.full(self.teachers, self.plateau)
        votes = np.sort(counts)[::-1].copy()
        log_q = loop_log_q(votes, self.sigma)
        if self.log_q1 <= log_q <= self.log_q0:
            return found
        found[0] = self.local(log_q)
        right = log_q < self.log_q1
        for distance in range(1, self.teachers):
            runner = 1 + int(np.argmax(votes[1:]))
            if not right and votes[runner] == 0:
                break
            votes[0] += -1 if right else 1
            votes[1 if right else runner] += 1 if right else -1
            log_q = loop_log_q(votes, self.sigma)
            found[distance] = self.local(log_q)
            if (right and log_q >= self.log_q1) or (not right and log_q <= self.log_q0):
                break
        return found


def loop_smooth(votes: np.ndarray) -> np.ndarray:
    loop = SmoothLoop(SIGMA, ORDER, votes.shape[1], TEACHERS)
    total = np.sum([loop.query(row) for row in votes], axis=0)
    return np.array([max(total * np.exp(-BETA * np.arange(TEACHERS)))])


# ── timing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    best, value = math.inf, None
    for _ in range(repeats):
        start = time.process_time()
        value = call()
        best = min(best, time.process_time() - start)
    return best, value


def against_loop(name: str, ours: Callable[[], Any], loop: Callable[[], Any], repeats: int) -> dict[str, Any]:
    ours()  # once for the caches
    fast, value = timed(ours, 15)
    slow, expected = timed(loop, repeats)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-14)
    figures = {"ours_seconds": round(fast, 5), "loop_seconds": round(slow, 3), "ratio": round(slow / fast, 1), "aim": AIMS[name]}
    print(f"{name:22} ours {1e3 * fast:8.1f} ms   loop {slow:8.2f} s   {figures['ratio']:8.1f}x   (aim {AIMS[name]}x)")
    return figures


def against_dp_accounting() -> dict[str, Any]:
    """Do the same work twice: a thousand exact ε, and one book of a thousand different Gaussian answers."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    sigmas = np.geomspace(0.5, 50, 1000)
    fast, ours = timed(lambda: accounting.gaussian_epsilon(1.0, sigmas, 1e-5), 5)
    slow, theirs = timed(lambda: [dp_accounting.get_epsilon_gaussian(float(sigma), 1e-5) for sigma in sigmas], 1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    exact = {"ours_seconds": round(fast, 5), "dp_accounting_seconds": round(slow, 3), "ratio": round(slow / fast, 1)}
    print(f"{'1,000 exact ε':22} ours {1e3 * fast:8.1f} ms   dp-accounting {slow:8.2f} s   {exact['ratio']:8.1f}x")

    noise = np.linspace(30, 60, 1000).tolist()

    def book() -> float:
        accountant = RdpAccountant()
        for sigma in noise:
            accountant.compose(dp_accounting.GaussianDpEvent(sigma))
        return float(accountant.get_epsilon(1e-5))

    fast, priced = timed(lambda: accounting.cost([(Gaussian(1.0, sigma), 1) for sigma in noise], 1e-5).epsilon, 5)
    slow, renyi = timed(book, 3)
    assert priced < renyi
    composed = {
        "ours_seconds": round(fast, 5),
        "dp_accounting_seconds": round(slow, 4),
        "ratio": round(slow / fast, 1),
        "ours_epsilon_exact": priced,
        "dp_accounting_epsilon_renyi": renyi,
    }
    print(
        f"{'1,000 answers, one ε':22} ours {1e3 * fast:8.1f} ms   dp-accounting {slow:8.3f} s   {composed['ratio']:8.1f}x"
        f"   ε {priced:.4f} exact, {renyi:.4f} Rényi"
    )
    return {"exact_epsilon_of_1000_sigmas": exact, "book_of_1000_gaussians": composed}


def against_autodp() -> dict[str, Any] | str:
    """The same thousand exact ε, and GNMax where it still runs. It is no dependency: `pip install --no-deps autodp`."""
    if not importlib.util.find_spec("autodp"):
        return "not installed"
    from autodp import dp_bank, rdp_bank

    sigmas = np.geomspace(0.5, 50, 1000)
    fast, ours = timed(lambda: accounting.gaussian_epsilon(1.0, sigmas, 1e-5), 5)
    slow, theirs = timed(lambda: [dp_bank.get_eps_ana_gaussian(float(sigma), 1e-5) for sigma in sigmas], 1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    exact = {"ours_seconds": round(fast, 5), "autodp_seconds": round(slow, 3), "ratio": round(slow / fast, 1)}
    print(f"{'1,000 exact ε':22} ours {1e3 * fast:8.1f} ms   autodp {slow:8.2f} s   {exact['ratio']:8.1f}x")
    try:
        rdp_bank.RDP_depend_pate_gaussian({"logq": -10.0, "sigma": 40.0}, 8.0)
        gnmax = "runs, not compared: the loop above is the same code"
    except AttributeError as error:
        gnmax = f"does not run with this NumPy: {error}".split("\n")[0][:120]
    return {"exact_epsilon_of_1000_sigmas": exact, "gnmax_rdp": gnmax}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the accountants against per-query loops.")
    parser.add_argument("--votes", type=Path, help="folder with mnist_250_teachers.npy (votes are simulated without it)")
    votes_from = parser.parse_args().votes
    votes = real_votes(votes_from) if votes_from else simulated_votes()
    few = votes[:SMOOTH_ROWS]
    figures: dict[str, Any] = {
        "votes": {
            "source": "real (MNIST, 250 teachers)" if votes_from else "simulated, seed 20180224",
            "rows": len(votes),
            "classes": votes.shape[1],
            "orders": len(ORDERS),
            "moments": len(MOMENTS),
            "smooth_rows": len(few),
            "sigma": SIGMA,
            "gamma": GAMMA,
            "order": ORDER,
            "beta": BETA,
        },
        "timing": "processor seconds; ours best of 15, loops best of 3 (smooth sensitivity: one run); "
        "outputs equal within 1e-9 relative or 1e-14 absolute",
        "gnmax_rdp": against_loop("gnmax_rdp", lambda: consensus.gnmax_rdp(votes, SIGMA, ORDERS), lambda: loop_gnmax(votes), 3),
        "lnmax_moments": against_loop(
            "lnmax_moments", lambda: consensus.lnmax_log_moments(votes, GAMMA, MOMENTS), lambda: loop_lnmax(votes), 3
        ),
        "smooth_sensitivity": against_loop(
            "smooth_sensitivity",
            lambda: [consensus.gnmax_smooth_sensitivity(few, SIGMA, ORDER, BETA, TEACHERS)],
            lambda: loop_smooth(few),
            1,
        ),
        "dp_accounting": against_dp_accounting(),
        "autodp": against_autodp(),
    }
    result.write("accounting", figures)


if __name__ == "__main__":
    main()
