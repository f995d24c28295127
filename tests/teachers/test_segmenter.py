"""Teachers draw masks under seal."""

from dataclasses import replace

import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.nets.unet import UNet
from tutelage.privacy.errors import DataError, Unsealed
from tutelage.teachers.segmenter import Segmenter


def test_probabilities_are_sealed_and_one_per_teacher_query_and_pixel(masks, tmp_path) -> None:
    private = Private.of(masks.inputs, masks.targets)
    teachers = Segmenter(masks.network, training=masks.training, engine="stacked", device="cpu", seed=4)
    assert teachers.fit(private, private.split(3)) is teachers
    assert len(teachers) == 3
    votes = teachers.vote(masks.inputs[:5])
    with pytest.raises(Unsealed):
        print(votes)
    likely = teachers.ensemble.probabilities(masks.inputs[:5])
    assert likely.shape == (3, 5, *masks.targets.shape[1:])
    assert 0 <= likely.min() <= likely.max() <= 1
    teachers.save(tmp_path / "private" / "teachers.safetensors")
    again = Segmenter(device="cpu").load(tmp_path / "private" / "teachers.safetensors")
    assert np.array_equal(again.ensemble.probabilities(masks.inputs[:5]), likely)


def test_without_a_network_the_data_s_shape_makes_one(masks) -> None:
    private = Private.of(masks.inputs[:8], masks.targets[:8])
    teachers = Segmenter(training=replace(masks.training, steps=1), engine="sequential", device="cpu")
    teachers.fit(private, private.split(2))
    assert teachers.network == UNet(shape=masks.inputs.shape[1:])


def test_teachers_must_be_fitted_and_volumes_have_channels(masks) -> None:
    with pytest.raises(DataError, match="`teachers` must be fitted"):
        Segmenter().vote(masks.inputs)
    bare = Private.of(masks.inputs.repeat(2, axis=1)[:, 0], masks.targets)  # (records, *space)
    if masks.inputs.ndim == 5:
        with pytest.raises(DataError, match="`targets` must be masks of shape"):
            Segmenter(device="cpu").fit(bare, bare.split(2))
