"""PATE rows at full size: `python benchmarks/pate.py --data DIR --only mnist --seeds 3`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tutelage.reproduction.pate import STUDIES, carry_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for study in STUDIES:
        if arguments.only and study.name not in arguments.only:
            continue
        for seed in range(arguments.seeds):
            marks: dict[str, float] = {}

            def say(what: str, done: int, total: int, marks: dict[str, float] = marks) -> None:
                marks[what] = time.perf_counter()

            _, figures = carry_out(study, arguments.data, seed=seed, device=arguments.device, controls=seed == 0, progress=say)
            rows.append({"study": study.name, **figures})
            print(json.dumps(rows[-1]), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
