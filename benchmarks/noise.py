"""Time the exact integer samplers for a million values, beside OpenDP's and NumPy's, and test their fit.

NumPy's are floats from a seedable generator: faster, and not safe to release (Mironov 2012). OpenDP's are exact integers like
ours, drawn one by one. The operating system's generator alone is the floor under ours. Wall-clock seconds, best of five; OpenDP
draws a tenth of the values, once.

    python benchmarks/noise.py          OpenDP's rows need `pip install opendp`; without it they say so
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats

import result
from tutelage.privacy import mechanisms
from tutelage.privacy.mechanisms import rounded_gaussian, rounded_laplace

VALUES = 1_000_000
SCALE = 2.0**20  # grid steps: where the mechanisms work
SAMPLERS = {"gaussian": rounded_gaussian, "laplace": rounded_laplace}


def per_second(draw: Callable[[], Any], values: int, repeats: int = 5) -> float:
    """Give the best throughput of several runs, after one to warm up."""
    best = float("inf")
    for _ in range(repeats + (repeats > 1)):
        start = time.perf_counter()
        draw()
        best = min(best, time.perf_counter() - start)
    return round(values / best)


def opendp_rates() -> dict[str, Any]:
    """OpenDP's discrete Gaussian and Laplace on integers of the same scale; its floats rest on the same samplers."""
    if importlib.util.find_spec("opendp") is None:
        return {"opendp gaussian": "not installed", "opendp laplace": "not installed"}
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, few = dp.vector_domain(dp.atom_domain(T=int)), VALUES // 10
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=SCALE)
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=SCALE)
    zeros = [0] * few
    return {
        "opendp gaussian": per_second(lambda: gaussian(zeros), few, 1),
        "opendp laplace": per_second(lambda: laplace(zeros), few, 1),
    }


def cdf(kind: str, x: Any, scale: float) -> Any:
    return special.ndtr(np.asarray(x) / scale) if kind == "gaussian" else stats.laplace.cdf(x, scale=scale)


def fit(kind: str, scale: float) -> dict[str, float]:
    """χ² against the exact probability of every integer (small scales) or of a hundred equal cells (large ones)."""
    drawn = SAMPLERS[kind](scale, VALUES)
    if scale < 100:
        reach = 0
        while 1 - cdf(kind, reach + 0.5, scale) > 20 / VALUES:
            reach += 1
        edges = np.arange(-reach, reach) + 0.5
        expected = VALUES * np.diff(np.concatenate([[0.0], cdf(kind, edges, scale), [1.0]]))
        observed = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    else:
        observed = np.bincount((cdf(kind, drawn, scale) * 100).astype(int), minlength=100)
        expected = np.full(100, VALUES / 100)
    found = stats.chisquare(observed, expected)
    return {
        "scale": scale,
        "cells": len(expected),
        "chi_square": round(float(found.statistic), 2),
        "p_value": round(float(found.pvalue), 4),
    }


def slow_share(kind: str) -> float:
    """Count the draws that need arbitrary precision."""
    taken, exact = [0], mechanisms._exact_magnitude

    def counted(*given: Any) -> int:
        taken[0] += 1
        return exact(*given)

    mechanisms._exact_magnitude = counted
    try:
        SAMPLERS[kind](SCALE, VALUES)
    finally:
        mechanisms._exact_magnitude = exact
    return taken[0] / VALUES


def main() -> None:
    """Time every sampler and test ours."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    generator = np.random.default_rng()
    rates: dict[str, Any] = {
        "ours gaussian": per_second(lambda: rounded_gaussian(SCALE, VALUES), VALUES),
        "ours laplace": per_second(lambda: rounded_laplace(SCALE, VALUES), VALUES),
        "the system's generator alone": per_second(lambda: os.urandom(8 * VALUES), VALUES),
        **opendp_rates(),
        "numpy normal (floats, not safe)": per_second(lambda: generator.normal(0, SCALE, VALUES), VALUES),
        "numpy laplace (floats, not safe)": per_second(lambda: generator.laplace(0, SCALE, VALUES), VALUES),
    }
    figures: dict[str, Any] = {
        "values": VALUES,
        "scale_in_grid_steps": SCALE,
        "values_per_second": rates,
        "share_of_draws_in_arbitrary_precision": {kind: slow_share(kind) for kind in SAMPLERS},
        "fit": {kind: [fit(kind, scale) for scale in (0.7, 1.0, 3.5, SCALE)] for kind in SAMPLERS},
    }
    if isinstance(rates["opendp gaussian"], (int, float)):
        figures["times_opendp"] = {kind: round(rates[f"ours {kind}"] / rates[f"opendp {kind}"], 1) for kind in SAMPLERS}
    for name, rate in rates.items():
        print(f"{name:34} {rate if isinstance(rate, str) else f'{rate:14,.0f} values/s'}")
    for kind, rows in figures["fit"].items():
        print(f"fit of {kind:9}", *(f"scale {row['scale']:g}: p = {row['p_value']:.3f}" for row in rows), sep="  ")
    result.write("noise", figures)


if __name__ == "__main__":
    main()
