"""A model judges from several views, says the same on every day, and takes its views with it to disk."""

import numpy as np
import pytest
import torch

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.model import Model
from tutelage.nets.networks import ConvNet
from tutelage.privacy.errors import RecipeError

NETWORK = ConvNet(shape=(1, 8, 8), classes=3, widths=(8,), hidden=8)
BENT = Augmentation(rotation=30, shift=2)


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return NETWORK().state_dict()


def test_views_are_an_average_that_does_not_depend_on_the_company(state) -> None:
    images = np.random.default_rng(0).random((6, 8, 8)).astype(np.float32)
    plain, several = Model(NETWORK, state, device="cpu"), Model(NETWORK, state, device="cpu", views=5, distortion=BENT)
    together = several.probabilities(images)
    assert np.allclose(together, np.concatenate([several.probabilities(image[None]) for image in images]), atol=1e-6)
    assert np.allclose(together.sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(together, plain.probabilities(images), atol=1e-4)
    # A distortion that moves nothing changes nothing: the average is one of probabilities, not of something else.
    still = Model(NETWORK, state, device="cpu", views=5, distortion=Augmentation())
    assert np.allclose(still.probabilities(images), plain.probabilities(images), atol=1e-6)


def test_views_are_stored_with_the_weights(state, tmp_path) -> None:
    images = np.random.default_rng(1).random((4, 8, 8)).astype(np.float32)
    model = Model(NETWORK, state, device="cpu", views=3, distortion=BENT)
    again = Model.load(model.save(tmp_path / "model"), device="cpu")
    assert (again.views, again.distortion) == (3, BENT)
    assert np.array_equal(again.probabilities(images), model.probabilities(images))


def test_views_without_a_distortion_are_refused(state) -> None:
    with pytest.raises(RecipeError, match="`views` must be"):
        Model(NETWORK, state, views=4)
    with pytest.raises(RecipeError, match="`views` must be"):
        Model(NETWORK, state, views=0)
