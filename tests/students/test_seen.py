"""Questions that filters choose: by the public pool alone, and of every kind of stroke."""

import numpy as np
import pytest

pytest.importorskip("torch")

from tutelage.data.dataset import Public
from tutelage.data.digits import digits
from tutelage.features.seeing import Seeing
from tutelage.privacy.errors import RecipeError
from tutelage.students.questions import Prototypes
from tutelage.students.seen import SeenPrototypes


@pytest.fixture(scope="module")
def pool() -> Public:
    return digits()[1]


def sevens(*, barred: int = 30, others: int = 600) -> tuple[Public, np.ndarray]:
    """Draw sevens of many sizes and slants, half of them with a foot, and a few with a bar through the stem."""
    generator, images = np.random.default_rng(0), np.zeros((others + barred, 1, 28, 28), np.float32)
    for number, image in enumerate(images[:, 0]):
        top, left = generator.integers(4, 8), generator.integers(5, 9)
        width, height, slant = generator.integers(10, 14), generator.integers(14, 18), generator.uniform(0.3, 0.7)
        image[top : top + 2, left : left + width] = 1
        for row in range(height):
            stem = int(left + width - 1 - slant * row)
            image[top + row, stem - 1 : stem + 2] = 1
        middle, stem = top + height // 2, int(left + width - 1 - slant * height / 2)
        if number >= others:
            image[middle : middle + 2, stem - 4 : stem + 5] = 1
        elif number % 2:
            image[top + height - 2 : top + height, left : left + width] = 1
    return Public.of(images), np.arange(len(images)) >= others


def test_filters_find_a_rare_kind_that_pixels_do_not_tell_apart() -> None:
    pool, rare = sevens()
    found = [rare[SeenPrototypes(seed=seed)(pool, 20)].sum() for seed in range(3)]
    missed = [rare[Prototypes(seed=seed)(pool, 20)].sum() for seed in range(3)]
    assert min(found) >= 1
    assert sum(missed) < sum(found)


def test_what_filters_choose_depends_on_inputs_and_seed_alone(pool: Public) -> None:
    how = Seeing(axes=20, filters=30, patch=4, grid=2)
    chosen = SeenPrototypes(how, seed=3)(pool, 40)
    assert len(set(chosen.tolist())) == 40
    assert np.array_equal(chosen, SeenPrototypes(how, seed=3)(pool.unlabelled(), 40))
    assert not np.array_equal(chosen, SeenPrototypes(how, seed=4)(pool, 40))


def test_filters_tell_how_far_they_are(pool: Public) -> None:
    told: list[tuple[int, int]] = []
    SeenPrototypes(Seeing(axes=20, filters=30, patch=4, grid=2))(pool, 5, progress=lambda *now: told.append(now))
    assert len(told) > 2
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({total for _, total in told}) == 1


def test_a_pool_smaller_than_the_axes_is_seen_along_fewer() -> None:
    pool, _ = sevens(barred=2, others=20)
    assert len(SeenPrototypes()(pool, 5)) == 5


def test_images_smaller_than_a_filter_are_seen_by_smaller_ones() -> None:
    images = np.random.default_rng(0).random((60, 5, 5)).astype(np.float32)
    assert len(set(SeenPrototypes()(Public.of(images), 7).tolist())) == 7


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4, 5)])
def test_filters_are_for_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(RecipeError, match=r"`public` must hold images where filters choose the questions"):
        SeenPrototypes()(Public.of(np.zeros((30, *shape), np.float32)), 5)
