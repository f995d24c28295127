"""Small networks as factories: a frozen dataclass says what to build, calling it builds one with fresh weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin

from tutelage.nets.allconv import AllConv
from tutelage.nets.classics import AlexNet, NormedConvNet
from tutelage.nets.layers import Halve, Standardise
from tutelage.nets.presets import Preset
from tutelage.nets.unet import UNet
from tutelage.privacy.errors import Error, RecipeError

Factory = Callable[[], nn.Module]


@final
@dataclass(frozen=True, kw_only=True)
class ConvNet:
    """Build convolution, group norm, halving pool, ReLU per width, then one hidden layer: the default for small images."""

    shape: tuple[int, int, int] = (1, 28, 28)
    classes: int = 10
    widths: tuple[int, ...] = (16, 32, 64)
    kernel: int = 3
    hidden: int = 64
    groups: int = 8  # 0: no normalisation
    centre: float = 0.5
    spread: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "widths", tuple(self.widths))
        if self.kernel % 2 == 0 or self.kernel < 1:
            raise RecipeError(f"`kernel` must be odd. Got {self.kernel!r} instead.")
        if self.groups and any(width % self.groups for width in self.widths):
            raise RecipeError(f"`groups` must divide every width of {self.widths}. Got {self.groups!r} instead.")
        if min(self.shape[1:]) >> len(self.widths) < 1:
            raise RecipeError(f"`widths` must not halve a {self.shape[1:]} image to nothing. Got {self.widths} instead.")

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, height, width) in [0, 1] → (batch, classes)."""
        channels, height, width = self.shape
        layers: list[nn.Module] = [Standardise(self.centre, self.spread)]
        for out in self.widths:
            layers.append(nn.Conv2d(channels, out, self.kernel, padding=self.kernel // 2))
            if self.groups:
                layers.append(nn.GroupNorm(self.groups, out))
            layers += [Halve(), nn.ReLU()]  # they commute, and this order has a quarter of the ReLUs
            channels, height, width = out, height // 2, width // 2
        layers += [nn.Flatten(), nn.Linear(channels * height * width, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden, self.classes))


@final
class Block(nn.Module):
    """Add two normalised 3×3 convolutions to their input, halving the image where the stride says so."""

    def __init__(self, channels: int, out: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, out)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, out)
        self.skip = nn.Identity() if channels == out and stride == 1 else nn.Conv2d(channels, out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.skip(x))


@final
@dataclass(frozen=True, kw_only=True)
class ResidualNet:
    """Build a small residual network with GroupNorm and average pooling, for colour images."""

    shape: tuple[int, int, int] = (1, 28, 28)
    classes: int = 10
    widths: tuple[int, ...] = (32, 64, 128)
    blocks: int = 1
    groups: int = 8
    centre: float = 0.5
    spread: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "widths", tuple(self.widths))
        if self.groups < 1 or any(width % self.groups for width in self.widths):
            raise RecipeError(f"`groups` must divide every width of {self.widths}. Got {self.groups!r} instead.")

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, height, width) in [0, 1] → (batch, classes)."""
        channels = self.widths[0]
        layers: list[nn.Module] = [
            Standardise(self.centre, self.spread),
            nn.Conv2d(self.shape[0], channels, 3, padding=1, bias=False),
            nn.GroupNorm(self.groups, channels),
            nn.ReLU(),
        ]
        for stage, out in enumerate(self.widths):
            for block in range(self.blocks):
                layers.append(Block(channels, out, stride=2 if stage and not block else 1, groups=self.groups))
                channels = out
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, self.classes))


@final
@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Build fully connected layers with ReLU: for tables, and for features that were learned on public data."""

    features: int
    classes: int
    widths: tuple[int, ...] = (128,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))

    def __call__(self) -> nn.Module:
        """Build one network: (batch, ...) flattened to (batch, features) → (batch, classes)."""
        layers: list[nn.Module] = [nn.Flatten()]
        features = self.features
        for width in self.widths:
            layers += [nn.Linear(features, width), nn.ReLU()]
            features = width
        return nn.Sequential(*layers, nn.Linear(features, self.classes))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Started:
    """Build a network that begins with weights learned before, on public data."""

    factory: Factory
    state: dict[str, Tensor]

    def __call__(self) -> nn.Module:
        """Build one network with these weights."""
        network = self.factory()
        network.load_state_dict(self.state)
        return network

    @property
    def sha256(self) -> str:
        """Name the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state.items()):
            digest.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
        return digest.hexdigest()


KINDS = (ConvNet, ResidualNet, AllConv, Perceptron, UNet, Preset, NormedConvNet, AlexNet)  # what can be written down and rebuilt


def describe(factory: Factory) -> str:
    """Write one of this package's factories as JSON; any other factory as its qualified name, which `restore` refuses."""
    if isinstance(factory, Started):
        return json.dumps({**json.loads(describe(factory.factory)), "start": factory.sha256}, sort_keys=True)
    if isinstance(factory, KINDS):
        return json.dumps({"network": type(factory).__name__, **asdict(factory)}, sort_keys=True)
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return json.dumps({"network": f"{factory.__module__}.{name}"})


def restore(description: str) -> Factory:
    """Rebuild a factory of this package from its JSON."""
    given: dict[str, Any] = json.loads(description)
    name = given.pop("network", None)
    given.pop("start", None)  # where its weights began matters no more
    for kind in KINDS:
        if kind.__name__ == name and set(given) <= {field.name for field in fields(kind)}:
            return kind(**given)
    raise RecipeError(f"`factory` must be given to load a network that this package does not define. Got {name!r} instead.")


def checked(factory: Any) -> Factory:
    """Refuse what cannot build networks, before any data is read or anything is written."""
    if isinstance(factory, nn.Module):
        raise RecipeError(
            "`network` must be a factory: something that builds a new network at every call, such as the class itself or "
            f"`lambda: {type(factory).__name__}(...)`. Got one network of type {type(factory).__name__} instead."
        )
    if not callable(factory):
        raise RecipeError(f"`network` must be a function, class or dataclass that builds networks. Got {factory!r} instead.")
    try:
        with torch.random.fork_rng(devices=[]):  # its weights are thrown away, and must not move anybody's randomness
            built, again = factory(), factory()
    except Error:
        raise
    except Exception as error:  # a user's code may raise anything; no private value has been near it
        raise RecipeError(
            "`network` must build a network when it is called without arguments, as `lambda: Net(width=8)` does. "
            f"Got {type(error).__name__} instead."
        ) from error
    if not isinstance(built, nn.Module):
        raise RecipeError(f"`network` must build a torch.nn.Module. Got one that builds {type(built).__name__} instead.")
    refuse_unfinished(built)
    if _shared(built, again):  # teachers would learn from each other's records
        raise RecipeError(
            "`network` must build a new network at every call, with weights of its own. Got one that hands out the same weights "
            "instead."
        )
    refuse_batch_mixing(built)
    return factory


def _shared(one: nn.Module, other: nn.Module) -> bool:
    """Tell whether training one of two networks would change the other."""
    places = [
        {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers()) if tensor.numel()}
        for network in (one, other)
    ]
    return one is other or bool(places[0] & places[1] - {0})


def refuse_unfinished(network: nn.Module) -> None:
    """Refuse layers that wait for a first input to know their size: teachers are stacked before they see one."""
    for name, layer in network.named_modules():
        own = (*layer._parameters.values(), *layer._buffers.values())
        if any(isinstance(tensor, UninitializedTensorMixin) for tensor in own):
            raise RecipeError(
                "`factory` must build a network whose layers know their sizes. "
                f"Got {type(layer).__name__} at {name or 'the root'!r} instead."
            )


def refuse_batch_mixing(module: nn.Module) -> None:
    """Refuse layers whose training step ties the records of a batch together or writes running statistics."""
    for name, layer in module.named_modules():
        running = getattr(layer, "track_running_stats", False)
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or (
            isinstance(layer, nn.modules.instancenorm._InstanceNorm) and running
        ):
            raise RecipeError(
                "`factory` must build a network without layers that mix a batch or keep running statistics; "
                "use GroupNorm (nn.GroupNorm(8, channels)) in their place. "
                f"Got {type(layer).__name__} at {name or 'the root'!r} instead."
            )
