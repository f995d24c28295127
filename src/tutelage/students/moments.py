"""What images of every class should look like, and the steps that bring a generator there.

The loss is the squared distance between two means. The square of a noisy estimate is too large by its variance, so two halves of
a batch each give an estimate and the loss is their product: unbiased, and what is left of the noise is in the release alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from tutelage.nets.generators import Drawing, Generator, GeneratorNetwork
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.students.matching import Matching

KIND = "tutelage.generator-fit/1"
_KEPT = 200  # steps between two checkpoints


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """Hold what images of every class should look like to one feature function: its mean, and its second moments if released."""

    features: Callable[[Tensor], Tensor]  # images in 0…1 to (n, d)
    mean: Tensor  # (classes, d)
    second: Tensor | None = None  # (classes, d, d)
    weight: float = 1.0

    def loss(self, images: Tensor) -> Tensor:
        """Give the distance of images (classes · per, …), sorted by class, from these moments; unbiased."""
        classes = len(self.mean)
        found = self.features(images).float().unflatten(0, (classes, -1))
        half = found.shape[1] // 2
        one, other = found[:, :half], found[:, half:]
        loss = ((one.mean(1) - self.mean) * (other.mean(1) - self.mean)).sum()
        if self.second is not None:
            spreads = [part.transpose(1, 2) @ part / part.shape[1] - self.second for part in (one, other)]
            loss = loss + (spreads[0] * spreads[1]).sum()
        return self.weight * loss


@final
class Fit:
    """Hold what a step changes: weights, their running mean, and the optimiser."""

    def __init__(self, how: Matching, network: GeneratorNetwork, checkpoint: Path | None) -> None:
        self.how, self.network, self.checkpoint, self.done = how, network, checkpoint, 0
        self.optimiser = torch.optim.Adam(network.parameters(), how.learning_rate, betas=(0.5, 0.99))
        self.mean = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    def step(self, number: int, many: Sequence[Moments], always: Sequence[Moments]) -> None:
        """Take one step; what is random in it follows from its number."""
        how, network = self.how, self.network
        torch.manual_seed(how.random_state * 1_000_003 + number)
        for group in self.optimiser.param_groups:
            group["lr"] = how.learning_rate * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * number / how.steps)).item())
        place = next(network.parameters()).device
        labels = torch.arange(network.classes, device=place).repeat_interleave(how.per)
        chosen = torch.randint(len(many), (how.drawn,)).tolist() if many else []
        network.train()
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            images = network(labels, torch.randn(len(labels), network.latent, device=place))
        with torch.autocast(place.type, enabled=False):  # moments in full precision, unless their features say otherwise
            loss = sum((one.loss(images) for one in [*always, *(many[index] for index in chosen)]), start=images.new_zeros(()))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        for name, tensor in network.state_dict().items():
            kept = self.mean[name]
            kept.lerp_(tensor, 1 - how.averaging) if kept.is_floating_point() else kept.copy_(tensor)
        self.done = number + 1
        if self.checkpoint is not None and self.done % _KEPT == 0:
            self._keep(self.checkpoint)

    def finished(self, drawing: Drawing) -> Generator:
        """Take the mean of the weights, and fix what batch norm learned."""
        self.network.load_state_dict(self.mean)
        torch.manual_seed(self.how.random_state)
        self.network.settle()
        if self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)
        return Generator(drawing, self.network.state_dict())

    def _described(self) -> str:
        return json.dumps({**vars(self.how)}, sort_keys=True, default=str)

    def _keep(self, path: Path) -> None:
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"mean.{name}": tensor for name, tensor in self.mean.items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        write_tensors(path, tensors, {"kind": KIND, "done": str(self.done), "how": self._described()}, private=False)

    def _resume(self, path: Path) -> None:
        tensors, metadata = read_tensors(path, kind=KIND)
        if metadata.get("how") != self._described():
            return  # of another fit: begin anew
        place = next(self.network.parameters()).device

        def part(prefix: str) -> dict[str, Any]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        self.mean = {name: value.to(place) for name, value in part("mean.").items()}
        states: dict[int, dict[str, Any]] = {}
        for name, value in part("optimiser.").items():
            number, what = name.split(".", 1)
            states.setdefault(int(number), {})[what] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": states})
        self.done = int(metadata["done"])
