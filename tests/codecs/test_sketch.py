"""Directions of rows that are read once: as good as an SVD's, in a third of its memory."""

import tracemalloc

import numpy as np
import pytest

from tutelage.codecs import sketch
from tutelage.codecs.sketch import Sketch
from tutelage.privacy.errors import DataError


def gathered(rows: np.ndarray, rank: int, *, centre: bool = False, parts: int = 7) -> Sketch:
    found = Sketch(rows.shape[1], rank, len(rows), centre=centre)
    for some in np.array_split(rows, parts):
        found.add(some)
    return found


@pytest.mark.parametrize("centre", [False, True])
def test_all_rows_at_once_are_an_svd(centre: bool) -> None:
    rows = np.random.default_rng(0).normal(1.0, np.linspace(2, 0.1, 50), (20, 50))
    values, vectors = gathered(rows, 20, centre=centre).solve(20)
    _, expected, directions = np.linalg.svd(rows - rows.mean(axis=0) * centre, full_matrices=False)
    kept = 20 - centre  # the last of centred rows is rounding
    assert len(values) == len(vectors) == kept
    np.testing.assert_allclose(values, expected[:kept] ** 2, rtol=1e-9)
    np.testing.assert_allclose(np.abs((vectors * directions[:kept]).sum(axis=1)), 1.0, rtol=1e-6)


@pytest.mark.parametrize("centre", [False, True])
def test_merged_rows_have_the_scatter_of_all(centre: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows in a space no larger than the rank merging forgets nothing, however often it is done."""
    monkeypatch.setattr(sketch, "_VALUES", 0)
    monkeypatch.setattr(sketch, "_COLUMNS", 7)
    rng = np.random.default_rng(1)
    rows = 3.0 + rng.normal(size=(101, 5)) @ rng.normal(size=(5, 40))  # rank 6 with the shift
    found = gathered(rows, 6, centre=centre, parts=4)
    values, vectors = found.solve(6)
    middle = rows.mean(axis=0) * centre
    scatter = (rows - middle).T @ (rows - middle)
    np.testing.assert_allclose(vectors.T @ (values[:, None] * vectors), scatter, atol=1e-9 * scatter.max())
    np.testing.assert_allclose(found.sum, rows.sum(axis=0))
    assert found.squares == pytest.approx((rows**2).sum())


def test_directions_are_orthonormal_though_some_have_a_billionth_of_the_variance() -> None:
    rows = np.random.default_rng(2).normal(0, np.geomspace(1, 3e-5, 30), (30, 30))
    _, vectors = gathered(rows, 30).solve(30)
    assert len(vectors) > 20
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(vectors)), atol=1e-12)


def test_no_rows_and_rows_of_zeros_have_no_direction() -> None:
    assert len(gathered(np.zeros((6, 4)), 3).solve(3)[0]) == 0
    assert len(Sketch(4, 3, 6, centre=False).solve(3)[0]) == 0
    for height in (1.0, 0.1):  # a tenth is rounded
        assert len(gathered(np.full((6, 4), height), 3, centre=True).solve(3)[0]) == 0


@pytest.mark.parametrize(("rank", "records"), [(4, 4), (2, 4), (2, 6), (3, 7), (6, 4)])
@pytest.mark.parametrize("waiting", [0, 1 << 23])
def test_more_rows_than_were_counted_are_refused(rank: int, records: int, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a merge has made room again."""
    monkeypatch.setattr(sketch, "_VALUES", waiting)
    rows = np.random.default_rng(4).normal(size=(records, 4))
    found, twin = gathered(rows, rank), gathered(rows, rank)
    with pytest.raises(DataError, match=f"`records` must count all rows. Got more than {records} instead"):
        found.add(np.ones((1, 4)))
    assert found.squares == twin.squares  # nothing was taken in
    np.testing.assert_array_equal(found.solve(rank)[1], twin.solve(rank)[1])
    with pytest.raises(DataError, match="`records` must count all rows"):
        Sketch(4, rank, records, centre=False).add(np.ones((records + 1, 4)))


def test_little_more_than_the_directions_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "_VALUES", 0)
    rank, width = 12, 200_000
    rng = np.random.default_rng(3)
    tracemalloc.start()
    found = Sketch(width, rank, 60, centre=True)
    for _ in range(60):
        found.add(rng.random((1, width)))
    values, vectors = found.solve(rank)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(vectors) == len(values) == rank
    assert kept < 1.3 * rank * width * 8  # the directions, and one sum of all rows
    assert peak < 2.8 * rank * width * 8  # 2 · rank, one row for the means, and what reads and adds them
