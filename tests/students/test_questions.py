"""Questions are chosen by the public pool alone, and better than by chance."""

import numpy as np
import pytest

from tutelage.data.dataset import Public
from tutelage.data.digits import digits
from tutelage.privacy.errors import RecipeError
from tutelage.students.questions import Prototypes, Uncertain


@pytest.fixture(scope="module")
def pool() -> Public:
    return digits()[1]


def test_prototypes_are_different_records_of_the_pool(pool: Public) -> None:
    chosen = Prototypes()(pool, 60)
    assert len(set(chosen.tolist())) == 60
    assert chosen.min() >= 0
    assert chosen.max() < len(pool)


def test_the_choice_depends_on_inputs_and_seed_alone(pool: Public) -> None:
    chosen = Prototypes(seed=3)(pool, 40)
    assert np.array_equal(chosen, Prototypes(seed=3)(pool.unlabelled(), 40))
    assert not np.array_equal(chosen, Prototypes(seed=4)(pool, 40))


def test_prototypes_stand_for_the_pool_better_than_its_first_records(pool: Public) -> None:
    rows = pool.inputs.reshape(len(pool), -1)

    def distance(chosen: np.ndarray) -> float:
        return float(((rows[:, None] - rows[chosen]) ** 2).sum(axis=2).min(axis=1).mean())

    assert distance(Prototypes()(pool, 60)) < 0.9 * distance(np.arange(60))


def test_duplicates_in_the_pool_are_asked_about_once_each() -> None:
    pool = Public.of(np.repeat(np.eye(6, dtype=np.float32), 4, axis=0))
    chosen = Prototypes(components=3)(pool, 8)
    assert len(set(chosen.tolist())) == 8


# ── by what the student does not know ─────────────────────────────────────────────────────────────────────────────────


def test_the_first_round_asks_about_prototypes(pool: Public) -> None:
    assert np.array_equal(Uncertain(seed=3)(pool, 40), Prototypes(seed=3)(pool, 40))


def test_later_rounds_ask_about_what_is_least_sure_and_new(pool: Public) -> None:
    shares = np.full((len(pool), 10), 0.0)
    shares[:, 0], shares[:, 1] = 1.0, 0.0
    unsure = np.arange(100, 220)
    shares[unsure, 0] = shares[unsure, 1] = 0.5
    asked = np.zeros(len(pool), dtype=bool)
    asked[100:160] = True
    chosen = Uncertain(breadth=3.0).again(pool, 20, shares=shares, asked=asked)
    assert len(set(chosen.tolist())) == 20
    assert set(chosen.tolist()) <= set(range(160, 220))  # unsure, and not asked yet


def test_later_rounds_are_spread_over_what_is_unsure() -> None:
    places = np.repeat(np.asarray([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), 20, axis=0)
    pool = Public.of(places + np.random.default_rng(0).normal(scale=0.1, size=places.shape))
    lead = np.repeat([0.0, 0.1, 0.2], 20)  # the twenty least sure are all in one place
    shares = np.stack([0.5 + lead / 2, 0.5 - lead / 2], axis=1)
    alike = Uncertain(breadth=1.0, components=2).again(pool, 3, shares=shares, asked=np.zeros(60, dtype=bool))
    spread = Uncertain(breadth=20.0, components=2).again(pool, 3, shares=shares, asked=np.zeros(60, dtype=bool))
    assert {int(index) // 20 for index in alike} == {0}
    assert {int(index) // 20 for index in spread} == {0, 1, 2}


def test_a_pool_that_is_nearly_used_up_gives_what_it_has() -> None:
    pool = Public.of(np.eye(6, dtype=np.float32))
    asked = np.asarray([True, True, True, True, False, False])
    chosen = Uncertain(components=3).again(pool, 4, shares=np.full((6, 2), 0.5), asked=asked)
    assert sorted(chosen.tolist()) == [4, 5]


def test_a_breadth_below_one_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"`breadth` must be ≥ 1\. Got 0\.5"):
        Uncertain(breadth=0.5)
