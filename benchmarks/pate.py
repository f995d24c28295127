"""Collect what `tutelage reproduce pate` printed in several places into the one table that the documentation shows.

tutelage reproduce pate --only mnist-ours --data DIR --out runs/a --seeds 3 --device cuda
tutelage reproduce pate --only adult --data DIR --out runs/b --seeds 3
python benchmarks/pate.py runs/a/pate.json runs/b/pate.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import result


def main() -> None:
    """Merge rows by name, keeping what was collected before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="pate.json of finished runs")
    parser.add_argument("--machine", default="CPU", help="what these runs were made on")
    parser.add_argument("--beside", default="", help="added to the rows' names, so that they stand beside earlier ones")
    arguments = parser.parse_args()
    before = result.RESULTS / "pate.json"
    rows: dict[str, Any] = json.loads(before.read_text(encoding="utf-8"))["figures"] if before.exists() else {}
    for file in arguments.files:
        for row in json.loads(file.read_text(encoding="utf-8")):
            if row["runs"]:
                rows[row.pop("row") + arguments.beside] = {**row, "machine": arguments.machine}
    result.write("pate", rows, command="tutelage reproduce pate, collected by python benchmarks/pate.py")


if __name__ == "__main__":
    main()
