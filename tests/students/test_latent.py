"""A student of codes: it moves a few of its parameters to where its masks measure what was let out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.students.blobs import NETWORK, QUICK, TRAINING, Watched, answered, blobs

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.rescaled import Rescaled
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.nets.masks import MaskModel
from tutelage.nets.unet import UNet, free_parameters
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students import latent, stack
from tutelage.students.latent import Latent, LatentStudent, freedom, patience
from tutelage.students.masks import MaskStudent

SETTINGS = Latent(begin=TRAINING, steps=100, again=replace(TRAINING, steps=60, rate=1e-3))
HASTE = Latent(begin=QUICK, steps=3, again=None, batch=4)
FINE = Flips(DCT((16, 16), 64, 1.0), np.zeros(256, bool), 12.0)  # 40 answers of 64 numbers hold the network's last block


def student(settings: Latent = HASTE, **told: Any) -> LatentStudent:
    return LatentStudent(NETWORK, settings=settings, device="cpu", **told)


def same(one: MaskModel, two: MaskModel) -> bool:
    return all(torch.equal(one.state[name], two.state[name]) for name in one.state)


def test_at_high_noise_codes_teach_more_than_what_is_decoded_from_them() -> None:
    images, masks = blobs(40, 1)
    new, truth = blobs(60, 2)
    answers = answered(masks, 3.0)
    model = student(SETTINGS).fit(Watched(images), answers)
    decoded = MaskStudent(NETWORK, training=TRAINING, device="cpu").fit(Public.of(images), answers)
    scores = [float(dice(one.predict(new), truth).mean()) for one in (model, decoded)]
    assert scores[0] > scores[1] + 0.02
    assert scores[0] > 0.8


def test_at_low_noise_codes_teach_what_the_mean_shape_does_not_know() -> None:
    images, masks = blobs(40, 1)
    new, truth = blobs(60, 2)
    model = student(replace(SETTINGS, again=None)).fit(Public.of(images), answered(masks, 0.5, codec=FINE))
    after, before = (float(dice(one.predict(new), truth).mean()) for one in (model, model.beginning))
    assert after > before + 0.03


# ── what it looks at ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_public_targets_are_never_read() -> None:
    images, masks = blobs(10, 0)
    for answers in (answered(masks, 1.0), Answers.exact(masks)):
        blind = student(replace(HASTE, again=QUICK)).fit(Watched(images), answers)
        assert same(blind, student(replace(HASTE, again=QUICK)).fit(Public.of(images, 1 - masks), answers))


def test_exact_masks_are_simply_learned() -> None:
    images, masks = blobs(10, 0)
    answers = replace(Answers.exact(masks), chosen=np.arange(9, -1, -1))
    model = student().fit(Public.of(images), answers)
    assert same(model, MaskStudent(NETWORK, training=QUICK, device="cpu").fit(Public.of(images), answers))
    assert model.beginning is model


def test_codes_move_what_is_free_and_nothing_else() -> None:
    images, masks = blobs(10, 0)
    for free in ("head", "norms", "last", "all"):
        model = student(replace(HASTE, free=free)).fit(Public.of(images), answered(masks, 1.0))  # type: ignore[arg-type]
        before = model.beginning.state
        moved = {name for name, tensor in model.state.items() if not torch.equal(tensor, before[name])}
        assert moved == set(free_parameters(NETWORK(), free))


def test_the_beginning_knows_the_mean_shape_and_no_code() -> None:
    images, masks = blobs(10, 0)
    answers = answered(masks, 1.0)
    other = replace(answers, codes=np.random.default_rng(5).permutation(answers.codes))  # the same mean
    one, two = (student().fit(Public.of(images), some) for some in (answers, other))
    assert same(one.beginning, two.beginning)
    assert not same(one, two)


def test_a_codec_that_is_not_linear_is_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(6, 0)
    for place in (latent, stack):
        monkeypatch.setattr(place, "train_masks", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(DataError, match="`codec` must be linear"):
        student().fit(Public.of(images), answered(masks, 1.0, codec=Pixels((16, 16))))


def test_releases_of_one_codec_are_measured_together_and_each_as_alone() -> None:
    _, masks = blobs(12, 0)
    sets = [answered(masks, 1.0, seed=0), answered(masks, 1.0, seed=1, codec=FINE), answered(masks, 1.0, seed=2, chosen=[3, 7])]
    for found, answers in zip(latent.measured(sets), sets, strict=True):
        alone = answers.measured()
        assert np.array_equal(found.matrix, alone.matrix)
        assert np.allclose(found.values, alone.values, rtol=0, atol=1e-9)


# ── how much it frees ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_freedom_grows_as_the_noise_falls() -> None:
    _, masks = blobs(40, 0)
    network, answers, many = UNet(shape=(1, 16, 16), widths=(16, 32, 64))(), answered(masks, 1.0), 10**6
    sizes = {which: sum(dict(network.named_parameters())[name].numel() for name in free_parameters(network, which))
             for which in ("head", "norms", "last")}  # fmt: skip
    shape = masks.mean(axis=0)
    chosen = [freedom(network, replace(answers, sigma=sigma), shape, many) for sigma in (1e6, 30.0, 1.0)]
    assert [sizes[which] for which in chosen] == sorted(sizes[which] for which in chosen)
    assert chosen[0] == "head"
    assert sizes[chosen[2]] == max(sizes.values())
    assert len(set(chosen)) > 1


def test_freedom_depends_on_the_noise_and_the_mean_alone() -> None:
    _, masks = blobs(40, 0)
    network, shape = NETWORK(), masks.mean(axis=0)
    for sigma in np.geomspace(0.1, 1e4, 12):
        answers = answered(masks, float(sigma))
        shuffled = replace(answers, codes=answers.codes * 7, values=answers.values[::-1], chosen=answers.chosen[::-1])
        assert freedom(network, answers, shape, 10**6) == freedom(network, shuffled, shape, 10**6)


def test_noise_is_not_taken_for_a_shape() -> None:
    """Of an empty mask with much noise on it the twin, which looks at the plain mean, frees more than of the shape it tells."""
    _, masks = blobs(40, 0)
    network, answers = UNet(shape=(1, 16, 16), widths=(16, 32, 64))(), answered(np.zeros_like(masks), 5.0)
    found = latent.measured([answers])[0]
    shape = latent.told_shape(answers, found, torch.device("cpu"))
    assert freedom(network, answers, shape, 10**6) == "head"
    assert freedom(network, answers, np.clip(answers.mean, 0, 1), 10**6) != "head"


def test_no_more_is_freed_than_numbers_were_measured() -> None:
    _, masks = blobs(40, 0)
    network, answers, shape = NETWORK(), answered(masks, 0.1), masks.mean(axis=0)
    sizes = [sum(dict(network.named_parameters())[name].numel() for name in free_parameters(network, which))
             for which in ("norms", "last")]  # fmt: skip
    assert [freedom(network, answers, shape, count) for count in (0, sizes[0], sizes[1] - 1, sizes[1])] == [
        "head",
        "norms",
        "norms",
        "last",
    ]


def test_the_unit_that_codes_are_measured_in_frees_nothing_and_binds_nothing() -> None:
    """Codes and noise seven times as large say the same. The twin, which looks at pixels, hears 49 times less."""
    _, masks = blobs(40, 0)
    network, shape, plain = UNet(shape=(1, 16, 16), widths=(16, 32, 64))(), masks.mean(axis=0), DCT((16, 16), 64, 12.0)
    moments = Rescaled.fit(plain, Public.of(masks, masks))
    longer = replace(moments, weights=np.full(64, 7.0), norm=84.0)
    found, twins = [], []
    for sigma in np.geomspace(0.3, 3e3, 30):
        one, other = answered(masks, float(sigma), codec=plain), answered(masks, float(7 * sigma), codec=longer)
        told = [latent.measured([answers])[0].stretch for answers in (one, other)]
        found.append([freedom(network, a, shape, 10**6, stretch=s) for a, s in zip((one, other), told, strict=True)])
        twins.append(freedom(network, other, shape, 10**6))
    assert all(one == other for one, other in found)
    assert len({one for one, _ in found}) == 3
    assert any(twin != one for twin, (one, _) in zip(twins, found, strict=True))


@pytest.mark.parametrize("inner", [DCT((16, 16), 64, 12.0), DCT((16, 16), 200, 12.0)])
def test_a_stretch_is_that_of_deviations_and_not_of_the_mean_shape(inner: DCT) -> None:
    """Masks of other people, in code and in pixels. The twin, which takes the mean shape's own code, hears too little."""
    codec = Rescaled.fit(inner, Public.of(*blobs(200, 0)))
    _, masks = blobs(400, 1)
    plain, stretched = (one.measured(one.encode(masks[None])[0]) for one in (replace(inner, norm=1e3), replace(codec, norm=1e3)))
    long, short = (np.square(one.values - one.values.mean(axis=0)).sum() for one in (stretched, plain))
    assert plain.stretch == 1.0
    assert stretched.stretch**2 == pytest.approx(long / short, rel=0.1)
    twin = np.square(stretched.values.mean(axis=0)).sum() / np.square(plain.values.mean(axis=0)).sum()
    assert twin < 0.75 * long / short


def test_few_numbers_do_not_move_many_parameters_astray() -> None:
    """Four numbers an answer, little noise: the twin frees what the noise alone would allow, and forgets the mean shape."""
    images, masks = blobs(40, 1)
    new, truth = blobs(60, 2)
    answers = answered(masks, 3.0, codec=PCA.fit(Public.of(images, masks), components=4, norm=1e3))
    allowed = freedom(NETWORK(), answers, masks.mean(axis=0), 10**6)
    assert allowed == "last"
    scores = {}
    for free in ("auto", allowed):
        model = student(replace(SETTINGS, again=None, free=free)).fit(Public.of(images), answers)  # type: ignore[arg-type]
        scores[free] = [float(dice(one.predict(new), truth).mean()) for one in (model.beginning, model)]
    assert scores["auto"][1] > scores["auto"][0] + 0.01
    assert scores[allowed][1] < scores[allowed][0] - 0.03


# ── how long it looks at the mean shape ───────────────────────────────────────────────────────────────────────────────


def test_a_shape_fainter_than_its_noise_is_learned_for_part_of_the_time() -> None:
    _, masks = blobs(40, 0)
    how = Latent(begin=replace(QUICK, steps=101))

    def steps(sigma: float, how: Latent = how) -> int:
        answers = answered(masks, sigma)
        return patience(answers, latent.measured([answers])[0], how)

    assert [steps(sigma) for sigma in (1e-6, 1.0, 100.0)] == [101, 101, 50]
    assert [steps(100.0, replace(how, faint=share)) for share in (1.0, 0.2, 1e-9)] == [101, 20, 1]


@pytest.mark.parametrize(
    "codec", [Flips(DCT((16, 16), 64, 1.0), np.zeros(256, bool), 12.0), DCT((16, 16), 9, 12.0), DCT((16, 16), 256, 12.0)]
)
def test_how_clear_a_shape_is_does_not_hang_on_its_own_noise(codec: Any) -> None:
    """Many draws at one noise: their mean is the truth. The twin, which takes noise for shape, is off by one."""
    _, masks = blobs(40, 0)
    sigma, found = 30.0, []
    for seed in range(200):
        answers = answered(masks, sigma, seed=seed, codec=codec)
        found.append(latent.clearness(answers, latent.measured([answers])[0]))
    exact = answered(masks, 1e-6, codec=codec).measured()
    signal = float(np.square(exact.values.mean(axis=0)).sum())
    counted = min(len(exact.matrix), 100)  # noise on more numbers than a field of 10 x 10 waves has is taken off, and not counted
    assert np.mean(found) == pytest.approx(signal / (counted * sigma**2 / 40), abs=5 * np.std(found) / 200**0.5)
    assert np.std(found) / 200**0.5 < 0.1


def test_more_measurements_of_a_shape_do_not_make_it_fainter() -> None:
    """A field of 10 x 10 waves: 256 frequencies say what 100 do, and a little more. The twin divides by all of them."""
    _, masks = blobs(40, 0)
    few, many = (answered(masks, 1e-3, codec=DCT((16, 16), count, 1e3)) for count in (100, 256))
    clear = [latent.clearness(answers, latent.measured([answers])[0]) for answers in (few, many)]
    assert clear[1] == pytest.approx(clear[0], rel=0.05)
    assert clear[1] >= clear[0] * 0.999


def test_noise_alone_is_hardly_ever_clear_however_many_numbers_it_has() -> None:
    """The twin counts it on a field's 100 waves, and takes one of seven for a shape."""
    rng, taken, twin = np.random.default_rng(0), 0, 0
    nothing = Answers(np.arange(4), np.zeros((4, 64, 64)), np.zeros((4, 4096)), 1.0, DCT((64, 64), 4096, 1e3))
    for _ in range(200):
        found = latent.Measured(np.zeros((0, 0)), rng.normal(size=(4, 4096)))
        taken += latent.clearness(nothing, found) >= 1
        twin += float(np.square(found.values.mean(axis=0)).sum()) * 4 - 4096 > 100
    assert taken <= 1  # of four deviations there is one in this row of 200
    assert twin > 10


def test_every_release_takes_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(10, 0)
    lengths, told, train = [], [], stack.train_masks

    def watched(*given: Any, training: Any, **more: Any) -> Any:
        lengths.append((len(given[2]), training.steps))
        return train(*given, training=training, **more)

    for place in (latent, stack):
        monkeypatch.setattr(place, "train_masks", watched)
    monkeypatch.setattr(stack, "shows", lambda _: False)
    settings = Latent(begin=replace(QUICK, steps=6), steps=2, again=replace(QUICK, steps=1), batch=4)
    sets = [answered(masks, sigma) for sigma in (1.0, 100.0, 0.5)]
    student(settings).fit_all(Public.of(images), sets, progress=lambda *step: told.append(step))
    assert lengths == [(1, 3), (2, 6), (3, 1)]
    assert told[-1] == (15 + 6 + 3, 24)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_network_that_finds_nothing_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(10, 0)
    seeds, train = [], stack.train_masks

    def blanked(factory: Any, pool: Any, labels: Any, *, seed: int, **more: Any) -> Any:
        states = train(factory, pool, labels, seed=seed, **more)
        if not seeds:  # the first network of the first call says "nothing" everywhere
            states[0] = {name: torch.full_like(one, -9.0) if one.shape == (1,) else one * 0 for name, one in states[0].items()}
        seeds.append((seed, len(labels)))
        return states

    monkeypatch.setattr(stack, "train_masks", blanked)
    settings = replace(HASTE, begin=replace(TRAINING, steps=40))
    asked = [answered(masks, 1.0, seed=seed) for seed in (0, 1)]
    models = student(settings, threshold=0.99).fit_all(Public.of(images), asked)  # which nothing passes so early
    assert seeds == [(0, 2), (2, 1)]
    assert all((model.beginning.probabilities(images) > 0.5).any() for model in models)


def test_a_network_that_finds_nothing_where_nothing_is_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(10, 0)
    monkeypatch.setattr(latent, "told_shape", lambda *_: np.zeros((16, 16), np.float32))
    monkeypatch.setattr(MaskModel, "probabilities", lambda *_: np.zeros((8, 16, 16), np.float32))
    calls, train = [], stack.train_masks
    monkeypatch.setattr(stack, "train_masks", lambda *given, **more: calls.append(1) or train(*given, **more))
    student().fit(Public.of(images), answered(masks, 1.0))
    assert len(calls) == 1


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_student_for_every_release_and_one_count_of_steps() -> None:
    images, masks = blobs(10, 0)
    sets, told = [answered(masks, 1.0, seed=seed, chosen=[2, 5, 7, 9]) for seed in (0, 1)], []
    settings = replace(HASTE, again=QUICK)
    models = student(settings).fit_all(Public.of(images), sets, progress=lambda *step: told.append(step))
    assert same(models[0], student(settings).fit(Public.of(images), sets[0]))
    assert not same(*models)
    assert [done for done, _ in told] == [3, 6, 9, 12, 15, 18]
    assert {total for _, total in told} == {18}
    assert models[0].began is not models[0].beginning


def test_threshold_window_and_network_go_into_the_model() -> None:
    images, masks = blobs(4, 0)
    settings = Latent(begin=replace(QUICK, steps=1), steps=1, again=None)
    model = LatentStudent(settings=settings, threshold=0.3, window=(8, 8), device="cpu").fit(
        Public.of(images), answered(masks, 1.0)
    )
    assert (model.threshold, model.window, model.factory) == (0.3, (8, 8), UNet(shape=(1, 16, 16)))


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        ({"steps": 0}, "`steps` must be a whole number ≥ 1. Got 0"),
        ({"batch": 1.5}, "`batch` must be a whole number ≥ 1. Got 1.5"),
        ({"rate": 0.0}, "`rate` must be > 0. Got 0.0"),
        ({"faint": 0.0}, r"`faint` must be in \(0, 1\]. Got 0.0"),
        ({"faint": 1.5}, r"`faint` must be in \(0, 1\]. Got 1.5"),
        ({"free": "some"}, "`free` must be 'auto', 'head', 'norms', 'last' or 'all'. Got 'some'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(told: dict[str, Any], rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        Latent(**told)
