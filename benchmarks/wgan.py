"""Run paper 004's WGAN through the library's own walk, with a kill in the middle: 20 critics, 200 reserved rounds, an honest ε.

A small CNN is trained on its images and tested on real ones. At this K noise is far above the signal: measured is what an honest
price leaves of the method. Unit: a record; adjacency: replace one; δ = 1e-5.

python benchmarks/wgan.py --data FOLDER --name mnist [--epsilon 10] [--critics 20] [--rounds 200]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import result
import tutelage as tt
from nopool import read
from tutelage.nets import judges
from tutelage.nets.generators import Drawing
from tutelage.tasks.adversarial.walk import Adversarial, train
from tutelage.tasks.statistics.functions import Pixels
from tutelage.teachers.critics import Critics, CriticSettings

DRAWING = Drawing((1, 28, 28), tuple("0123456789"), latent=16, width=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--critics", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    x, y, xt, yt = read(given.data)
    rows: list[dict[str, Any]] = []
    for epsilon in given.epsilon:
        how = Adversarial(critics=given.critics, rounds=given.rounds, images=20, latent=16, width=8)
        with tempfile.TemporaryDirectory() as place:
            begun = time.perf_counter()

            def once(stop: int | None, resume: bool, place: str = place, how: Any = how, epsilon: float = epsilon) -> Any:
                critics = Critics(CriticSettings(DRAWING.shape, 10, width=8, batch=10, steps=2, warm=50), Pixels(DRAWING.shape))
                return train(
                    tt.Private.of(x, y), how=how, teachers=critics, drawing=DRAWING, budget=tt.Budget(epsilon, 1e-5),
                    out=Path(place) / "run", resume=resume, stop_after=stop,
                )  # fmt: skip

            with suppress(KeyboardInterrupt):
                once(given.rounds // 2, resume=False)
            generator, document = once(None, resume=True)
            images, labels = generator.sample(4000)
            network = judges.train_judge(
                judges.small_cnn(DRAWING.shape, 10),
                torch.as_tensor(images),
                torch.as_tensor(labels),
                steps=300,
                batch=128,
                warp=0.3,
            )
            right = judges.accuracy(network, torch.as_tensor(xt), torch.as_tensor(yt))
            row = {"epsilon": epsilon, "critics": given.critics, "rounds paid for": given.rounds}
            row["rounds used, one kill in the middle"] = document["labels"]["released"]
            row["CNN on generated images"] = round(100 * right, 2)
            row["epsilon verified"] = tt.verify(Path(place) / "run").recomputed_epsilon
            rows.append({**row, "seconds": round(time.perf_counter() - begun)})
            print(rows[-1], flush=True)
    result.write(f"wgan.{given.name}", {"rows": rows})


if __name__ == "__main__":
    main()
