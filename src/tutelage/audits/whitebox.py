"""The white-box attack of Nasr, Shokri & Houmansadr (2019): a network that reads activations, gradients, loss and label.

Layers and sizes are those of the authors' code (ml_privacy_meter at 61eff20c), kernels from N(0, 0.01²). What is not taken from
it: the best accuracy over epochs, which is chosen on the records that are scored. Here the last epoch counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tutelage.privacy.errors import DataError, RecipeError

Features = dict[str, Tensor]  # by component: (records, ...)
_BLOCK = 64  # records whose gradients are computed at once


def features(
    module: nn.Module, inputs: Any, labels: Any, *, layers: Sequence[str] = (), gradients: Sequence[str] = ()
) -> Features:
    """Look into a network: outputs of `layers` (names of modules), gradients of the loss by `gradients` (names of weights).

    Without names the last layer's output and the last weight matrix's gradient are taken, as in the authors' tutorial.
    """
    matrices = [name for name, weight in module.named_parameters() if weight.ndim > 1]
    leaves = [name for name, part in module.named_modules() if name and not list(part.children())]
    layers, gradients = tuple(layers) or (leaves[-1],), tuple(gradients) or (matrices[-1],)
    if strangers := (set(layers) - set(leaves)) | (set(gradients) - set(matrices)):
        raise RecipeError(f"`layers` and `gradients` must name parts of the network. Got {', '.join(sorted(strangers))} instead.")
    module.eval()
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    chosen = {name: weights.pop(name) for name in gradients}
    others = {**weights, **{name: buffer.detach() for name, buffer in module.named_buffers()}}

    def loss(some: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, {**others, **some}, (one[None],))
        return nn.functional.cross_entropy(logits, label[None])

    slopes = vmap(grad(loss), in_dims=(None, 0, 0))
    rows, wanted = torch.as_tensor(np.asarray(inputs), dtype=torch.float32), torch.as_tensor(np.asarray(labels)).long()
    found: dict[str, list[Tensor]] = {}
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        for name, value in _seen(module, rows[part], wanted[part], layers).items():
            found.setdefault(name, []).append(value)
        for name, value in slopes(chosen, rows[part], wanted[part]).items():
            found.setdefault(f"gradient {name}", []).append(value.detach())
    return {name: torch.cat(parts) for name, parts in found.items()}


def _seen(module: nn.Module, rows: Tensor, labels: Tensor, layers: Sequence[str]) -> Features:
    kept: Features = {}

    def keep(name: str) -> Any:
        def hook(_part: nn.Module, _given: Any, output: Tensor) -> None:
            kept[f"output {name}"] = output.detach()

        return hook

    parts = dict(module.named_modules())
    hooks = [parts[name].register_forward_hook(keep(name)) for name in layers]
    try:
        with torch.no_grad():
            logits = module(rows)
    finally:
        for hook in hooks:
            hook.remove()
    loss = nn.functional.cross_entropy(logits, labels, reduction="none")[:, None]
    return {**kept, "loss": loss, "label": nn.functional.one_hot(labels, logits.shape[1]).float()}


def component(name: str, shape: Sequence[int]) -> tuple[nn.Module, int]:
    """Build the part of the network that reads one kind of feature, and say how wide its output is."""
    if name == "label":
        return nn.Sequential(nn.Linear(shape[0], 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()), 64
    if len(shape) == 1:
        return nn.Sequential(nn.Linear(shape[0], 100), nn.ReLU(), nn.Linear(100, 64), nn.ReLU()), 64
    drop = nn.Dropout(0.2)
    if name.startswith("gradient ") and len(shape) == 2:  # of a dense layer: 100 filters as wide as the matrix
        layers: list[nn.Module] = [drop, _Rows(), nn.Conv2d(1, 100, (1, shape[1])), nn.ReLU(), nn.Flatten()]
        for before, after in ((100 * shape[0], 2024), (2024, 512), (512, 256)):
            layers += [nn.Dropout(0.2), nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers), 256
    if name.startswith("gradient "):  # of a convolution, (out, in, height, width)
        flat = int(np.prod(shape))
        head = [_Planes(), nn.Conv2d(shape[0], shape[0], 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)]
        return nn.Sequential(*head, nn.Linear(flat, 64), nn.ReLU()), 64
    wide = nn.Conv2d(shape[0], shape[0], tuple(shape[1:]))  # a kernel as large as what a convolution gave
    sizes = ((shape[0], 1024), (1024, 512), (512, 128), (128, 64))
    parts = [layer for before, after in sizes for layer in (nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.2))]
    return nn.Sequential(wide, nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), *parts[:-1]), 64


class _Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, None]


class _Planes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(3) if x.ndim == 5 else x


class Attack(nn.Module):
    """Read every component, and give the logit of membership."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        made = {name: component(name, tuple(shape)) for name, shape in shapes.items()}
        self.names = list(made)
        self.parts = nn.ModuleList([part for part, _ in made.values()])
        width = sum(size for _, size in made.values())
        self.encoder = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.normal_(layer.weight, 0.0, 0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, given: Features) -> Tensor:
        return self.encoder(torch.cat([part(given[name]) for name, part in zip(self.names, self.parts, strict=True)], dim=1))[
            :, 0
        ]


@final
@dataclass(frozen=True)
class Whitebox:
    """Train the attack on records whose membership is known, and score others. `epochs` and `batch` are the authors'."""

    epochs: int = 100
    batch: int = 100  # members, and as many others
    rate: float = 1e-3
    seed: int = 0

    def scored(self, members: Features, others: Features, new: Features) -> np.ndarray:
        """Give the probability of membership of new records (records,)."""
        if set(members) != set(others) or set(members) != set(new):
            raise DataError("`members`, `others` and `new` must have the same components. Got different ones instead.")
        scale = {name: torch.cat([members[name], others[name]]).std() + 1e-12 for name in members}
        sides = [{name: value / scale[name] for name, value in side.items()} for side in (members, others, new)]
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            network = Attack({name: value.shape[1:] for name, value in members.items()})
            optimizer = torch.optim.Adam(network.parameters(), lr=self.rate)
            sizes = [len(next(iter(side.values()))) for side in sides]
            for _ in range(self.epochs):
                self._epoch(network, optimizer, sides, sizes)
        network.eval()
        with torch.inference_mode():
            given = [
                network({name: value[start : start + 512] for name, value in sides[2].items()})
                for start in range(0, sizes[2], 512)
            ]
        return torch.cat(given).sigmoid().numpy()

    def _epoch(self, network: Attack, optimizer: torch.optim.Optimizer, sides: Sequence[Features], sizes: Sequence[int]) -> None:
        network.train()
        orders = [torch.randperm(size) for size in sizes[:2]]
        for start in range(0, min(sizes[:2]), self.batch):
            picked = [order[start : start + self.batch] for order in orders]
            given = {name: torch.cat([sides[side][name][picked[side]] for side in (0, 1)]) for name in sides[0]}
            wanted = torch.cat([torch.ones(len(picked[0])), torch.zeros(len(picked[1]))])
            optimizer.zero_grad()
            ((network(given).sigmoid() - wanted) ** 2).mean().backward()
            optimizer.step()
