"""A student of decoded masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.students.blobs import NETWORK, QUICK, TRAINING, Watched, answered, blobs

from tutelage.answers import Answers
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.nets import pieces
from tutelage.nets.masks import MaskModel
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.privacy.errors import RecipeError
from tutelage.students import stack
from tutelage.students.latent import Latent, LatentStudent
from tutelage.students.masks import MaskStudent
from tutelage.students.stack import train_masks


def student(training: Training = QUICK, **told) -> MaskStudent:
    return MaskStudent(NETWORK, training=training, device="cpu", **told)


def same(one: MaskModel, two: MaskModel) -> bool:
    return all(torch.equal(one.state[name], two.state[name]) for name in one.state)


def test_masks_are_learned_and_their_targets_not_read() -> None:
    images, masks = blobs(30, 0)
    model = student(TRAINING).fit(Watched(images), Answers.exact(masks))
    new, truth = blobs(20, 1)
    assert dice(model.predict(new), truth).mean() > 0.85


def test_only_what_was_asked_about_is_learned_from() -> None:
    images, masks = blobs(30, 0)
    answers = answered(masks, 0.1, chosen=[3, 17, 4, 29])
    others = images.copy()
    others[np.setdiff1d(np.arange(30), answers.chosen)] = 9.0
    one = student().fit(Public.of(images), answers)
    assert same(one, student().fit(Public.of(others), answers))
    assert not same(one, student().fit(Public.of(images[::-1]), answers))


def test_noise_beyond_a_share_is_cut_off() -> None:
    images, masks = blobs(10, 0)
    answers = answered(masks, 2.0)
    assert answers.values.min() < -0.5
    cut = replace(answers, values=np.clip(answers.values, 0, 1))
    assert same(student().fit(Public.of(images), answers), student().fit(Public.of(images), cut))


def nothing(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give weights that say "nothing" everywhere."""
    return {name: torch.full_like(one, -9.0) if one.shape == (1,) else one * 0 for name, one in state.items()}


def test_a_network_that_finds_nothing_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(20, 0)
    seeds, train = [], stack.train_masks

    def failing_once(*given, seed: int, **more):
        states = train(*given, seed=seed, **more)
        seeds.append((seed, len(states)))
        return [nothing(state) if seed == 5 and place == 1 else state for place, state in enumerate(states)]

    monkeypatch.setattr(stack, "train_masks", failing_once)
    sets = [answered(masks, 0.3, seed=number) for number in (0, 1)]
    models = student(replace(TRAINING, steps=60), seed=5).fit_all(Public.of(images), sets)
    assert seeds == [(5, 2), (7, 1)]  # the second alone, from other weights
    assert all(dice(model.predict(images), masks).mean() > 0.7 for model in models)


@pytest.mark.parametrize("kind", [MaskStudent, LatentStudent])
def test_it_is_tried_a_few_times_and_nobody_is_told(
    kind: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Exact masks may be private ones, those of a control: how its training went is a function of them."""
    images, masks = blobs(10, 0)
    calls, bar = failing(monkeypatch), []
    learner = student() if kind is MaskStudent else LatentStudent(NETWORK, settings=Latent(begin=QUICK), device="cpu")
    learner.fit(Public.of(images), Answers.exact(masks), progress=lambda *step: bar.append(step))
    assert len(calls) == stack.TRIES
    assert bar == [(3, 3)]
    assert not caplog.text


def failing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every network end in nothing, and count how often they are trained."""
    train, calls = stack.train_masks, []

    def failed(*given, **more):
        calls.append(1)
        return [nothing(state) for state in train(*given, **more)]

    monkeypatch.setattr(stack, "train_masks", failed)
    return calls


@pytest.mark.parametrize("sigma", [0.0, 1.0, 4.0])
def test_where_nothing_is_nothing_is_right(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that takes any pixel above one half for something would train three times at the largest noise."""
    images, masks = blobs(40, 0)
    noise, calls = np.random.default_rng(0).normal(0, sigma, masks.shape), failing(monkeypatch)
    student().fit(Public.of(images), Answers(np.arange(40), noise))
    assert len(calls) == 1
    assert (noise.mean(axis=0).max() > 0.5) == (sigma > 1.0)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0])
def test_a_mean_shape_under_noise_is_something(sigma: float) -> None:
    _, masks = blobs(40, 0)
    assert stack.shows((masks + np.random.default_rng(1).normal(0, sigma, masks.shape)).mean(axis=0))


def test_a_pool_larger_than_memory_is_read_and_teaches_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(10, 0)
    for answers in (answered(masks, 2.0, chosen=[3, 7, 1, 9]), Answers.exact(masks)):
        held = student().fit(Public.of(images), answers)
        with monkeypatch.context() as changed:
            changed.setattr(pieces, "HELD", 0)
            changed.setattr(pieces, "as_inputs", lambda _: pytest.fail("copied"))
            assert same(student().fit(Public.of(images), answers), held)


def test_a_student_for_every_set_of_answers() -> None:
    images, masks = blobs(10, 0)
    sets, told = [answered(masks, 0.5, seed=seed) for seed in (0, 1)], []
    models = student().fit_all(Public.of(images), sets, progress=lambda done, total: told.append((done, total)))
    assert same(models[0], student().fit(Public.of(images), sets[0]))
    assert not same(*models)
    assert told == [(3, 6), (6, 6)]


def test_threshold_and_window_go_into_the_model() -> None:
    images, masks = blobs(10, 0)
    model = student(threshold=0.3, window=(8, 8)).fit(Public.of(images), Answers.exact(masks))
    assert (model.threshold, model.window, model.began) == (0.3, (8, 8), None)


def test_a_student_learns_through_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    images, masks = blobs(30, 0)
    seen, real = set(), stack.train_masks

    def watched(factory, inputs, targets, **given):
        seen.update({tuple(inputs.shape), *(tuple(some.shape) for some in targets)})
        return real(factory, inputs, targets, **given)

    monkeypatch.setattr(stack, "train_masks", watched)
    answers = answered(masks, 0.1, chosen=range(2, 30))
    model = student(TRAINING, window=(8, 8)).fit(Public.of(images), answers)
    assert seen == {(28 * 4, 1, 8, 8), (28 * 4, 8, 8)}  # four of every image that was asked about, never a whole one
    new, truth = blobs(20, 1)
    assert dice(model.predict(new), truth).mean() > 0.6  # of a quarter at a time, under noise
    with monkeypatch.context() as changed:  # and where the pool is larger than memory
        changed.setattr(pieces, "HELD", 0)
        mapped = student(window=(8, 8)).fit(Public.of(images), answers)
    assert same(mapped, student(window=(8, 8)).fit(Public.of(images), answers))


def test_a_window_with_other_sides_than_the_images_is_refused() -> None:
    images, masks = blobs(3, 0)
    with pytest.raises(RecipeError, match="`window` must have 2 sizes, one per side"):
        student(window=(8, 8, 8)).fit(Public.of(images), Answers.exact(masks))


def test_a_window_of_the_images_size_or_more_changes_nothing() -> None:
    images, masks = blobs(10, 0)
    whole = student().fit(Public.of(images), Answers.exact(masks))
    for window in ((16, 16), (20, 99)):
        assert same(whole, student(window=window).fit(Public.of(images), Answers.exact(masks)))


def test_without_a_network_the_images_shape_makes_one() -> None:
    images, masks = blobs(4, 0)
    model = MaskStudent(training=replace(QUICK, steps=1), device="cpu").fit(Public.of(images), Answers.exact(masks))
    assert model.factory == UNet(shape=(1, 16, 16))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_training_goes_on_from_where_it_is_told(optimizer: str) -> None:
    images, masks = blobs(8, 0)
    training = replace(QUICK, optimizer=optimizer)
    inputs = torch.from_numpy(images)
    first = train_masks(NETWORK, inputs, [masks, 1 - masks], training=training, seed=0)
    again = train_masks(NETWORK, inputs, [masks, 1 - masks], training=training, seed=0, start=first)
    fresh = train_masks(NETWORK, inputs, [masks, 1 - masks], training=training, seed=0)
    for k in range(2):
        assert all(torch.equal(fresh[k][name], first[k][name]) for name in fresh[k])
        assert any(not torch.equal(again[k][name], first[k][name]) for name in again[k])
