"""Networks that learn to see before anybody names a thing: two distortions of an image must look alike, two images must not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.compiling import Replayed
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, Started
from tutelage.privacy.errors import RecipeError

Progress = Callable[[int, int], None]
BOLD = Augmentation(rotation=25, scale=0.2, shear=20, shift=3, elastic=1.2, cutout=8)


@final
@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Say how features are learned (SimCLR, Chen et al. 2020)."""

    steps: int = 3000
    batch: int = 512  # images per step, each seen twice
    rate: float = 2e-3
    decay: float = 1e-2
    temperature: float = 0.3
    width: int = 64  # of the projection that is compared, and thrown away afterwards
    distortion: Augmentation = BOLD

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 2), ("width", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
        for name in ("rate", "temperature"):
            if not getattr(self, name) > 0:
                raise RecipeError(f"`{name}` must be > 0. Got {getattr(self, name)!r} instead.")

    def rate_at(self, step: int) -> float:
        """Climb linearly over a twentieth of the steps, then follow half a cosine to zero."""
        return self.rate * min(1.0, (step + 1) / max(1, 0.05 * self.steps)) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


@final
class Body(nn.Module):
    """Run a network up to what its last linear layer reads."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        last = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        if not last:
            raise RecipeError("`factory` must build a network that ends in a linear layer. Got one without instead.")
        self.network, self.width = network, last[-1].in_features
        self.caught: list[Tensor] = []
        last[-1].register_forward_pre_hook(lambda _, given: self.caught.append(given[0]))

    def forward(self, images: Tensor) -> Tensor:
        self.caught.clear()
        self.network(images)
        return self.caught.pop().float()


def learn_features(
    factory: Factory,
    inputs: Any,
    *,
    settings: Contrast | None = None,
    device: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> Started:
    """Learn to see from images (records, ...) alone. They must be public: nothing here protects them."""
    s, place = settings or Contrast(), pick_device(device)
    images = as_float(as_inputs(inputs)).to(place)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        network = factory().to(place, memory_format=torch.channels_last).train()
        generator = torch.Generator(device=place).manual_seed(seed)
        step_of = Step(network, images, s)
        replayed = Replayed(step_of, place=place)
        for step in range(s.steps):
            step_of.draw(generator=generator, rate=s.rate_at(step))
            replayed()
            if progress and ((step + 1) % 20 == 0 or step + 1 == s.steps):
                progress(step + 1, s.steps)
    return Started(factory, {name: tensor.cpu() for name, tensor in network.state_dict().items()})


@final
class Step:
    """Hold what a step reads and writes in fixed places, so that its kernels can be recorded once and replayed."""

    def __init__(self, network: nn.Module, images: Tensor, settings: Contrast) -> None:
        self.images, self.settings, self.place = images, settings, images.device
        self.body = Body(network)
        width = self.body.width
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, settings.width)).to(self.place)
        self.rate = torch.tensor(settings.rate, device=self.place)
        learned = [*network.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(
            learned, lr=self.rate, weight_decay=settings.decay, fused=True, capturable=self.place.type == "cuda"
        )
        size = min(settings.batch, len(images))
        self.some = torch.zeros(size, dtype=torch.int64, device=self.place)
        self.draws = torch.zeros(2 * size, settings.distortion.draws, device=self.place)

    def draw(self, *, generator: torch.Generator, rate: float) -> None:
        """Choose different images and two distortions of each."""
        self.some.copy_(torch.randperm(len(self.images), generator=generator, device=self.place)[: len(self.some)])
        self.draws.copy_(self.settings.distortion.draw(len(self.draws), generator=generator))
        self.rate.fill_(rate)

    def __call__(self) -> None:
        """Tell every image's other view among all views of the batch, and move the weights."""
        views = self.settings.distortion.apply(self.images[self.some].repeat(2, 1, 1, 1), self.draws)
        with torch.autocast(self.place.type, dtype=torch.bfloat16, enabled=self.place.type == "cuda"):
            codes = self.head(self.body(views))
        loss = contrast(codes.float(), self.settings.temperature)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def contrast(codes: Tensor, temperature: float) -> Tensor:
    """Measure how hard it is to tell a view's partner among all others: codes (2·batch, width), partners a batch apart."""
    codes = F.normalize(codes, dim=1)
    likeness = codes @ codes.T / temperature  # (2·batch, 2·batch)
    likeness = likeness - torch.diag(torch.full((len(codes),), 1e9, device=codes.device))  # nobody is their own partner
    partner = torch.arange(len(codes), device=codes.device).roll(len(codes) // 2)
    return F.cross_entropy(likeness, partner)
