from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.dataset import Private, Public
from tutelage.metrics import best_threshold, cross_entropy, dice, squared_error, surface_dice
from tutelage.privacy.errors import DataError, RecipeError


def squares(*sides: int) -> np.ndarray:
    masks = np.zeros((len(sides), 12, 12))
    for mask, side in zip(masks, sides, strict=True):
        mask[2 : 2 + side, 2 : 2 + side] = 1
    return masks


def test_dice() -> None:
    assert dice(squares(4, 4, 2), squares(4, 2, 4)).tolist() == [1.0, 2 * 4 / 20, 2 * 4 / 20]
    assert dice(0.4 * squares(4), squares(4)).tolist() == [0.0]
    assert dice(0.4 * squares(4), squares(4), threshold=0.3).tolist() == [1.0]


@pytest.mark.parametrize("measure", [dice, surface_dice])
def test_two_empty_masks_agree_and_one_is_a_miss(measure) -> None:
    assert measure(squares(0, 0, 3), squares(0, 3, 0)).tolist() == [1.0, 0.0, 0.0]


def test_surface_dice_forgives_its_tolerance() -> None:
    shifted = np.roll(squares(5), 1, axis=1)
    assert surface_dice(squares(5), squares(5), tolerance=0).tolist() == [1.0]
    assert surface_dice(shifted, squares(5), tolerance=1).tolist() == [1.0]
    # 16 edge pixels each; moved by one they share two columns of four
    assert surface_dice(shifted, squares(5), tolerance=0).tolist() == [pytest.approx(8 / 16)]
    assert surface_dice(np.roll(squares(5), 4, axis=1), squares(5), tolerance=1)[0] < 0.5
    volume = np.zeros((1, 6, 6, 6))
    volume[0, 1:5, 1:5, 1:5] = 1
    assert surface_dice(volume, np.roll(volume, 1, axis=3)).tolist() == [1.0]
    filled = np.ones((1, 4, 4))
    assert surface_dice(filled, filled).tolist() == [1.0]
    with pytest.raises(RecipeError, match="`tolerance` must"):
        surface_dice(filled, filled, tolerance=-1)


def test_cross_entropy_and_squared_error() -> None:
    truth = np.array([[[1.0, 0.0]]])
    assert cross_entropy(np.array([[[0.8, 0.3]]]), truth)[0] == pytest.approx(-(np.log(0.8) + np.log(0.7)) / 2)
    assert cross_entropy(np.array([[[-3.0, 5.0]]]), truth)[0] == pytest.approx(-np.log(1e-6))
    assert squared_error(np.array([[[0.5, 0.5]]]), truth).tolist() == [0.25]
    with pytest.raises(RecipeError, match="`margin` must"):
        cross_entropy(truth, truth, margin=0.5)
    for wrong in (4 * truth, truth - 0.1, np.full_like(truth, np.nan)):
        with pytest.raises(DataError, match="`truth` must lie in"):
            cross_entropy(truth, wrong)


def test_a_threshold_is_chosen_on_public_masks_alone() -> None:
    public = Public.of(np.zeros((2, 1)), squares(4, 5))
    assert best_threshold(0.3 * squares(4, 5) + 0.1, public) == pytest.approx(0.1)
    assert best_threshold(0.3 * squares(4, 5), public, thresholds=[0.6, 0.2, 0.25]) == 0.2
    for wrong in (Private.of(np.zeros((2, 1)), squares(4, 5)), public.unlabelled(), squares(4, 5)):
        with pytest.raises(DataError, match="`public` must be Public"):
            best_threshold(squares(4, 5), wrong)


def test_refuses_other_shapes() -> None:
    for measure in (dice, surface_dice, cross_entropy, squared_error):
        with pytest.raises(DataError, match="must have one shape"):
            measure(np.zeros((2, 3, 3)), np.zeros((2, 3, 4)))
