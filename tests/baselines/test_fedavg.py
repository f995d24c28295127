"""Noisy federated averaging: a client's reach, the noise, the book round by round, and what it learns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tutelage.baselines.cohort import Cohort  # noqa: E402
from tutelage.baselines.fedavg import Clients, NoisyFedAvg, unflattened  # noqa: E402
from tutelage.baselines.gradients import built, trainable  # noqa: E402
from tutelage.data.dataset import Private  # noqa: E402
from tutelage.nets.networks import Perceptron  # noqa: E402
from tutelage.nets.unet import UNet  # noqa: E402
from tutelage.nets.warps import Warp  # noqa: E402
from tutelage.privacy.errors import BudgetExceeded, DataError, RecipeError  # noqa: E402
from tutelage.privacy.events import Gaussian, Sampled  # noqa: E402
from tutelage.privacy.ledger import Budget  # noqa: E402
from tutelage.privacy.sealed import _KEY  # noqa: E402

CPU = torch.device("cpu")
NET = UNet(shape=(1, 8, 8), widths=(4, 8), groups=2)
WIDE = Perceptron(features=64, classes=2, widths=(256,))
FINE = {"epsilon": 8.0, "delta": 1e-5, "device": "cpu"}
PATIENT = Budget(8.0, 1e-5, "patient")


def changes(plan: NoisyFedAvg, private: Private) -> np.ndarray:
    """What every client would send, before the mechanism clips it: (clients, 1, dimension)."""
    network = built(plan.network, seed=0, device=CPU)
    weights = torch.cat([tensor.detach().flatten().double() for tensor in trainable(network).values()])
    return Clients(plan, network, private).changes(weights, private.places)._open(_KEY)


@pytest.mark.parametrize("poison", [1e6, np.nan, np.inf])
def test_one_client_moves_the_sum_by_no_more_than_the_diameter(poison: float, toy: Any) -> None:
    images, masks = toy(5, 0)
    plan = NoisyFedAvg(NET, **FINE, clip=1e-2, local_steps=2, views=2, augmentation=Warp(shift=1.0), chunk=2)
    before = changes(plan, Private.of(images, masks, unit="patient"))
    images, masks = images.copy(), masks.copy()
    images[1], masks[1] = poison, 1 - masks[1]
    after = changes(plan, Private.of(images, masks, unit="patient"))
    assert np.allclose(np.delete(before, 1, axis=0), np.delete(after, 1, axis=0), atol=1e-7)  # the others do not change
    absent = changes(plan, Private.of(images, masks, unit="patient")[[0, 2, 3, 4]])
    assert not absent[1].any()  # an empty place
    assert np.allclose(np.delete(before, 1, axis=0), np.delete(absent, 1, axis=0), atol=1e-7)
    mechanism = plan.mechanism(before.shape[-1], 5, PATIENT)
    event = mechanism.event()
    assert isinstance(event, Gaussian)
    sums = [sum(mechanism.bound.clip(change[0]) for change in given) for given in (before, after)]
    assert np.linalg.norm(sums[1] - sums[0]) <= event.sensitivity
    assert np.linalg.norm(sums[1] - sums[0]) > 0.1 * plan.clip
    assert event.sensitivity == pytest.approx(2 * plan.clip)
    assert np.linalg.norm(before[0]) > event.sensitivity  # a twin without the clip would be seen


def test_the_rounds_are_priced_exactly() -> None:
    plan = NoisyFedAvg(NET, **FINE, rounds=30, clip=0.5)
    event = plan.event(plan.mechanism(100, 200, PATIENT), 200)
    assert isinstance(event, Gaussian)
    from dp_accounting.pld import privacy_loss_distribution as pld

    judged = pld.from_gaussian_mechanism(event.sigma / (2 * 0.5 * 30**0.5)).get_epsilon_for_delta(1e-5)
    assert judged == pytest.approx(8.0, rel=1e-4)
    twin = pld.from_gaussian_mechanism(event.sigma / 2 / (2 * 0.5 * 30**0.5)).get_epsilon_for_delta(1e-5)
    assert twin > 16  # noise for the radius


def test_some_clients_are_a_sample_of_fixed_size() -> None:
    plan = NoisyFedAvg(NET, **{**FINE, "epsilon": 1.0}, rounds=4, rate=0.25)
    mechanism = plan.mechanism(100, 40, PATIENT)
    assert mechanism.teachers == 10
    event = plan.event(mechanism, 40)
    assert isinstance(event, Sampled)
    assert (event.sampler, event.size, event.population) == ("fixed", 10, 40)


def test_the_operating_system_draws_the_clients(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    system = random._urandom  # type: ignore[attr-defined]
    monkeypatch.setattr(random, "_urandom", lambda size: (heard.append(size), system(size))[1])
    plan = NoisyFedAvg(NET, **FINE, local_steps=1, views=1)
    network = built(NET, seed=0, device=CPU)
    weights = torch.cat([tensor.detach().flatten().double() for tensor in trainable(network).values()])
    clients = Clients(plan, network, Private.of(*toy(8, 0), unit="patient"))
    clients.changes(weights, 8)
    assert not heard  # everyone takes part
    clients.changes(weights, 4)
    assert sum(heard) >= 4


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_add_remove_is_refused(rate: float, toy: Any, book: Any) -> None:
    plan = NoisyFedAvg(NET, **FINE, rate=rate)
    for unit in ("patient", "institution"):
        with pytest.raises(RecipeError, match=r"must be 'replace-one'\. Got 'add-remove' instead"):
            plan.mechanism(100, 40, Budget(3.0, 1e-5, unit, "add-remove"))
    with book(8.0, adjacency="add-remove") as ledger:
        with pytest.raises(RecipeError, match=r"must be 'replace-one'\. Got 'add-remove' instead"):
            plan.fit(Private.of(*toy(24, 0), unit="patient"), ledger=ledger)
        assert ledger.totals() == []


def test_one_bad_label_changes_nothing_but_its_own_part(book: Any) -> None:
    private = Private.of(np.ones((4, 64), np.float32), np.array([0, 1, 98765, 0]), unit="patient")
    with book(8.0) as ledger:
        NoisyFedAvg(WIDE, **FINE, rounds=1).fit(private, ledger=ledger)
        assert ledger.totals()


def test_nobody_present_is_a_model_all_the_same(book: Any) -> None:
    """An error after the charge told whether anybody was there."""
    private = Private.of(np.ones((4, 64), np.float32), np.zeros(4, np.int64), unit="patient")[:0]
    with book(8.0) as ledger:
        fitted = NoisyFedAvg(WIDE, **FINE, rounds=2).fit(private, ledger=ledger)
        assert sum(count for _, count in ledger.totals()) == 2
    assert all(np.isfinite(np.asarray(value)).all() for value in fitted.state.values())


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_model_carries_the_noise_that_was_charged(rate: float, book: Any) -> None:
    chance = np.random.default_rng(0)
    private = Private.of(chance.random((20, 64), np.float32), chance.integers(0, 2, 20), unit="patient")
    plan = NoisyFedAvg(WIDE, epsilon=1.0, delta=1e-5, device="cpu", rounds=2, clip=1e-2, local_steps=1, rate=rate)
    with book(1.0) as ledger:
        fitted = plan.fit(private, ledger=ledger)
        ((event, count),) = ledger.totals()
        assert 0.99 < ledger.spent().epsilon <= 1.0
        assert [entry.body["count"] for entry in ledger.entries() if entry.kind == "charge"] == [1, 1]  # round by round
    assert count == 2
    start = built(WIDE, seed=0, device=CPU).state_dict()
    noise = torch.cat([(fitted.state[name] - start[name]).flatten() for name in start]).double() * 20 * rate
    sigma = (event.event if isinstance(event, Sampled) else event).sigma * 2**0.5
    assert abs(float(noise.std()) / sigma - 1) < 0.04
    assert abs(float(noise.std()) / (sigma / 2) - 1) > 0.5  # a twin that noises for the radius


def test_the_book_is_written_before_a_record_is_read(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    seen: list[int] = []
    with book(8.0) as ledger:
        read = Cohort.of
        monkeypatch.setattr(Cohort, "of", lambda *a, **k: (seen.append(sum(n for _, n in ledger.totals())), read(*a, **k))[1])
        plan = NoisyFedAvg(WIDE, **FINE, rounds=3, local_steps=1)
        plan.fit(private, ledger=ledger)
        assert seen == [1]
        with pytest.raises(BudgetExceeded, match="nothing was read"):
            plan.fit(private, ledger=ledger)
        assert seen == [1]
        assert sum(count for _, count in ledger.totals()) == 3


def test_a_broken_client_quotes_nothing(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise ValueError("patient 98765 has 3.5")

    monkeypatch.setattr(Clients, "_changed", failing)
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    with book(8.0) as ledger, pytest.raises(DataError) as caught:
        NoisyFedAvg(WIDE, **FINE).fit(private, ledger=ledger)
    assert "98765" not in str(caught.value)


def test_weights_survive_the_way_to_a_vector_and_back() -> None:
    network = built(NET, seed=0, device=CPU)
    weights = torch.cat([tensor.detach().flatten() for tensor in trainable(network).values()])
    assert all(torch.equal(part, trainable(network)[name]) for name, part in unflattened(weights, network).items())


@pytest.mark.parametrize(("name", "value"), [("rounds", 0), ("rate", 2.0), ("clip", 0.0), ("local_steps", 0), ("momentum", 1.0)])
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=f"`{name}` must"):
        NoisyFedAvg(NET, **{**FINE, name: value})


def test_it_learns_masks_where_noise_allows(book: Any, toy: Any) -> None:
    private, (images, masks) = Private.of(*toy(20, 0), unit="patient"), toy(20, 1)
    plan = NoisyFedAvg(
        NET, epsilon=1000.0, delta=1e-5, device="cpu", rounds=15, local_steps=2, local_rate=0.5, clip=2.0, server_rate=1.5,
        momentum=0.5, views=1, chunk=20,
    )  # fmt: skip
    with book(1000.0) as ledger:
        told: list[int] = []
        fitted = plan.fit(private, ledger=ledger, progress=lambda done, of: told.append(of - done))
    assert told[-1] == 0
    mine = fitted.predict(images)
    assert np.mean([2 * (one & mask).sum() / (one.sum() + mask.sum()) for one, mask in zip(mine, masks, strict=True)]) > 0.85
