"""Critics that answer generated images: the walk with a kill in its middle, both modes, and what one record may move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tutelage.codecs.directions import Directions
from tutelage.data.dataset import Private
from tutelage.features.procedural import procedural
from tutelage.nets.generators import Drawing
from tutelage.privacy.budget import Budget
from tutelage.privacy.mechanisms import _KEY
from tutelage.privacy.queries import Query
from tutelage.tasks.adversarial.walk import Adversarial, train
from tutelage.tasks.statistics.functions import Pixels
from tutelage.teachers.critics import Critics, CriticSettings
from tutelage.verification import verify

PIXELS, BUDGET = Pixels((1, 8, 8)), Budget(10, 1e-5)
DRAWING = Drawing((1, 8, 8), ("a", "b"), latent=4, width=4)
HOW = Adversarial(critics=6, rounds=70, images=4, latent=4, width=4)


@pytest.fixture(scope="module")
def private() -> Private:
    return Private.of(procedural(60, (1, 8, 8))[:, 0], np.arange(60) % 2)


def _critics(**more: Any) -> Critics:
    return Critics(CriticSettings((1, 8, 8), 2, width=4, batch=4, steps=1, warm=2, **more), PIXELS)


def test_a_run_that_was_killed_goes_on_and_verifies(private: Private, tmp_path: Path) -> None:
    given: dict[str, Any] = {"how": HOW, "drawing": DRAWING, "budget": BUDGET, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(private, teachers=_critics(), stop_after=3, **given)
    generator, document = train(private, teachers=_critics(), resume=True, **given)
    assert document["labels"]["released"] == 9  # 3 before the kill; the block of 64 that was counted ahead is lost; 6 after it
    assert verify(tmp_path / "run").recomputed_epsilon == pytest.approx(10, rel=1e-6)  # all 70 were paid for
    assert generator.sample(4)[0].shape == (4, 1, 8, 8)


def test_one_secret_critic_a_round_is_paid_for_as_such(private: Private, tmp_path: Path) -> None:
    how = Adversarial(critics=6, rounds=3, images=4, mode="one", latent=4, width=4)
    _, document = train(private, how=how, teachers=_critics(), drawing=DRAWING, budget=BUDGET, out=tmp_path / "run")
    assert document["events"][0]["kind"] == "Reserved"
    assert verify(tmp_path / "run").recomputed_epsilon <= 10 * (1 + 1e-6)


@pytest.mark.slow
def test_drawing_one_critic_takes_less_noise_than_it_would_alone() -> None:
    codec = Directions((1, 8, 8), 1.0, 4)
    alone = BUDGET.sigma(float(codec.bound.sensitivity(BUDGET.adjacency, unit=BUDGET.unit)), rounds=50)
    assert Adversarial(critics=50, rounds=50, images=4, mode="one").sigma(BUDGET, codec) < 0.8 * alone


def test_noise_is_for_all_rows_jointly() -> None:
    """A twin that pays per image would take a noise √B times too small."""
    for rows in (1, 16):
        codec = Directions((1, 8, 8), 0.5, rows)
        assert float(codec.bound.sensitivity(BUDGET.adjacency, unit=BUDGET.unit)) == pytest.approx(2 * 0.5 * rows**0.5)


def test_a_replaced_record_moves_its_own_critic_alone(private: Private) -> None:
    shards, x = private.split(6), private.inputs.copy()
    x[7] = 1 - x[7]
    owner = next(number for number, part in enumerate(shards.indices) if 7 in part)
    query = Query.state(images=procedural(4, (1, 8, 8), random_state=9))
    answers = []
    for inputs in (private.inputs, x):
        critics = _critics().fit(Private.of(inputs, private.targets), shards)
        critics.advance(procedural(4, (1, 8, 8), random_state=8))
        answers.append(np.concatenate([part._open(_KEY) for part in critics.contributions(query)]))
    same = (answers[0] == answers[1]).reshape(6, -1).all(axis=1)
    assert same.tolist() == [number != owner for number in range(6)]


def test_critics_learn_where_real_images_are() -> None:
    """Bright images are real: the gradient at dark ones points to more light."""
    bright = Private.of(np.full((40, 8, 8), 0.9, dtype=np.float32), np.arange(40) % 2)
    critics = Critics(CriticSettings((1, 8, 8), 2, width=4, batch=8, warm=60, learning_rate=2e-3), PIXELS).fit(
        bright, bright.split(2)
    )
    found = next(iter(critics.contributions(Query.state(images=np.full((4, 1, 8, 8), 0.2, dtype=np.float32)))))._open(_KEY)
    assert found.mean() > 0
    assert torch.get_default_dtype() == torch.float32
