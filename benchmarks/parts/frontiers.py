"""Dice over ε from the committed results: python benchmarks/parts/frontiers.py writes docs/images/frontier-*.svg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tutelage.reproduction import drawing

ROOT = Path(__file__).parents[2]
EPSILONS = (1.0, 3.0, 8.0)
LATENT, LABEL, DECODED = "latent, again", "student of the mean shape", "student of decoded answers"
SHOWN = {  # what stands in the figure, and what tells its rows in the result's table
    "ours: masks as they are, orthant bound": {"what": LATENT, "codec": "orthant, 3000 frequencies"},
    "DCT under a ball, latent": {"what": LATENT, "codec": "dct", "aligned": True},
    "wavelets under a ball, latent": {"what": LATENT, "codec": "wavelet", "aligned": True},
    "supervoxels, decoded": {"what": DECODED, "codec": "supervoxels", "aligned": True},
    "wavelets by sparse vectors, decoded": {"what": DECODED, "codec": "wavelet, chosen by teachers", "aligned": True},
    "control: mean shape as the label": {"what": LABEL, "codec": "orthant", "aligned": True, "began": 400},
    "baseline: noisy FedAvg": {"what": "FedAvg"},
    "baseline: DP-SGD": {"what": "DP-SGD"},
}
LEVELS = {"no privacy": "non-private", "40 public masks alone": "public masks alone"}


def read(name: str) -> dict[str, Any]:
    """Read the figures of a committed result."""
    figures: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))["figures"]
    return figures


def hippocampi(figures: dict[str, Any]) -> drawing.Curves:
    """Give the Dice of each way over ε: of several settings that were tried, those with the most runs, then the best."""
    usual = [row for row in figures["table"] if row.get("teachers", "every patient") == "every patient"]
    usual = [row for row in usual if not row.get("plain_teachers") and "division" not in row]
    found: drawing.Curves = {}
    for name, told in SHOWN.items():
        rows = [row for row in usual if all(row.get(key) == value for key, value in told.items())]
        best = [max((row["runs"], row["dice"]) for row in rows if row["epsilon"] == epsilon)[1] for epsilon in EPSILONS]
        found[name] = (EPSILONS, best)
    for name, what in LEVELS.items():
        (level,) = (row["dice"] for row in usual if row["what"] == what)
        found[name] = (EPSILONS, [level] * len(EPSILONS))
    return found


def scenes(figures: dict[str, Any]) -> drawing.Curves:
    """Give the student's Dice over ε for each number of teachers, and what saying nothing and no privacy score."""
    found: drawing.Curves = {}
    for teachers in (64, 256, 1000):
        rows = [row for row in figures["table"] if row["teachers"] == teachers and row["epsilon"] != "inf"]
        found[f"K = {teachers:,}"] = ([float(row["epsilon"]) for row in rows], [row["dice"] for row in rows])
    over = found["K = 64"][0]
    for control in figures["controls"]:
        if control["control"] != "mean shape, constant":
            found[control["control"]] = (over, [control["dice"]] * len(over))
    return found


def main() -> None:
    """Draw both."""
    for name, draw in (("hippocampus", hippocampi), ("scenes", scenes)):
        curves = draw(read(name))
        ticks = next(iter(curves.values()))[0]
        labels = {"xlabel": "ε", "ylabel": "Dice", "xscale": "log", "xticks": ticks, "ylim": (0, 1)}
        path = ROOT / "docs" / "images" / f"frontier-{name}.svg"
        drawing.save(drawing.curves([(curves, labels)]), path)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
