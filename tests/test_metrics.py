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


# ── labels ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_beside_scikit_learn() -> None:
    from sklearn import metrics as judge

    from tutelage.metrics import classified

    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    shares = rng.dirichlet((1, 1, 1), 400) * 0.6 + 0.4 * np.eye(3)[truth]
    best, found = shares.argmax(axis=1), classified(shares, truth, ("a", "b", "c"))
    assert found["accuracy"]["value"] == pytest.approx(judge.accuracy_score(truth, best))
    assert found["balanced accuracy"] == pytest.approx(judge.balanced_accuracy_score(truth, best))
    assert found["AUC"] == pytest.approx(judge.roc_auc_score(truth, shares, multi_class="ovr"))
    assert found["Brier"] == pytest.approx(judge.brier_score_loss(truth, shares, scale_by_half=False))
    matrix = judge.multilabel_confusion_matrix(truth, best)
    for row, ((tn, fp), (fn, tp)) in zip(found["classes"], matrix, strict=True):
        assert row["sensitivity"]["value"] == pytest.approx(tp / (tp + fn))
        assert row["specificity"]["value"] == pytest.approx(tn / (tn + fp))
        assert row["sensitivity"]["low"] < row["sensitivity"]["value"] < row["sensitivity"]["high"]
    assert found["majority"]["accuracy"] == pytest.approx(np.bincount(truth).max() / 400)


def test_calibration_tells_sure_from_right() -> None:
    from tutelage.metrics import calibration

    rng = np.random.default_rng(1)
    sure = rng.uniform(0.5, 1, 4000)
    truth = (rng.random(4000) > sure).astype(int)
    fair = np.stack([sure, 1 - sure], axis=1)
    assert calibration(fair, truth)["ECE"] < 0.03
    boasting = np.stack([np.full(4000, 0.999), np.full(4000, 0.001)], axis=1)
    assert calibration(boasting, truth)["ECE"] > 0.2


def test_wilson_against_the_published_example() -> None:
    """Newcombe 1998, table I, method 3: 15 of 148, and the ends."""
    from tutelage.metrics import wilson

    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)


def test_masks_beside_constants() -> None:
    from tutelage.metrics import bootstrap, drawn

    truth = np.zeros((4, 10, 10))
    truth[:3, :5] = 1
    found = drawn(truth, truth)
    assert found["Dice"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["constants"] == {"nothing": 0.25, "all object": pytest.approx(0.5)}
    assert found["empty masks"] == 1
    low = bootstrap(np.array([0.0, 1.0] * 50))
    assert low["low"] < 0.45 < 0.5 == low["value"] < 0.55 < low["high"]
    assert low == bootstrap(np.array([0.0, 1.0] * 50))


def test_shares_that_are_not_the_predictions_are_not_ranked() -> None:
    from tutelage.data.dataset import Public
    from tutelage.metrics import measured

    class Other:
        def predict(self, inputs: np.ndarray) -> np.ndarray:
            return np.zeros(len(inputs), int)

        def probabilities(self, inputs: np.ndarray) -> np.ndarray:
            return np.tile([0.1, 0.9], (len(inputs), 1))

    found = measured(Other(), Public.of(np.zeros((6, 2)), np.array([0, 0, 0, 0, 1, 1])), ("no", "yes"))
    assert "AUC" not in found
    assert found["accuracy"]["value"] == pytest.approx(2 / 3)
    assert found["classes"][1]["sensitivity"]["value"] == 0
