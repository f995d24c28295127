"""Teachers vote under seal."""

import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.privacy.errors import DataError, Unsealed
from tutelage.teachers.classifier import Classifier


@pytest.fixture(scope="module")
def private(task) -> Private:
    return Private.of(task.inputs[:400], task.targets[:400])


def test_votes_are_sealed_and_one_per_teacher_and_query(task, private, tmp_path) -> None:
    training = Training(steps=30, batch=16, augmentation=Augmentation(rotation=10))
    network = ConvNet(shape=(1, 8, 8), widths=(8, 8), hidden=16)
    teachers = Classifier(network, training=training, engine="stacked", device="cpu", seed=4)
    assert teachers.fit(private, private.split(4)) is teachers
    votes = teachers.vote(task.inputs[400:450])
    assert votes.shape == (4, 50)
    with pytest.raises(Unsealed):
        print(votes)
    teachers.save(tmp_path / "private" / "teachers.safetensors")
    again = Classifier(network, device="cpu").load(tmp_path / "private" / "teachers.safetensors")
    assert len(again) == 4
    assert np.array_equal(again.ensemble.predict(task.inputs), teachers.ensemble.predict(task.inputs))


def test_teachers_that_learned_nothing_do_not_vote(task) -> None:
    with pytest.raises(DataError, match="`teachers` must be fitted"):
        Classifier().vote(task.inputs)


def test_finished_teachers_are_not_trained_again(task, private, tmp_path) -> None:
    network, training = ConvNet(shape=(1, 8, 8), widths=(8, 8), hidden=16), Training(steps=3, batch=8, augmentation=None)
    kept = {"training": training, "engine": "stacked", "device": "cpu", "checkpoint": tmp_path / "private" / "teachers"}
    first = Classifier(network, **kept).fit(private, private.split(4))
    again = Classifier(network, **kept).fit(private, private.split(4))
    assert first.ensemble.plan is not None
    assert again.ensemble.plan is None  # nothing was left to do
    assert np.array_equal(again.ensemble.predict(task.inputs), first.ensemble.predict(task.inputs))
