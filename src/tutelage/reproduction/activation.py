"""The activation that fills a ball (Fay et al. 2020, paper 003, Eq. 5 and Fig. 2): how even is it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage.codecs.ball import uniform_ball
from tutelage.reproduction import drawing
from tutelage.reproduction.findings import Check, Finding, Table
from tutelage.reproduction.pools import Bench

Array = npt.NDArray[Any]
DIMENSIONS = (2, 16, 64)
LEVEL = 1e-3  # below this chance the exact activation would not be uniform
NEAR = 0.02  # the published logistic curve is off the normal distribution by up to 0.018


def distances(points: Array) -> tuple[float, float, float]:
    """Compare points (count, dimension) with the uniform law on the ball.

    Gives the Kolmogorov–Smirnov distance of the radius, its p-value, and the p-value of one coordinate of the direction.
    """
    dimension = points.shape[1]
    radius = np.linalg.norm(points, axis=1)
    level = stats.kstest(radius**dimension, "uniform")
    # A coordinate t of a uniform direction: (t + 1)/2 is Beta((l − 1)/2, (l − 1)/2).
    shape = (dimension - 1) / 2
    along = stats.kstest((points[:, 0] / np.maximum(radius, 1e-300) + 1) / 2, stats.beta(shape, shape).cdf)
    return float(level.statistic), float(level.pvalue), float(along.pvalue)


def ball(bench: Bench) -> Finding:
    """Draw standard normal inputs, apply the activation, and test the result; the picture is the paper's, in two dimensions."""
    count, rng = bench.count(100_000, 400_000), np.random.default_rng(5)
    rows, holds, near = [], True, 0.0
    for dimension in DIMENSIONS:
        values = rng.standard_normal((count, dimension + 1))
        for name, exact in (("published, logistic", False), ("exact, normal", True)):
            distance, chance, along = distances(uniform_ball(values, exact=exact))
            rows.append((f"{dimension}", name, f"{distance:.4f}", f"{chance:.2g}", f"{along:.2g}"))
            near = near if exact else max(near, distance)
            holds &= not exact or (chance > LEVEL and along > LEVEL)
    values = rng.standard_normal((4 * count, 3))
    angle, radius = rng.uniform(0, 2 * np.pi, 4 * count), np.sqrt(rng.uniform(0, 1, 4 * count))
    uniform = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    drawing.save(drawing.ball(uniform_ball(values), uniform), bench.out / "ball" / "ball.svg")
    return Finding(
        name="ball",
        title="003 Fig. 2: the activation of Eq. 5 on standard normal inputs",
        settings="",
        tables=(
            Table(
                f"Kolmogorov–Smirnov tests against the uniform law, {count:,} samples",
                ("dimension", "activation", "distance of the radius", "its p", "p of the direction"),
                tuple(rows),
            ),
        ),
        checks=(
            Check(f"the published activation is uniform up to {NEAR}", f"distance {near:.4f}", near <= NEAR),
            Check(f"with the exact normal curve nothing is found at level {LEVEL:g}", "as the table shows", holds),
        ),
        pictures=("ball.svg",),
        remarks=(
            "The published curve is a logistic one in place of the normal distribution: codes avoid the centre a little. "
            "With this many samples the test sees it, as it should.",
        ),
    )
