"""Questions are chosen by the public pool alone, and better than by chance."""

import numpy as np
import pytest

from tutelage.data.dataset import Public
from tutelage.data.digits import digits
from tutelage.students.questions import Prototypes


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
