"""One gradient per record of convolutions, for DP-SGD on a CPU: a group per record against Opacus's patches, in turns.

python benchmarks/gradients.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest import mock

import torch
from opacus.grad_sample import GradSampleModule

import result
from tutelage.baselines import backprops
from tutelage.baselines.gradients import built, trainable
from tutelage.nets.networks import ConvNet
from tutelage.nets.unet import UNet

ROUNDS = 3
NETWORKS = {
    "U-Net 4-8, 1×32×48×32, 16 records": (UNet(shape=(1, 32, 48, 32), widths=(4, 8), groups=4), 16),
    "U-Net 16-32-64, 1×64×64, 32 records": (UNet(shape=(1, 64, 64)), 32),
    "ConvNet, 1×28×28, 64 records": (ConvNet(shape=(1, 28, 28), classes=10), 64),
}


def theirs(layer: torch.nn.Module, _: torch.device) -> Any:
    """Take Opacus's sampler for every layer."""
    return GradSampleModule.GRAD_SAMPLERS[type(layer)]


def milliseconds(factory: Any, records: int) -> dict[str, float]:
    """Time all gradients of a batch both ways, per record: the best of a few rounds, after one that warms up."""
    network = built(factory, seed=0, device=torch.device("cpu"))
    images = torch.randn(records, 1, *factory.shape, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(records)[:, None] % 10 if isinstance(factory, ConvNet) else (images[:, :, 0] > 1).float()
    took: dict[str, list[float]] = {"opacus": [], "grouped": []}
    for _ in range(1 + ROUNDS):
        for way, sampler in (("opacus", theirs), ("grouped", backprops.sampler)):
            with mock.patch.object(backprops, "sampler", sampler):
                begin = time.perf_counter()
                backprops.backward_gradients(network, trainable(network), images, targets)
                took[way].append(1e3 * (time.perf_counter() - begin) / records)
    return {way: min(times[1:]) for way, times in took.items()}


def main() -> None:
    """Measure every network both ways."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, (factory, records) in NETWORKS.items():
        took = milliseconds(factory, records)
        rows.append({"network": name, **{way: round(ms, 2) for way, ms in took.items()}})
        rows[-1]["gain"] = round(took["opacus"] / took["grouped"], 1)
        print(rows[-1], flush=True)
    result.write("gradients", {"milliseconds a record": rows})


if __name__ == "__main__":
    main()
