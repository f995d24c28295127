"""A student that looks at one region at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.students.blobs import Watched

from tutelage.answers import Answers
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.nets.crops import crops_of
from tutelage.nets.networks import ConvNet
from tutelage.nets.regions import RegionModel
from tutelage.nets.training import Training
from tutelage.privacy.errors import RecipeError
from tutelage.students.regions import RegionStudent

CUT = RegionVotes((16, 16), 4)
FACTORY = ConvNet(shape=(2, 8, 8), classes=2, widths=(8,), hidden=8)
QUICK = Training(steps=3, batch=4, augmentation=None)
IMAGES, MASKS = Scenes(size=16, target="bird").draw(60, seed=0)


def student(training: Training = QUICK, **told) -> RegionStudent:
    given = {"members": 2, "device": "cpu", **told}
    return RegionStudent(CUT, FACTORY, training=training, side=8, **given)


def same(one: RegionModel, two: RegionModel) -> bool:
    return all(torch.equal(one.state[name], two.state[name]) for name in one.state)


def test_regions_are_learned_and_targets_not_read() -> None:
    model = student(replace(QUICK, steps=100, batch=16, rate=1e-2)).fit(Watched(IMAGES), Answers.exact(MASKS))
    new, truth = Scenes(size=16, target="bird").draw(100, seed=1)
    nothing = dice(np.zeros_like(truth), truth).mean()
    assert dice(model.predict(new), truth).mean() > nothing + 0.15


def test_only_what_was_asked_about_is_learned_from() -> None:
    chosen = np.array([7, 3, 41, 12])
    answers = Answers(chosen, MASKS[chosen].astype(np.float32))
    others = IMAGES.copy()
    others[np.setdiff1d(np.arange(60), chosen)] = 0.1
    one = student().fit(Public.of(IMAGES), answers)
    assert same(one, student().fit(Public.of(others), answers))
    assert not same(one, student().fit(Public.of(IMAGES[::-1].copy()), answers))
    assert not same(one, student(seed=1).fit(Public.of(IMAGES), answers))


def test_a_student_for_every_set_of_answers_whatever_each_is_about() -> None:
    rows = (np.arange(20), np.array([50, 4, 30]))
    sets, told = [Answers(row, MASKS[row]) for row in rows], []
    models = student().fit_all(Public.of(IMAGES), sets, progress=lambda done, total: told.append((done, total)))
    assert same(models[0], student().fit(Public.of(IMAGES), sets[0]))
    assert told[-1] == (12, 12)  # two students of two members
    crops, [names] = crops_of(CUT, IMAGES, [(np.arange(60), MASKS)], side=8, device="cpu")
    cut_before = student().learn(crops, [(row, names[row]) for row in rows])
    assert all(same(*pair) for pair in zip(models, cut_before, strict=True))
    assert [len(model) for model in models] == [2, 2]


def test_members_differ_and_answers_that_name_nothing_are_a_lesson_too() -> None:
    model = student().fit(Public.of(IMAGES), Answers.exact(MASKS))
    assert any(not torch.equal(tensor[0], tensor[1]) for tensor in model.state.values())
    faint = Answers.exact(MASKS).averaged()  # the mean shape is no region: nothing is said
    empty = Answers.exact(np.zeros_like(MASKS))
    assert same(student().fit(Public.of(IMAGES), faint), student().fit(Public.of(IMAGES), empty))
    plain = Public.of(np.full((3, 1, 16, 16), 0.5, dtype=np.float32))
    assert not student().fit(plain, Answers.exact(MASKS[:3] * 0)).predict(plain.inputs).any()


def test_settings_go_into_the_model_and_bad_ones_are_refused() -> None:
    model = student(threshold=0.3, members=1).fit(Public.of(IMAGES), Answers.exact(MASKS))
    assert (model.threshold, model.side, model.cut, len(model)) == (0.3, 8, CUT, 1)
    assert RegionStudent(CUT).network == ConvNet(shape=(2, 32, 32), classes=2, widths=(32, 64, 128))
    with pytest.raises(RecipeError, match="`members` must be a whole number ≥ 1"):
        student(members=0)
