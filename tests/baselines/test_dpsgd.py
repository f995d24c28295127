"""DP-SGD: the clip bounds a unit, the noise is what the book says, the book comes first, and it learns."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from tutelage.baselines import dpsgd  # noqa: E402
from tutelage.baselines.cohort import Cohort  # noqa: E402
from tutelage.baselines.dpsgd import DPSGD, Descent  # noqa: E402
from tutelage.baselines.gradients import built, trainable, unit_gradients  # noqa: E402
from tutelage.data.dataset import Private  # noqa: E402
from tutelage.nets.augmentation import Augmentation  # noqa: E402
from tutelage.nets.networks import ConvNet, Perceptron  # noqa: E402
from tutelage.nets.slices import Slices  # noqa: E402
from tutelage.nets.unet import UNet  # noqa: E402
from tutelage.nets.warps import Warp  # noqa: E402
from tutelage.privacy.errors import BudgetExceeded, DataError, RecipeError  # noqa: E402
from tutelage.privacy.events import Gaussian, Sampled  # noqa: E402
from tutelage.privacy.units import Roster  # noqa: E402

CPU = torch.device("cpu")
NET = UNet(shape=(1, 8, 8), widths=(4, 8), groups=2)
WIDE = Perceptron(features=64, classes=2, widths=(256,))
FINE = {"epsilon": 8.0, "delta": 1e-5, "device": "cpu"}


def clipped_sum(plan: DPSGD, private: Private) -> Any:
    """The noiseless sum that one step would noise, as one long float64 vector."""
    network = built(plan.network, seed=0, device=CPU)
    cohort = Cohort.of(private, device=CPU)
    descent = Descent(plan, network, sigma=1.0)
    views = torch.Generator().manual_seed(plan.seed)
    for part in torch.arange(len(cohort)).split(plan.chunk):
        seen = cohort.views(part, plan.multiplicity, augmentation=plan.augmentation, generator=views)
        descent.gather(*seen, present=cohort.present(part))
    return torch.cat([parameter.summed_grad.flatten().double() for parameter in descent.weights.values()])


# ── a unit's reach ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("poison", [1e6, -1e20, np.nan, np.inf])
def test_one_unit_moves_the_sum_by_no_more_than_the_sensitivity(poison: float, toy: Any) -> None:
    images, masks = toy(6, 0)
    records, marks, units = np.concatenate([images, images[:2]]), np.concatenate([masks, masks[:2]]), [0, 1, 2, 3, 4, 5, 0, 1]
    plan = DPSGD(NET, **FINE, clip=1e-3, multiplicity=2, augmentation=Warp(shift=1.0), chunk=4)
    told = {"units": units, "unit": "patient", "roster": Roster.places(6)}
    before = clipped_sum(plan, Private.of(records, marks, **told))
    records, marks = records.copy(), marks.copy()
    records[[1, 7]], marks[[1, 7]] = poison, 1 - marks[[1, 7]]
    after = clipped_sum(plan, Private.of(records, marks, **told))
    moved = float((after - before).norm())
    assert torch.isfinite(after).all()
    assert 0 < moved <= plan.sensitivity()
    assert float(before.norm()) <= 6 * plan.sensitivity() / 2


def test_a_twin_without_clipping_would_be_seen(toy: Any) -> None:
    images, masks = toy(6, 0)
    other = images.copy(), masks.copy()
    other[1][1] = 1 - other[1][1]
    honest = DPSGD(NET, **FINE, clip=1e-3, multiplicity=1)
    twin = DPSGD(NET, **FINE, clip=1e9, multiplicity=1)
    moved = (clipped_sum(twin, Private.of(*other)) - clipped_sum(twin, Private.of(images, masks))).norm()
    assert float(moved) > honest.sensitivity()


class Mixing(torch.nn.Module):
    """A stranger's layer: everyone's mean is taken off."""

    def forward(self, x: Any) -> Any:
        return x - x.mean(dim=0, keepdim=True)


def test_a_strangers_network_sees_one_unit_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one batch with others a unit would reach them all: the twin believes that any network keeps records apart."""
    chance = np.random.default_rng(0)
    images, labels = chance.random((12, 64), np.float32), np.arange(12) % 2
    other = images.copy()
    other[3] += 100
    plan = DPSGD(lambda: torch.nn.Sequential(Mixing(), torch.nn.Linear(64, 2)), **FINE, clip=1e-3, multiplicity=2, chunk=12)

    def moved() -> float:
        return float((clipped_sum(plan, Private.of(other, labels)) - clipped_sum(plan, Private.of(images, labels))).norm())

    assert moved() <= plan.sensitivity()
    monkeypatch.setattr(dpsgd, "sampled", lambda _: True)
    assert moved() > 1.5 * plan.sensitivity()


def test_slices_are_not_taken_for_records() -> None:
    plane = torch.nn.Conv2d(1, 1, 3, padding=1)
    assert dpsgd.sampled(plane)
    assert not dpsgd.sampled(Slices(plane))


def test_one_unit_can_move_it_by_the_diameter() -> None:
    """So a twin that noises for the radius promises what it does not keep: at ½, turning a label turns the gradient round."""
    images, labels = np.ones((4, 8), np.float32), np.array([0, 1, 0, 1])
    plan = DPSGD(_even, **FINE, clip=0.1, multiplicity=1)
    before = clipped_sum(plan, Private.of(images, labels))
    after = clipped_sum(plan, Private.of(images, np.array([1, 1, 0, 1])))
    assert float((after - before).norm()) == pytest.approx(2 * plan.clip, rel=1e-3)
    assert float((after - before).norm()) <= plan.sensitivity()


def test_a_unit_that_goes_takes_its_own_gradient_along_and_moves_nobody(toy: Any) -> None:
    images, masks = toy(24, 0)
    plan = DPSGD(NET, **FINE, clip=1e-3, multiplicity=1, augmentation=Warp(shift=3.0, rotation=45.0), chunk=4)
    everyone, fewer = Private.of(images, masks), Private.of(images[1:], masks[1:])
    before = clipped_sum(plan, everyone)
    assert 0 < float((clipped_sum(plan, everyone[1:]) - before).norm()) <= 1.001 * plan.clip
    assert float((clipped_sum(plan, fewer) - before).norm()) > 1.1 * plan.clip  # the twin closes the gap: others get other views


def test_add_remove_is_refused(book: Any, toy: Any) -> None:
    everyone = Private.of(*toy(24, 0), unit="patient")
    for rate in (1.0, 0.5):
        with book(8.0, adjacency="add-remove") as ledger:
            with pytest.raises(RecipeError, match=r"must be 'replace-one'\. Got 'add-remove' instead"):
                DPSGD(NET, **FINE, rate=rate).fit(everyone, ledger=ledger)
            assert ledger.totals() == []


def _even() -> Any:
    network = torch.nn.Linear(8, 2)
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    return network


def test_gradients_are_those_that_opacus_finds() -> None:
    from opacus.grad_sample import GradSampleModule

    factory = ConvNet(shape=(1, 8, 8), classes=3, widths=(4,), groups=2, hidden=8)
    network, chance = built(factory, seed=0, device=CPU), torch.Generator().manual_seed(0)
    images, labels = torch.rand(5, 1, 8, 8, generator=chance), torch.tensor([0, 1, 2, 0, 1])
    ours = unit_gradients(network, trainable(network), images[:, None], labels[:, None], shared=True)
    hooked = GradSampleModule(built(factory, seed=0, device=CPU))
    torch.nn.functional.cross_entropy(hooked(images.requires_grad_()), labels).backward()  # else torch warns about its hooks
    for name, parameter in hooked._module.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad_sample, rtol=1e-4, atol=1e-6)


def test_views_are_averaged_before_the_clip() -> None:
    chance = np.random.default_rng(0)
    images, labels = chance.random((3, 64), np.float32), np.array([0, 1, 1])
    network = built(WIDE, seed=0, device=CPU)
    seen, wanted = torch.from_numpy(images), torch.from_numpy(labels)
    together = unit_gradients(network, trainable(network), seen[None], wanted[None], shared=True)
    apart = unit_gradients(network, trainable(network), seen[:, None], wanted[:, None], shared=True)
    for name, slope in together.items():
        torch.testing.assert_close(slope[0], apart[name].mean(0), rtol=1e-4, atol=1e-7)


# ── the noise ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def noise_agrees(noise: Any, sigma: float) -> bool:
    """Tell whether some 17,000 numbers look like N(0, sigma²): standard deviation within 3 % (five of its own errors)."""
    return bool(abs(noise.std() / sigma - 1) < 0.03 and abs(noise.mean()) < 5 * sigma / len(noise) ** 0.5)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_model_carries_the_noise_that_was_charged(rate: float, book: Any) -> None:
    chance = np.random.default_rng(0)
    private = Private.of(chance.random((20, 64), np.float32), chance.integers(0, 2, 20), unit="patient")
    plan = DPSGD(WIDE, epsilon=1.0, delta=1e-5, device="cpu", steps=1, rate=rate, clip=1e-2, optimizer="sgd", momentum=0.0)
    with book(1.0) as ledger:
        fitted = plan.fit(private, ledger=ledger)
        ((event, count),) = ledger.totals()
        assert 0.99 < ledger.spent().epsilon <= 1.0
    assert count == 1
    inner = event.event if isinstance(event, Sampled) else event
    assert isinstance(inner, Gaussian)
    start = built(WIDE, seed=0, device=CPU).state_dict()
    moved = torch.cat([(fitted.state[name] - start[name]).flatten() for name in start]).double()
    noise = moved * (20 * rate) / -plan.learning_rate  # the sum of gradients beside it is small: 20 units against 17,000 numbers
    assert noise_agrees(noise, inner.sigma)
    assert not noise_agrees(noise, inner.sigma / 2)  # a twin that noises for the radius
    assert not noise_agrees(noise * 0 + 1e-9, inner.sigma)  # or not at all


def test_no_seed_repeats_noise(book: Any) -> None:
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    plan = DPSGD(WIDE, **FINE, steps=1)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        with book(8.0) as ledger:
            found.append(plan.fit(private, ledger=ledger).state["1.weight"])
    assert not torch.equal(*found)


def test_samples_are_drawn_anew_in_every_step(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    draw = dpsgd.taking_part
    monkeypatch.setattr(dpsgd, "taking_part", lambda units, size: (asked.append((units, size)), draw(units, size))[1])
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    with book(1.0) as ledger:
        DPSGD(WIDE, epsilon=1.0, delta=1e-5, device="cpu", steps=3, rate=0.5).fit(private, ledger=ledger)
    assert asked == [(8, 4)] * 3


def test_volumes_and_products_give_the_same_gradients() -> None:
    """What runs on a GPU is the same function: convolutions as products, of volumes too."""
    from tutelage.nets.products import as_products

    network = built(UNet(shape=(1, 6, 4, 4), widths=(2, 4), groups=2), seed=0, device=CPU)
    chance = torch.Generator().manual_seed(0)
    images = torch.rand(3, 2, 1, 6, 4, 4, generator=chance)
    masks = (torch.rand(3, 2, 6, 4, 4, generator=chance) > 0.5).float()
    product = as_products(network)
    plain = unit_gradients(network, trainable(network), images, masks, shared=True)
    other = unit_gradients(product, trainable(product), images, masks, shared=True)
    own = {name: tensor.expand(3, *tensor.shape) for name, tensor in trainable(product).items()}
    apart = unit_gradients(product, own, images, masks, shared=False)
    for name, slope in plain.items():
        torch.testing.assert_close(slope, other[name], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(slope, apart[name], rtol=1e-3, atol=1e-5)


# ── the book ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_book_is_written_before_a_record_is_read(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    seen: list[int] = []
    with book(8.0) as ledger:
        read = Cohort.of
        monkeypatch.setattr(Cohort, "of", lambda *a, **k: (seen.append(sum(n for _, n in ledger.totals())), read(*a, **k))[1])
        DPSGD(WIDE, **FINE, steps=3).fit(private, ledger=ledger)
        assert seen == [3]
        with pytest.raises(BudgetExceeded):
            DPSGD(WIDE, **FINE, steps=3).fit(private, ledger=ledger)
        assert seen == [3]


def test_what_is_refused_costs_nothing(book: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    private = Private.of(*toy(4, 0), unit="patient")
    with book(8.0, unit="record") as ledger, pytest.raises(RecipeError, match="must be the data's, 'patient'"):
        DPSGD(NET, **FINE).fit(private, ledger=ledger)
    with book(8.0) as ledger:
        with pytest.raises(RecipeError, match="must be a Warp"):
            DPSGD(NET, **FINE, augmentation=Augmentation(shift=1.0)).fit(private, ledger=ledger)
        with pytest.raises(RecipeError, match="GroupNorm"):
            DPSGD(lambda: torch.nn.BatchNorm2d(1), **FINE).fit(private, ledger=ledger)
        monkeypatch.setitem(sys.modules, "opacus.optimizers", None)
        with pytest.raises(RecipeError, match=r"pip install 'tutelage\[baselines\]'"):
            DPSGD(NET, **FINE).fit(private, ledger=ledger)
        assert ledger.totals() == []


def test_one_bad_label_changes_nothing_but_its_own_part(book: Any) -> None:
    private = Private.of(np.ones((8, 64), np.float32), np.array([0, 1, 0, 98765, 0, 1, 0, 1]), unit="patient")
    with book(8.0) as ledger:
        DPSGD(WIDE, **FINE, steps=1).fit(private, ledger=ledger)
        assert ledger.totals()
    plan = DPSGD(WIDE, **FINE, steps=1)
    with pytest.raises((IndexError, RuntimeError), match="98765"):  # the twin that trains at once
        plan._trained(built(WIDE, seed=0, device=CPU), Cohort.of(private, device=CPU), plan.event(8), None)


def test_nobody_present_is_a_model_all_the_same(book: Any) -> None:
    """An error after the charge told whether anybody was there."""
    private = Private.of(np.ones((4, 64), np.float32), np.zeros(4, np.int64), unit="patient")[:0]
    with book(8.0) as ledger:
        fitted = DPSGD(WIDE, **FINE, steps=2).fit(private, ledger=ledger)
        assert ledger.totals()
    assert all(np.isfinite(np.asarray(value)).all() for value in fitted.state.values())


def test_the_number_of_units_must_be_public(book: Any) -> None:
    private = Private.of(np.ones((4, 64), np.float32), np.arange(4) % 2, units=list("abcd"), unit="patient")
    with book(8.0) as ledger:
        with pytest.raises(RecipeError, match="`private` must have a `roster` for a baseline"):
            DPSGD(WIDE, **FINE, steps=1).fit(private, ledger=ledger)
        assert ledger.totals() == []


def test_a_training_that_breaks_quotes_nothing(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise ValueError("patient 98765 has 3.5")

    monkeypatch.setattr(Descent, "gather", failing)
    private = Private.of(np.ones((8, 64), np.float32), np.arange(8) % 2, unit="patient")
    with book(8.0) as ledger, pytest.raises(DataError, match="Got ValueError instead; its message is withheld") as caught:
        DPSGD(WIDE, **FINE, steps=1).fit(private, ledger=ledger)
    assert "98765" not in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert not {"failing", "_trained"} & {entry.name for entry in caught.traceback}  # their frames hold records


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("rate", 0.0), ("clip", -1.0), ("epsilon", 0.0), ("delta", 1.0), ("optimizer", "lion"), ("averaging", 1.0)],
)
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=f"`{name}` must"):
        DPSGD(NET, **{**FINE, name: value})


# ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_learns_masks_where_noise_allows(book: Any, toy: Any) -> None:
    private, (images, masks) = Private.of(*toy(24, 0), unit="patient"), toy(20, 1)
    plan = DPSGD(
        NET, epsilon=1000.0, delta=1e-5, device="cpu", steps=30, learning_rate=3e-2, averaging=0.7,
        augmentation=Warp(shift=1.0), multiplicity=2, chunk=24,
    )  # fmt: skip
    with book(1000.0) as ledger:
        told: list[tuple[int, int]] = []
        fitted = plan.fit(private, ledger=ledger, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (30, 30)
    assert fitted.probabilities(images).shape == masks.shape
    assert np.mean([_dice(mine, mask) for mine, mask in zip(fitted.predict(images), masks, strict=True)]) > 0.8  # everything: 0.4
    assert "UNet" in repr(fitted)


def test_it_learns_labels(book: Any, toy: Any) -> None:
    images, masks = toy(80, 0)
    left = (masks[:, :, :4].sum(axis=(1, 2)) > masks[:, :, 4:].sum(axis=(1, 2))).astype(int)
    plan = DPSGD(WIDE, epsilon=100.0, delta=1e-5, device="cpu", steps=20, learning_rate=5e-3, multiplicity=1, chunk=80)
    with book(100.0) as ledger:
        fitted = plan.fit(Private.of(images, left, unit="patient"), ledger=ledger)
    assert fitted.probabilities(images).shape == (80, 2)
    assert (fitted.predict(images) == left).mean() > 0.8


def _dice(mine: Any, mask: Any) -> float:
    return float(2 * (mine & mask).sum() / (mine.sum() + mask.sum()))
