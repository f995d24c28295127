"""Critics of a WGAN as teachers: one per disjoint shard, all trained at once, each saying where generated images should move.

Arjovsky et al., 2017; Gulrajani et al., 2017; Chen et al., 2020 (GS-WGAN). What leaves a critic is the gradient of its score at
the generated images and nothing else, and the curator clips and noises that. The gradient penalty bounds nothing: it is a soft
penalty at other points. Critics learn on a public schedule: a function of their shard, of what was released and of public seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from tutelage.data.dataset import Private
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards
from tutelage.teachers.cleaning import numbers, numeric

Array = npt.NDArray[Any]
KIND = "tutelage.critics/1"


@final
@dataclass(frozen=True)
class CriticSettings:
    """Describe critics: their size, how they are trained, and the public seed of all that is random in it."""

    shape: tuple[int, int, int]
    classes: int
    width: int = 16
    batch: int = 16
    steps: int = 5  # of every critic, after each round
    warm: int = 100  # of every critic, before the first round
    penalty: float = 10.0
    learning_rate: float = 2e-4
    seed: int = 0


class CriticNetwork(nn.Module):
    """Two halving convolutions and a linear score, with the label's own direction added (Miyato & Koyama, 2018)."""

    def __init__(self, how: CriticSettings) -> None:
        super().__init__()
        channels, side, _ = how.shape
        self.classes, inner = how.classes, 2 * how.width * (side // 4) ** 2
        self.first = nn.Conv2d(channels, how.width, 5, 2, 2)
        self.second = nn.Conv2d(how.width, 2 * how.width, 5, 2, 2)
        self.score, self.direction = nn.Linear(inner, 1), nn.Linear(inner, how.classes, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Score images (n, channels, side, side) in 0…1 of classes (n,)."""
        x = F.leaky_relu(self.first(2 * x - 1), 0.2)
        x = F.leaky_relu(self.second(x), 0.2).flatten(1)
        return self.score(x)[:, 0] + (self.direction(x) * (labels[:, None] == torch.arange(self.classes, device=x.device))).sum(1)


@final
class Critics:
    """Hold one critic per shard, stacked. `pixels` turns private records into images by public constants."""

    def __init__(self, how: CriticSettings, pixels: Callable[[Array], Array], *, device: str = "cpu") -> None:
        self.how, self.pixels, self.device = how, pixels, torch.device(device)
        self._images: Tensor | None = None

    @property
    def key(self) -> str:
        """Describe the critics' settings."""
        return json.dumps({"teachers": "critics/1", **asdict(self.how)}, sort_keys=True)

    def __len__(self) -> int:
        return len(self._sizes)

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> Critics:
        """Read every shard, and warm each critic up against noise that is moved by nobody else's data."""
        how, images, labels = self.how, self.pixels(numbers(np.asarray(private.inputs))), numeric(private.targets)
        most = max(1, max(len(part) for part in shards.indices))
        held, classes = np.zeros((len(shards), most, *how.shape), dtype=np.float32), np.zeros((len(shards), most), dtype=np.int64)
        for row, part in enumerate(shards.indices):
            held[row, : len(part)] = images[part]
            classes[row, : len(part)] = np.clip(labels[part], 0, how.classes - 1)
        self._sizes = torch.as_tensor([len(part) for part in shards.indices], device=self.device)
        self._images, self._labels = (torch.as_tensor(array, device=self.device) for array in (held, classes))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(how.seed)
            networks = [CriticNetwork(how) for _ in range(len(shards))]
        parameters, _ = stack_module_state(networks)  # type: ignore[arg-type]
        self._parameters = {name: tensor.detach().to(self.device) for name, tensor in parameters.items()}
        self._moments = [{name: torch.zeros_like(tensor) for name, tensor in self._parameters.items()} for _ in range(2)]
        self._template, self._taken = CriticNetwork(how).to("meta"), 0
        for step in range(how.warm):
            self._step(*self._noise())
            if progress is not None:
                progress(step + 1, how.warm)
        return self

    # ── what a teacher says ───────────────────────────────────────────────────────────────────────────────────────────

    def contributions(self, query: Query, *, member: Sealed | None = None) -> Iterator[Sealed]:
        """Give the gradient of every critic's score at the generated images, or of the one that was drawn: (K, 1, B, ...)."""
        images, labels = self._generated(query)
        if member is None:
            for start in range(0, len(self), 64):
                yield Sealed(self._gradients(images, labels, slice(start, start + 64)))
        else:
            yield member.map(lambda one: self._gradients(images, labels, slice(int(one), int(one) + 1)))

    def _gradients(self, images: Tensor, labels: Tensor, some: slice) -> Array:
        def score(x: Tensor, parameters: dict[str, Tensor]) -> Tensor:
            return functional_call(self._template, parameters, (x, labels)).sum()

        chosen = {name: tensor[some] for name, tensor in self._parameters.items()}
        found = vmap(grad(score), in_dims=(None, 0))(images, chosen)
        present = (self._sizes[some] > 0).to(found.dtype)  # a shard without records says nothing
        return np.asarray((found * present[:, None, None, None, None])[:, None].cpu().numpy())

    def _generated(self, query: Query) -> tuple[Tensor, Tensor]:
        images = torch.as_tensor(np.array(query.rows[0]), dtype=torch.float32, device=self.device)
        return images, schedule(len(images), self.how.classes).to(self.device)

    # ── how critics learn ─────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self, released: Array) -> None:
        """Let every critic take its steps against generated images (B, ...), which are public."""
        images = torch.as_tensor(np.asarray(released), dtype=torch.float32, device=self.device)
        labels = schedule(len(images), self.how.classes).to(self.device)
        for _ in range(self.how.steps):
            with self._seeded():
                chosen = torch.randint(len(images), (len(self), self.how.batch)).to(self.device)
            self._step(images[chosen], labels[chosen])

    def _noise(self) -> tuple[Tensor, Tensor]:
        with self._seeded():
            x = torch.rand(len(self), self.how.batch, *self.how.shape).square().to(self.device)
            labels = torch.randint(self.how.classes, (len(self), self.how.batch)).to(self.device)
        return x, labels

    def _seeded(self) -> Any:
        """Let randomness hang on the public seed and on how many steps were taken."""
        return _seeding(self.how.seed * 1_000_003 + self._taken)

    def _step(self, fakes: Tensor, labels: Tensor) -> None:
        """Take one step of Adam with every critic: fakes (K, batch, ...), labels (K, batch)."""
        assert self._images is not None
        count = len(self)
        with self._seeded():
            part, blend = (
                torch.rand(count, self.how.batch).to(self.device),
                torch.rand(count, self.how.batch, 1, 1, 1).to(self.device),
            )
        index = (part * self._sizes[:, None].clamp_min(1)).long()  # of its own shard's size and no other's
        rows = torch.arange(count, device=self.device)[:, None]
        real, true = self._images[rows, index], self._labels[rows, index]
        slopes = vmap(grad(self._loss))(self._parameters, real, true, fakes, labels, blend)
        self._taken += 1
        first, second = self._moments
        for name, slope in slopes.items():  # Adam, by hand: all critics in one tensor
            first[name].lerp_(slope, 0.5)
            second[name].lerp_(slope.square(), 0.1)
            step = first[name] / (1 - 0.5**self._taken) / ((second[name] / (1 - 0.9**self._taken)).sqrt() + 1e-8)
            self._parameters[name] = self._parameters[name] - self.how.learning_rate * step

    def _loss(
        self, parameters: dict[str, Tensor], real: Tensor, true: Tensor, fakes: Tensor, labels: Tensor, blend: Tensor
    ) -> Tensor:
        def score(x: Tensor, classes: Tensor) -> Tensor:
            return functional_call(self._template, parameters, (x, classes))

        between = blend * real + (1 - blend) * fakes
        slope = grad(lambda x: score(x, true).sum())(between)
        penalty = ((slope.flatten(1).square().sum(1) + 1e-12).sqrt() - 1).square().mean()
        return score(fakes, labels).mean() - score(real, true).mean() + self.how.penalty * penalty

    # ── a crash ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path) -> None:
        """Keep critics under a folder named private: they hold what they learned."""
        tensors = {f"p.{name}": tensor for name, tensor in self._parameters.items()}
        for number, moment in enumerate(self._moments):
            tensors |= {f"m{number}.{name}": tensor for name, tensor in moment.items()}
        write_tensors(
            folder / "critics.safetensors", tensors, {"kind": KIND, "key": self.key, "taken": str(self._taken)}, private=True
        )

    def load(self, folder: Path, private: Private, shards: Shards) -> bool:
        """Go on with critics that were kept, where they are of these settings."""
        place = folder / "critics.safetensors"
        if not place.exists():
            return False
        tensors, about = read_tensors(place, kind=KIND)
        if about["key"] != self.key:
            raise DataError("`folder` must hold critics of the same settings. Got others instead.")
        cold = Critics(CriticSettings(**{**asdict(self.how), "warm": 0}), self.pixels, device=str(self.device)).fit(
            private, shards
        )
        self.__dict__.update({name: value for name, value in cold.__dict__.items() if name != "how"})
        for name in self._parameters:
            self._parameters[name] = tensors[f"p.{name}"].to(self.device)
            for number, moment in enumerate(self._moments):
                moment[name] = tensors[f"m{number}.{name}"].to(self.device)
        self._taken = int(about["taken"])
        return True


def schedule(n: int, classes: int) -> Tensor:
    """Give the classes of a round's images: all in turn, known to everybody."""
    return torch.arange(n) % classes


@contextmanager
def _seeding(seed: int) -> Iterator[None]:
    """Seed torch inside, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
