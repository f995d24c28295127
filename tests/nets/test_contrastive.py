"""Features learned without labels put like things together, and can be where other networks begin."""

import json
import math

import numpy as np
import pytest
import torch

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.contrastive import Body, Contrast, contrast, learn_features
from tutelage.nets.networks import ConvNet, Started, describe, restore
from tutelage.privacy.errors import RecipeError

NETWORK = ConvNet(shape=(1, 8, 8), widths=(8, 16), hidden=16)
SMALL = Contrast(steps=60, batch=128, rate=5e-3, distortion=Augmentation(rotation=15, shift=1, scale=0.1))


def likeness(network: torch.nn.Module, images: torch.Tensor, labels: np.ndarray) -> float:
    """Tell how often an image's nearest neighbour is of its own class."""
    with torch.inference_mode():
        codes = torch.nn.functional.normalize(Body(network.eval())(images), dim=1)
    near = (codes @ codes.T - 2 * torch.eye(len(codes))).argmax(dim=1).numpy()
    return float((labels[near] == labels).mean())


def test_like_digits_come_together_and_a_network_can_begin_there() -> None:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = (bunch.images[:600] / 16).astype(np.float32), bunch.target[:600]
    seen: list[tuple[int, int]] = []
    learned = learn_features(NETWORK, images, settings=SMALL, device="cpu", progress=lambda *now: seen.append(now))
    tensors = torch.from_numpy(images)[:, None]
    torch.manual_seed(0)
    assert likeness(learned(), tensors, labels) > likeness(NETWORK(), tensors, labels) + 0.03
    assert seen[-1] == (60, 60)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(learned().parameters(), learned().parameters(), strict=True))


def test_where_a_network_begins_is_part_of_its_name_and_not_of_what_is_restored() -> None:
    one, two = (Started(NETWORK, NETWORK().state_dict()) for _ in range(2))
    assert describe(one) != describe(two)
    assert json.loads(describe(one))["start"] == one.sha256
    assert restore(describe(one)) == NETWORK


def test_the_loss_is_that_of_telling_the_partner() -> None:
    alike = torch.eye(4).repeat(2, 1)  # partners equal, all others at right angles
    assert contrast(alike, 1.0).item() == pytest.approx(math.log(math.e + 6) - 1, rel=1e-5)
    assert contrast(torch.ones(8, 3), 1.0).item() == pytest.approx(math.log(7), rel=1e-5)  # cannot be told apart


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(RecipeError, match="ends in a linear layer"):
        Body(torch.nn.Conv2d(1, 1, 3))
    with pytest.raises(RecipeError, match="`temperature` must be"):
        Contrast(temperature=0.0)
    with pytest.raises(RecipeError, match="`batch` must be"):
        Contrast(batch=1)
