"""Networks that users write learn in a stack what they learn in the loop, or are refused."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tutelage.nets.products import as_products
from tutelage.nets.training import Training, train_stack
from tutelage.privacy.errors import RecipeError
from tutelage.teachers import engines
from tutelage.teachers.classifier import Classifier
from tutelage.teachers.engines import choose
from tutelage.teachers.ensemble import Ensemble, _asked
from tutelage.teachers.stackable import Stackable

SHORT = Training(steps=20, batch=8, augmentation=None)


class Sharing(nn.Module):
    """Two convolutions with one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.first, self.second = (nn.Conv2d(channels, 4, 3, padding=1) for channels in (1, 4, 4))
        self.second.weight = self.first.weight
        self.leave = nn.Linear(4 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.second(torch.relu(self.first(self.enter(x)))).flatten(1))


class Frozen(nn.Module):
    """A layer that stays as it was built, and one that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.still, self.learning = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 10)
        self.still.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.learning(torch.relu(self.still(x)).flatten(1))


class Scaled(nn.Module):
    """A constant that is not to be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)) * self.scale


class Spectral(nn.Module):
    """A layer that torch cannot stack."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


class Talkative(nn.Module):
    """Two answers in place of one."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def fit(task, network, engine: str) -> Ensemble:
    return Ensemble.fit(network, task.inputs, task.targets, task.shards, training=SHORT, device="cpu", engine=engine)


@pytest.mark.parametrize("network", [Sharing, Frozen, Scaled])
def test_a_stack_gives_what_the_loop_gives(task, network) -> None:
    alone, stacked = fit(task, network, "sequential"), fit(task, network, "stacked")
    assert alone.state.keys() == stacked.state.keys()
    assert all(torch.allclose(alone.state[name], stacked.state[name], atol=1e-5) for name in alone.state)
    assert (alone.predict(task.inputs) == stacked.predict(task.inputs)).mean() > 0.99


@pytest.mark.parametrize("network", [Sharing, Frozen])
def test_products_keep_what_is_shared_and_what_is_still(task, network) -> None:
    shards = [torch.as_tensor(shard) for shard in task.shards]
    inputs = torch.as_tensor(task.inputs).reshape(-1, 1, 8, 8).float()
    learned = train_stack(
        Stackable(network), inputs, torch.as_tensor(task.targets), shards,
        training=SHORT, seed=0, teachers=range(len(shards)), tick=lambda _: None, compiled=False, products=True,
    )  # fmt: skip
    alone = Ensemble.fit(network, inputs.numpy(), task.targets, task.shards, training=SHORT, device="cpu", engine="sequential")
    state = Stackable(network).completed(learned)
    assert all(torch.allclose(alone.state[name], state[name], atol=1e-4) for name in alone.state)


def test_frozen_parameters_stay_as_they_were_built(task) -> None:
    trained = fit(task, Frozen, "stacked")
    torch.manual_seed(0)
    assert [name for name, _ in Stackable(Frozen)().named_parameters()] == ["learning.weight", "learning.bias"]
    first = Ensemble.fit(
        Frozen, task.inputs, task.targets, task.shards, training=Training(steps=1, batch=8, augmentation=None), device="cpu",
        engine="sequential",
    )  # fmt: skip
    assert torch.equal(trained.state["still.weight"], first.state["still.weight"])


def test_a_shared_kernel_is_asked_under_both_names(task) -> None:
    trained = fit(task, Sharing, "stacked")
    one = {name: tensor[0] for name, tensor in trained.state.items()}
    images = torch.rand(3, 1, 8, 8)
    with pytest.raises(ValueError, match="tied"):
        functional_call(as_products(trained.template), one, (images,))
    heard = _asked(as_products(trained.template), one, images)
    assert torch.allclose(heard, trained.network(0)(images), atol=1e-4)


def test_what_cannot_be_stacked_is_trained_one_by_one(task, monkeypatch) -> None:
    inputs = torch.as_tensor(task.inputs).reshape(-1, 1, 8, 8).float()
    shards = tuple(torch.as_tensor(shard) for shard in task.shards * 8)
    material = engines.Material(inputs, torch.as_tensor(task.targets), shards)
    job = engines.Job(factory=Spectral, training=Training(steps=1500, batch=8, augmentation=None), seed=0)
    monkeypatch.setattr(engines, "probe", lambda job, material, *, stack: 1e-2 if not stack else 1e-9)
    monkeypatch.setattr(engines, "movable", lambda factory: False)
    said: list[str] = []  # other people's packages switch loggers off for a whole process
    monkeypatch.setattr(engines.log, "warning", lambda text, *given: said.append(text % given))
    assert choose("auto", job, material).engine == "sequential"
    assert "cannot be stacked (RuntimeError)" in said[0]
    with pytest.raises(RecipeError, match="`engine` must be 'sequential' for networks that cannot be stacked"):
        choose("stacked", job, material)


def test_networks_without_sizes_or_with_two_answers_are_refused(task) -> None:
    with pytest.raises(RecipeError, match=r"whose layers know their sizes\. Got LazyLinear at '1'"):
        fit(task, lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "sequential")
    with pytest.raises(RecipeError, match=r"whose layers know their sizes\. Got LazyBatchNorm1d at '1'"):
        Classifier(lambda: nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(), nn.LazyLinear(10)))
    with pytest.raises(RecipeError, match=r"answers with one tensor\. Got tuple"):
        fit(task, Talkative, "sequential")
