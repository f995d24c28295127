"""Let 1,000 networks vote on 10,000 images: seconds, and the most host memory the process ever held (aim: under 4 GiB).

The networks are fresh, because what they say does not matter for time or memory. Their weights count as memory too.

    python benchmarks/voting.py [--device cuda] [--voters 1000] [--queries 10000]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch

import result
from tutelage.nets.networks import ConvNet
from tutelage.teachers.ensemble import Ensemble

LIMIT = 4 * 2**30


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--voters", type=int, default=1_000)
    parser.add_argument("--queries", type=int, default=10_000)
    arguments = parser.parse_args()
    network, generator = ConvNet(), torch.Generator().manual_seed(0)
    state = {
        name: torch.rand(arguments.voters, *tensor.shape, generator=generator).sub_(0.5).mul_(0.2)
        for name, tensor in network().state_dict().items()
    }
    queries = np.random.default_rng(0).integers(0, 256, (arguments.queries, 28, 28), dtype=np.uint8)
    begin = time.perf_counter()
    votes = Ensemble(network, state, device=arguments.device).predict(queries)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "device": arguments.device,
        "torch_threads": torch.get_num_threads(),
        "votes": list(votes.shape),
        "seconds": seconds,
        "million_votes_per_second": votes.size / seconds / 1e6,
        "peak_rss_gib": peak / 2**30,
        "under_4_gib": peak < LIMIT,
    }
    result.write(f"voting.{arguments.device}", figures)
    print(figures)


if __name__ == "__main__":
    main()
