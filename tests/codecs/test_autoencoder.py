"""The learned codec: inside its bound, trained for its noise, the same after a file; and twins that must be caught."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.codecs.conftest import ellipses
from tests.conformance.suites import check_codec, check_fit, check_masks
from tests.conformance.test_codecs import SHAPES, made

from tutelage.codecs import bottleneck, passes
from tutelage.codecs.autoencoder import KIND, Autoencoder
from tutelage.codecs.ball import uniform_ball
from tutelage.codecs.bottleneck import ACTIVATIONS, Coder, bounded, default_widths
from tutelage.codecs.denoising import distance
from tutelage.data.dataset import Private, Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.bounds import Ball, Cube
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def brief(public: Public, activation: str = "ball", **changed: Any) -> Autoencoder:
    """A few steps: enough to have moved."""
    settings = {"dim": 5, "steps": 3, "batch": 8, "widths": (4, 8), "device": "cpu", "noise": 0.1} | changed
    return Autoencoder.fit(public, activation=activation, **settings)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_conforms(activation: str, shape: tuple[int, ...]) -> None:
    public, rng = made(shape), np.random.default_rng(1)
    codec = brief(public, activation)
    predictions = np.clip(public.targets[:5] + rng.normal(0, 0.3, (4, 5, *shape)), 0, 1).astype(np.float32)
    codes = codec.encode(predictions)
    assert codes.dtype == np.float64
    check_codec(codec, predictions, public.inputs[:5], codes.mean(axis=0))
    check_masks(codec, shape)
    check_fit(lambda data: brief(data, activation), public, made(shape, seed=1))
    answers = codec.decode(100 * codes.mean(axis=0), public.inputs[:5])  # noise may carry a code anywhere
    assert answers.shape == (5, *shape)
    assert answers.min() >= 0
    assert answers.max() <= 1


def test_its_bounds(public: Public) -> None:
    assert brief(public, "tanh").bound == Cube(5)
    assert brief(public, "clip", norm=3.0).bound == Ball(5, 3.0)
    assert brief(public, "ball").bound == Ball(5, 1.0)


@pytest.mark.parametrize(("activation", "bound"), [("tanh", Cube(6)), ("clip", Ball(6, 2.0)), ("ball", Ball(6, 1.0))])
def test_activations_stay_inside_and_keep_their_slope(activation: Any, bound: Any) -> None:
    rng, norm = np.random.default_rng(0), getattr(bound, "norm", 1.0)
    values = rng.normal(0, 1, (200, 6 + (activation == "ball"))) * 10.0 ** rng.integers(-9, 9, (200, 1))
    codes = bounded(torch.from_numpy(values), activation=activation, norm=norm).numpy()
    assert np.allclose(bound.clip(codes), codes, rtol=1e-12, atol=0)
    assert np.abs(codes).max() > 0.4  # far from nothing
    odd = torch.tensor(np.vstack([values, np.zeros_like(values[:1])]), dtype=torch.float32, requires_grad=True)
    bounded(odd, activation=activation, norm=norm).sum().backward()
    assert torch.isfinite(odd.grad).all()


def test_the_ball_is_the_published_one() -> None:
    values = np.random.default_rng(0).normal(0, 2, (50, 9))
    assert np.allclose(bounded(torch.from_numpy(values), activation="ball", norm=1.0).numpy(), uniform_ball(values), atol=1e-14)


def test_the_clip_is_the_bounds_own() -> None:  # Eq. 15 trains under what the mechanism will do
    values = np.random.default_rng(0).normal(0, 1, (50, 9)) * np.linspace(0, 2, 50)[:, None]
    assert np.allclose(bounded(torch.from_numpy(values), activation="clip", norm=1.5).numpy(), Ball(9, 1.5).clip(values))


# ── what training buys ────────────────────────────────────────────────────────────────────────────────────────────────

NOISE = 0.3


@pytest.fixture(scope="module")
def trained() -> dict[float, Autoencoder]:
    public = Scenes(size=16).public(1500, seed=1)
    return {
        noise: Autoencoder.fit(public, dim=16, activation="ball", noise=noise, steps=200, batch=40, device="cpu")
        for noise in (0.0, NOISE)
    }


def score(codec: Autoencoder, masks: np.ndarray, noise: float) -> float:
    codes = codec.encode(masks[None])[0]
    noisy = codes + np.random.default_rng(5).normal(0, noise, codes.shape)
    return float(dice(codec.decode(noisy, masks), masks).mean())


def test_training_under_noise_is_what_helps_under_noise(trained: dict[float, Autoencoder]) -> None:
    fresh = Scenes(size=16).public(300, seed=2).targets
    under = {noise: score(codec, fresh, NOISE) for noise, codec in trained.items()}
    clean = {noise: score(codec, fresh, 0.0) for noise, codec in trained.items()}
    assert under[NOISE] > under[0.0] + 0.05
    assert clean[0.0] > clean[NOISE]  # and it is paid for where there is no noise
    assert clean[0.0] > 0.75
    assert under[NOISE] > float(dice(np.zeros_like(fresh), fresh).mean()) + 0.1  # half the scenes hold nothing


def test_a_teacher_that_is_hardly_sure_says_little(trained: dict[float, Autoencoder]) -> None:
    dogs = Scenes(size=16).public(100, seed=3).targets
    dogs = dogs[dogs.sum(axis=(1, 2)) > 20]
    codec = trained[0.0]
    whole, faint = (codec.decode(codec.encode(strength * dogs[None].astype(float))[0], dogs).sum() for strength in (1.0, 0.02))
    assert faint < 0.1 * whole


@pytest.mark.parametrize("width", [2, 4, 6, 8, 9, 16])
def test_norms_do_not_hide_strength(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A channel that is normalised alone looks the same at every strength: the twin cannot tell a mask from a fifth of it.
    mask = torch.from_numpy(ellipses(1, (16, 12))).float()

    def moved() -> float:
        torch.manual_seed(0)
        coder = Coder((16, 12), dim=4, activation="clip", norm=100.0, widths=(width,))
        with torch.no_grad():
            whole, faint = coder.encode(mask), coder.encode(0.2 * mask)
        return float((whole - faint).norm() / whole.norm())

    assert moved() > 0.15
    monkeypatch.setattr(bottleneck, "_norm", lambda channels: torch.nn.GroupNorm(channels, channels))
    assert moved() < 0.06


def test_volumes(volumes: Public) -> None:
    codec = Autoencoder.fit(volumes, dim=8, activation="clip", noise=0.05, steps=80, batch=20, rate=5e-3, device="cpu")
    fresh = ellipses(20, (10, 9, 7), seed=9)
    mean = np.broadcast_to(volumes.targets.mean(axis=0), fresh.shape)
    assert score(codec, fresh, 0.05) > float(dice(mean, fresh).mean()) + 0.03


def test_through_the_door(trained: dict[float, Autoencoder], tmp_path: Path) -> None:
    teachers, masks = 40, Scenes(size=16).public(12, seed=4).targets
    codec, inputs = trained[NOISE], np.arange(12.0)[:, None]

    class Painters:
        def vote(self, asked: np.ndarray) -> Sealed:
            wrong = np.random.default_rng(0).random((teachers, len(asked), 16, 16)) < 0.02
            return Sealed(masks[asked[:, 0].astype(int)] ^ wrong)

    with Ledger(tmp_path / "book.sqlite", Budget(50.0, 1e-5)) as ledger:
        curator = Curator(Painters(), codec, NoisyMean(codec.bound, 0.2 * teachers, teachers), ledger)
        answers = curator.answer(inputs)
        assert np.array_equal(curator.answer(inputs[::-1]), answers[::-1])  # kept: asked again it is the same, and free
    assert answers.min() >= 0
    assert answers.max() <= 1
    assert float(dice(answers, masks).mean()) > float(dice(np.zeros_like(masks), masks).mean())


def test_the_loss_counts_two_empty_masks_as_right() -> None:
    nothing, dog = torch.zeros(1, 4, 4), torch.ones(1, 4, 4)
    assert distance(nothing - 30, nothing).item() < 1e-4
    assert distance(nothing - 30, dog).item() > distance(nothing, dog).item() > distance(nothing + 30, dog).item()


# ── one file, one name ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_saved_codec_asks_the_same_questions(activation: str, public: Public, tmp_path: Path) -> None:
    codec = brief(public, activation)
    found = Autoencoder.load(codec.save(tmp_path / "codec"), device="cpu")
    assert repr(found) == repr(codec)
    assert found.provenance == codec.provenance
    masks = public.targets[None, :4]
    assert np.array_equal(found.encode(masks), codec.encode(masks))
    codes = codec.encode(masks)[0]
    assert np.array_equal(found.decode(codes, masks[0]), codec.decode(codes, masks[0]))


def test_files_that_are_not_whole_are_refused(public: Public, tmp_path: Path) -> None:
    path = brief(public).save(tmp_path / "codec")
    tensors, told = read_tensors(path, kind=KIND)
    first = next(iter(tensors))
    other = {**json.loads(told["codec"]), "dim": 6}
    for changed, words in (
        ({**tensors, first: torch.full_like(tensors[first], torch.nan)}, told),
        ({name: tensor for name, tensor in tensors.items() if name != first}, told),
        (tensors, {**told, "codec": json.dumps(other)}),
        (tensors, {**told, "codec": json.dumps({**other, "dim": "many"})}),
        (tensors, {**told, "codec": json.dumps({**other, "extra": 1})}),
        (tensors, {**told, "kind": "another"}),
    ):
        write_tensors(path, changed, words, private=False)
        with pytest.raises(DataError, match=r"`(weights|path)` must"):
            Autoencoder.load(path)


def test_a_fit_is_named_by_all_that_made_it(public: Public) -> None:
    seen: list[tuple[int, int]] = []
    state = torch.get_rng_state()
    names = {repr(brief(public)), repr(brief(public, progress=lambda *at: seen.append(at)))}
    assert len(names) == 1
    for changed in ({"seed": 1}, {"steps": 4}, {"noise": 0.2}, {"dim": 6}, {"widths": (4,)}, {"rate": 1e-3}, {"batch": 9}):
        names.add(repr(brief(public, **changed)))
    names |= {repr(brief(public, "tanh")), repr(brief(public, "clip")), repr(brief(public, "clip", norm=2.0))}
    assert len(names) == 11
    assert seen == [(3, 3)]
    assert torch.equal(torch.get_rng_state(), state), "fitting must leave the caller's random numbers alone"
    codec = brief(public)
    assert repr(brief(public, "clip", dim=np.int64(5), noise=np.float64(0.1), norm=np.float64(2))) in names
    assert codec.provenance is not None
    assert codec.provenance.how == "steps=3, batch=8, rate=0.002, seed=0"
    with pytest.raises(ValueError, match="read-only"):
        next(iter(codec.weights.values()))[:] = 0


def test_a_few_masks_at_a_time(public: Public, monkeypatch: pytest.MonkeyPatch) -> None:
    codec, most = brief(public), []
    whole = codec.encode(public.targets[None, :9])
    encode = Coder.encode
    monkeypatch.setattr(passes, "_VALUES", 2 * 16 * 12)
    monkeypatch.setattr(Coder, "encode", lambda self, masks: most.append(len(masks)) or encode(self, masks))
    assert np.allclose(codec.encode(public.targets[None, :9]), whole, atol=1e-5)
    assert most == [2, 2, 2, 2, 1]


# ── refusals, and twins ───────────────────────────────────────────────────────────────────────────────────────────────


def test_refusals(public: Public) -> None:
    for wrong in (Private.of(public.inputs, public.targets), public.targets, None):
        with pytest.raises(DataError, match="`public` must be Public"):
            brief(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="masks as its targets"):
        brief(public.unlabelled())
    with pytest.raises(DataError, match="two or three dimensions"):
        brief(Public.of(np.zeros((9, 1)), np.zeros((9, 12))))
    for changed, words in (
        ({"activation": "relu"}, "`activation` must"),
        ({"activation": "tanh", "norm": 2.0}, "`norm` must be 1"),
        ({"activation": "clip", "norm": 0.0}, "`norm` must"),
        ({"dim": 0}, "`dim` must"),
        ({"noise": -1.0}, "`noise` must"),
        ({"steps": 0}, "`steps` must"),
        ({"rate": 0.0}, "`rate` must"),
        ({"widths": ()}, "`widths` must"),
        ({"widths": (4,) * 5}, "`widths` must halve"),
    ):
        with pytest.raises(RecipeError, match=words):
            brief(public, **changed)
    with pytest.raises(DataError, match="`codes` must"):
        brief(public).decode(np.zeros((2, 6)), np.zeros(2))


def test_widths_follow_the_shape() -> None:
    assert default_widths((64, 64)) == (16, 32, 64, 64)
    assert default_widths((4, 3)) == default_widths((8, 8)) == (16,)
    for shape in ((3, 3), (5, 17), (1, 9, 4), (7, 6, 5)):
        coder = Coder(shape, dim=3, activation="ball", norm=1.0, widths=default_widths(shape))
        assert coder.decode(coder.bounded(coder.encode(torch.zeros(2, *shape)))).shape == (2, *shape)


@pytest.mark.parametrize("fault", ["leaves the ball", "remembers"])
def test_the_suite_catches_twins(fault: str, public: Public, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = brief(public, "ball")
    predictions = np.repeat(public.targets[None, :5], 3, axis=0) * np.array([1.0, 0.5, 0.2])[:, None, None, None]
    check_codec(codec, predictions, predictions[0], codec.encode(predictions)[0])
    whole = bottleneck.bounded
    if fault == "leaves the ball":
        monkeypatch.setattr(bottleneck, "bounded", lambda values, **told: 1.01 + whole(values, **told))
    else:
        calls: list[int] = []
        monkeypatch.setattr(
            bottleneck, "bounded", lambda values, **told: calls.append(0) or whole(values, **told) / (1 + len(calls))
        )
    with pytest.raises(AssertionError):
        check_codec(codec, predictions, predictions[0], np.zeros((5, 5)))
    if fault == "leaves the ball":  # usefulness is lost, privacy is not: the bound has the last word
        assert np.linalg.norm(codec.bound.clip(codec.encode(predictions)), axis=-1).max() <= 1 + 1e-12
