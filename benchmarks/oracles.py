"""Check every row of an oracle file against our functions: `python benchmarks/oracles.py --oracles FILE --votes DIR`.

FILE holds reference values (mpmath, and the 2017 and 2018 PATE scripts run unchanged on the real votes), DIR those votes.
Neither is ours to redistribute; the rows that stand alone are fixtures of the test suite.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import result
from tutelage.privacy import accounting, consensus

ORDERS = np.concatenate((np.arange(2, 101, 0.5), np.logspace(math.log10(100), math.log10(500), 100)))


class Tally:
    """Count rows and remember the worst."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, float]] = {}

    def check(self, group: str, ours: float, reference: Any, *, relative: float = 1e-9, absolute: float = 1e-14) -> None:
        """Compare one value: within the relative or the absolute tolerance."""
        theirs = float(reference)
        error = abs(float(ours) - theirs)
        row = self.groups.setdefault(group, {"values": 0, "off": 0, "worst_relative_error": 0.0})
        row["values"] += 1
        row["off"] += not error <= max(relative * abs(theirs), absolute)
        if error > absolute:
            row["worst_relative_error"] = max(row["worst_relative_error"], error / abs(theirs))


def classic(rdp: np.ndarray, delta: float) -> tuple[float, float]:
    """Convert a Rényi curve the way the published scripts do."""
    epsilon = rdp + math.log(1 / delta) / (ORDERS - 1)
    return float(epsilon.min()), float(ORDERS[epsilon.argmin()])


def number(text: str) -> float:
    return math.sqrt(2) if text == "sqrt(2)" else float(text)


def counts_of(row: dict[str, Any]) -> list[int]:
    if row["counts"]:
        return list(row["counts"])
    head, tail = row["counts_rule"].split("+")  # "[5000]+[0]*149"
    zeros, times = tail.split("*")
    return ast.literal_eval(head) + ast.literal_eval(zeros) * int(times)


def standing_alone(rows: dict[str, Any], tally: Tally) -> None:
    """The rows that need no votes."""
    exact = rows["analytic_gaussian"]
    for row in exact["grid"] + exact["other_sensitivities"]:
        ours = accounting.gaussian_sigma(number(row["Delta"]), float(row["eps"]), float(row["delta"]))
        tally.check("exact Gaussian σ", ours, row["sigma_20"], relative=1e-10)
    for row in exact["inverse_eps_of_sigma"]:
        ours = accounting.gaussian_epsilon(1.0, float(row["sigma_over_Delta"]), float(row["delta"]))
        tally.check("exact Gaussian ε", ours, row["eps_20"], relative=1e-10)
    for row in rows["unit_gnmax"]:
        tally.check("GNMax log q", consensus.gnmax_log_q(counts_of(row), row["sigma"])[0], row["logq"])
        for order, value in row["rdp"].items():
            tally.check("GNMax RDP", consensus.gnmax_rdp(counts_of(row), row["sigma"], float(order))[0, 0], value["mpmath"])
    for row in rows["unit_lnmax"]:
        tally.check("LNMax log q", consensus.lnmax_log_q(counts_of(row), row["gamma"])[0], row["logq"])
        for moment, value in row["logmgf"].items():
            ours = consensus.lnmax_log_moments(counts_of(row), row["gamma"], float(moment))[0, 0]
            tally.check("LNMax moments", ours, value["mpmath"])
    for row in rows["unit_threshold"]:
        top, threshold, sigma = row["max_count"], row["threshold"], row["sigma1"]
        tally.check("threshold log Pr", consensus.log_answered(top, threshold, sigma), row["log_pr_answered"])
        for order, value in row["rdp"].items():
            tally.check("threshold RDP", consensus.threshold_rdp(top, threshold, sigma, float(order))[0, 0], value["mpmath"])
    for row in rows["gnss_rdp"]:
        ours = accounting.published_smooth_release_rdp(row["beta"], row["sigma_ss"], row["order"])[0]
        tally.check("GNSS price as printed", ours, row["rdp_mpmath"])


def on_votes(rows: dict[str, Any], votes: dict[str, np.ndarray], chosen: np.ndarray, tally: Tally) -> None:
    """The rows computed from real vote counts."""
    for row in rows["gnmax_2018"]:
        counts = votes[row["dataset"]][: row["n"]]
        total = consensus.gnmax_rdp(counts, row["sigma"], ORDERS).sum(axis=0)
        epsilon, order = classic(total, row["delta"])
        tally.check("GNMax on votes", epsilon, row["eps_data_dependent"])
        tally.check("GNMax on votes", order, row["order"])
        tight = accounting.rdp_to_epsilon(total, ORDERS, row["delta"])[0]
        tally.check("GNMax on votes, tight conversion", tight, row["eps_data_dependent_improved_conversion"])
        tally.check("GNMax on votes, sum of log q", consensus.gnmax_log_q(counts, row["sigma"]).sum(), row["sum_logq"])
    for row in rows["lnmax_2017"]:
        counts = votes[row["dataset"]]
        counts = counts[chosen] if row["queries"] == "indices_file" else counts[: row["n"]]
        moments = np.arange(1, row["moments"] + 1)
        total = consensus.lnmax_log_moments(counts, row["gamma"], moments).sum(axis=0)
        tally.check("LNMax on votes", ((total + math.log(1 / row["delta"])) / moments).min(), row["eps_data_dependent"])
    for row in rows["confident_gnmax_2018"]:
        counts = votes[row["dataset"]][: row["n"]].astype(float)
        top = counts.max(axis=1)
        tests = consensus.threshold_rdp(top, row["threshold"], row["sigma1"], ORDERS).sum(axis=0)
        answers = consensus.gnmax_rdp(counts, row["sigma2"], ORDERS)
        likely = np.exp(consensus.log_answered(top, row["threshold"], row["sigma1"]))
        tally.check("Confident, expected", likely.sum(), row["expected_answered"])
        expected = classic(tests + (likely[:, None] * answers).sum(axis=0), row["delta"])[0]
        tally.check("Confident, expected", expected, row["eps_expected"])
        realised = classic(tests + answers[top >= row["threshold"]].sum(axis=0), row["delta"])[0]
        tally.check("Confident, realised", realised, row["realised_mask_max_ge_T"]["eps"])
        everything = classic(tests + answers.sum(axis=0), row["delta"])[0]
        tally.check("Confident, realised", everything, row["realised_all_answered"]["eps"])
    for row in rows["smooth_sensitivity_2018"]:
        smooth(row, votes[row["dataset"]][: row["n"]].astype(float), tally)


def smooth(row: dict[str, Any], counts: np.ndarray, tally: Tally) -> None:
    """One row of smooth sensitivity."""
    sigma, order, teachers = row["sigma2"], row["order"], row["num_teachers"]
    tally.check("smooth sensitivity, q₀", consensus.gnmax_log_q0(sigma, order), row["logq0"])
    local = consensus.gnmax_local_sensitivity(counts, sigma, order, teachers)
    for distance, value in row["first_query"]["local_sens_at_d"].items():
        tally.check("local sensitivity", local[0, int(distance)], value)
    total = local.sum(axis=0)
    if row["threshold"]:
        top = counts.max(axis=1)
        likely = np.exp(consensus.log_answered(top, row["threshold"], row["sigma1"]))
        tests = consensus.threshold_local_sensitivity(top, row["threshold"], row["sigma1"], order, teachers)
        total = tests.sum(axis=0) + (likely[:, None] * local).sum(axis=0)
    for distance, value in row["local_sens_sum_at_d"].items():
        tally.check("local sensitivity", total[int(distance)], value)
    reference = row["ss_at_beta_0p4_over_order"]
    tally.check("smooth sensitivity", consensus.discounted_max(total, reference["beta"]), reference["ss"])
    best = row["optimum"]
    printed = accounting.published_smooth_release_rdp(best["beta"], best["sigma_ss"], order)[0]
    tally.check("GNSS price as printed", printed, best["gnss_rdp"])
    conditions = consensus.gnmax_smooth_conditions(sigma, counts.shape[1], order)
    for ours, theirs in zip(conditions, row["conditions_C5_C6"], strict=True):
        tally.check("conditions C5 and C6", float(ours), float(theirs))


def main() -> None:
    """Check and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracles", type=Path, required=True)
    parser.add_argument("--votes", type=Path)
    arguments = parser.parse_args()
    rows, tally = json.loads(arguments.oracles.read_text()), Tally()
    standing_alone(rows, tally)
    if arguments.votes:
        names = ("mnist", "svhn", "adult")
        votes = {name: np.load(arguments.votes / f"{name}_250_teachers.npy") for name in names}
        chosen = np.load(arguments.votes / "mnist_250_teachers_100_indices_used_by_student.npy")
        on_votes(rows, votes, chosen, tally)
    values, off = (int(sum(group[key] for group in tally.groups.values())) for key in ("values", "off"))
    print(f"{values} values, {off} off")
    result.write("oracles", {"values": values, "off": off, "groups": tally.groups})
    sys.exit(off > 0)


if __name__ == "__main__":
    main()
