"""Masks are measured by what overlaps and by every pixel; labels as ever."""

import pytest
import torch
import torch.nn.functional as F

from tutelage.nets.losses import dice_and_entropy, measure


def test_a_sure_and_right_answer_costs_nothing_and_a_wrong_one_much() -> None:
    masks = torch.zeros(2, 6, 6, dtype=torch.uint8)
    masks[:, 2:4, 2:5] = 1
    sure = 40 * (2 * masks.float() - 1)[:, None]
    assert dice_and_entropy(sure, masks).item() == pytest.approx(0, abs=1e-5)
    assert dice_and_entropy(-sure, masks).item() > 10
    nothing = torch.zeros(2, 6, 6)
    assert dice_and_entropy(torch.full((2, 1, 6, 6), -40.0), nothing).item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("space", [(5, 4), (3, 4, 5)])
def test_dice_is_taken_image_by_image(space: tuple[int, ...]) -> None:
    logits, masks = torch.randn(3, 1, *space), torch.rand(3, *space)  # soft masks too
    expected = []
    for logit, mask in zip(logits[:, 0], masks, strict=True):
        share = logit.sigmoid()
        dice = (2 * (share * mask).sum() + 1) / (share.sum() + mask.sum() + 1)
        expected.append(1 - dice + F.binary_cross_entropy(share, mask))
    assert dice_and_entropy(logits, masks).item() == pytest.approx(torch.stack(expected).mean().item(), rel=1e-4)


def test_the_targets_choose_the_loss() -> None:
    scores, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert torch.equal(measure(scores, labels, smoothing=0.1), F.cross_entropy(scores, labels, label_smoothing=0.1))
    logits, masks = torch.randn(4, 1, 5, 5), (torch.rand(4, 5, 5) > 0.5).to(torch.uint8)
    assert torch.equal(measure(logits, masks), dice_and_entropy(logits, masks))
    assert torch.equal(measure(logits, masks.float()), dice_and_entropy(logits, masks))
