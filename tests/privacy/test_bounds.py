"""The clip never leaves the set, and no two members are further apart than the claimed sensitivity."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex, bound_named
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Adjacency, Unit

NAMES = ("ball", "orthant", "cube", "simplex", "onehot", "binary")
NORMS = (1, 2, math.inf)
ROUNDING = 1e-12  # what floats may add; mechanisms.py charges for it

bounds = st.builds(
    bound_named, st.sampled_from(NAMES), st.integers(1, 6), st.one_of(st.floats(1e-3, 1e3), st.sampled_from([1e-200, 1e200]))
)
entries = st.one_of(
    st.floats(-10, 10),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, -0.0, 5e-324, 1e-170]),
)


def ballots(bound: Bound, rows: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.float64, (rows, bound.dimension), elements=entries)


def inside(bound: Bound, members: np.ndarray) -> bool:
    """Say whether all rows lie in the set, by its definition."""
    assert np.isfinite(members).all()
    peak = np.abs(members).max(axis=-1, initial=0.0)
    length = peak * np.linalg.norm(members / np.where(peak > 0, peak, 1.0)[..., None], axis=-1)
    match bound:
        case Ball():
            held = length <= bound.norm * (1 + ROUNDING)
        case Orthant():
            held = (length <= bound.norm * (1 + ROUNDING)) & (members >= 0).all(axis=-1)
        case Cube():
            held = peak <= bound.side
        case Simplex():
            held = (members >= 0).all(axis=-1) & (np.abs(members.sum(axis=-1) - 1) <= ROUNDING)
        case OneHot():
            held = np.isin(members, [0.0, 1.0]).all(axis=-1) & (members.sum(axis=-1) == 1)
        case _:
            held = np.isin(members, [0.0, 1.0]).all(axis=-1)
    return bool(held.all())


@given(data=st.data(), bound=bounds)
def test_clip_is_total_and_never_leaves_the_set(data: st.DataObject, bound: Bound) -> None:
    given_ = data.draw(ballots(bound, 4))
    before = given_.copy()
    clipped = bound.clip(given_)
    assert clipped.shape == given_.shape
    assert clipped.dtype == np.float64
    assert inside(bound, clipped)
    assert np.array_equal(given_, before, equal_nan=True)  # the caller's array is left alone


@given(data=st.data(), bound=bounds)
def test_clip_is_idempotent(data: st.DataObject, bound: Bound) -> None:
    once = bound.clip(data.draw(ballots(bound, 4)))
    np.testing.assert_allclose(bound.clip(once), once, rtol=1e-14, atol=0)


@given(data=st.data(), bound=st.builds(bound_named, st.sampled_from(NAMES), st.integers(1, 6), st.floats(0.1, 10)))
def test_members_are_left_where_they_are(data: st.DataObject, bound: Bound) -> None:
    member = bound.clip(data.draw(hnp.arrays(np.float64, (3, bound.dimension), elements=st.floats(-0.1, 0.9))))
    np.testing.assert_allclose(bound.clip(member), member, rtol=1e-14, atol=0)
    if isinstance(bound, (Ball, Cube)):
        np.testing.assert_allclose(bound.clip(member / 2), member / 2, rtol=0, atol=0)


@given(data=st.data(), bound=bounds, norm=st.sampled_from(NORMS))
def test_no_two_clipped_ballots_are_further_apart_than_claimed(data: st.DataObject, bound: Bound, norm: float) -> None:
    members = bound.clip(data.draw(ballots(bound, 6)))
    scale = np.abs(members).max() or 1.0  # so that the test's own squares stay in range
    for one, two in itertools.combinations(members, 2):
        assert np.linalg.norm(one / scale - two / scale, ord=norm) * scale <= bound.diameter(norm) * (1 + ROUNDING)
    for one in members:
        assert np.linalg.norm(one / scale, ord=norm) * scale <= bound.radius(norm) * (1 + ROUNDING)


def corners(bound: Bound) -> np.ndarray:
    """Give extreme members of the set, opposite ones among them."""
    d = bound.dimension
    unit = np.eye(d)
    match bound:
        case Ball():
            ends = [*unit, *-unit, np.full(d, d**-0.5), np.full(d, -(d**-0.5))]
            return bound.norm * np.asarray(ends)
        case Orthant():
            half = (np.arange(d) < d / 2).astype(float)
            ends = [*unit, np.zeros(d), np.full(d, d**-0.5), half / np.linalg.norm(half)]
            if d > 1:
                ends.append((1 - half) / np.linalg.norm(1 - half))
            return bound.norm * np.asarray(ends)
        case Cube():
            return bound.side * np.asarray(list(itertools.product([-1.0, 1.0], repeat=d)))
        case Binary():
            return np.asarray(list(itertools.product([0.0, 1.0], repeat=d)))
    return unit


ALL = [bound_named(name, d, 1.5) for name in NAMES for d in (1, 2, 3, 4, 5)]
ids = [f"{type(bound).__name__}{bound.dimension}" for bound in ALL]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bound", ALL, ids=ids)
def test_corner_pairs_attain_the_diameter_and_the_radius(bound: Bound, norm: float) -> None:
    members = corners(bound)
    assert inside(bound, members)
    np.testing.assert_allclose(bound.clip(members), members, rtol=1e-14, atol=1e-300)
    furthest = max(np.linalg.norm(one - two, ord=norm) for one in members for two in members)
    longest = max(np.linalg.norm(one, ord=norm) for one in members)
    odd = isinstance(bound, Orthant) and norm == 1 and bound.dimension in (3, 5)  # halves are unequal: an upper bound, within 2 %
    assert furthest == pytest.approx(bound.diameter(norm), rel=0.02 if odd else 1e-12, abs=0)
    assert furthest <= bound.diameter(norm) * (1 + ROUNDING)
    assert longest == pytest.approx(bound.radius(norm), rel=1e-12)


def half_sensitivity(bound: Bound) -> float:
    """Broken twin: the radius, as if a record could only be added to nothing."""
    return bound.radius()


def one_over_k(bound: Bound) -> float:
    """Broken twin: the clipping norm, for every set."""
    return float(getattr(bound, "norm", getattr(bound, "side", 1.0)))


@pytest.mark.parametrize("bound", [bound for bound in ALL if bound.dimension > 1 and not isinstance(bound, Binary)], ids=str)
@pytest.mark.parametrize(("claim", "holds"), [(lambda b: b.sensitivity(), True), (half_sensitivity, False), (one_over_k, False)])
def test_replacing_one_ballot_moves_the_sum_no_further_than_claimed(
    bound: Bound, claim: Callable[[Bound], float], holds: bool
) -> None:
    others = bound.clip(np.random.default_rng(0).normal(size=(7, bound.dimension))).sum(axis=0)
    moved = max(np.linalg.norm((others + one) - (others + two)) for one in corners(bound) for two in corners(bound))
    assert bool(moved <= claim(bound) * (1 + ROUNDING)) is holds


def no_clip(bound: Bound, given_: np.ndarray) -> np.ndarray:
    """Broken twin: trusts the codec."""
    return given_


@pytest.mark.parametrize(("clip", "holds"), [(lambda bound, given_: bound.clip(given_), True), (no_clip, False)])
def test_the_set_check_catches_a_missing_clip(clip: Callable[[Bound, np.ndarray], np.ndarray], holds: bool) -> None:
    given_ = np.array([[3.0, -4.0, 0.2]])
    assert all(inside(bound_named(name, 3), clip(bound_named(name, 3), given_)) is holds for name in NAMES)


@pytest.mark.parametrize(
    ("bound", "l1", "l2"),
    [
        (Ball(4, 3.0), 12.0, 6.0),
        (Orthant(8, 3.0), 12.0, math.sqrt(2) * 3.0),
        (Orthant(1, 3.0), 3.0, 3.0),
        (Cube(16), 32.0, 8.0),
        (Simplex(10), 2.0, math.sqrt(2)),
        (OneHot(10), 2.0, math.sqrt(2)),
        (OneHot(1), 0.0, 0.0),
        (Simplex(1), 0.0, 0.0),
        (Binary(9), 9.0, 3.0),
    ],
    ids=str,
)
def test_the_sensitivities_of_the_design(bound: Bound, l1: float, l2: float) -> None:
    assert bound.sensitivity(norm=1) == pytest.approx(l1, rel=1e-15)
    assert bound.sensitivity() == pytest.approx(l2, rel=1e-15)


def test_a_unit_behind_several_teachers_moves_the_sum_as_often() -> None:
    assert Ball(3).sensitivity(unit=Unit("institution", 4)) == 8.0
    assert Ball(3).sensitivity("replace-one", unit=Unit("patient", 2)) == 4.0  # type: ignore[arg-type]


def test_the_radius_is_for_whole_institutions_that_come_or_go() -> None:
    assert Ball(3).sensitivity(Adjacency.ADD_REMOVE, unit=Unit("institution")) == 1.0
    assert Cube(4).sensitivity(Adjacency.ADD_REMOVE, unit=Unit("institution", 3)) == 6.0
    for unit in (Unit("record"), Unit("patient", 2)):
        with pytest.raises(RecipeError, match="`adjacency` must be 'replace-one' unless the unit is a whole institution"):
            Ball(3).sensitivity(Adjacency.ADD_REMOVE, unit=unit)


@pytest.mark.parametrize("adjacency", ["swap", None, 1])
def test_an_unknown_adjacency_is_named(adjacency: Any) -> None:
    with pytest.raises(RecipeError, match="`adjacency` must be 'replace-one' or 'add-remove'"):
        Ball(3).sensitivity(adjacency)


@pytest.mark.parametrize("norm", [0, 3, -1, math.nan, "2", None])
def test_an_unknown_norm_is_named(norm: Any) -> None:
    with pytest.raises(RecipeError, match="`norm` must be 1, 2 or infinity"):
        Ball(3).sensitivity(norm=norm)


def test_what_is_not_a_number_becomes_the_zero_ballot() -> None:
    nothing = np.full((1, 3), math.nan)
    for bound in (Ball(3), Orthant(3), Cube(3), Binary(3)):
        assert bound.clip(nothing).tolist() == [[0.0, 0.0, 0.0]]
    assert Simplex(3).clip(nothing).tolist() == [[1 / 3, 1 / 3, 1 / 3]]
    assert OneHot(3).clip(nothing).tolist() == [[1.0, 0.0, 0.0]]


def test_infinities_point_their_way() -> None:
    far = np.array([math.inf, -1.0])
    assert Ball(2).clip(far) == pytest.approx([1.0, 0.0])
    assert Orthant(2).clip(far) == pytest.approx([1.0, 0.0])
    assert Cube(2).clip(far).tolist() == [1.0, -1.0]
    assert Simplex(2).clip(far).tolist() == [1.0, 0.0]
    assert OneHot(2).clip(far).tolist() == [1.0, 0.0]
    assert Binary(2).clip(far).tolist() == [1.0, 0.0]
    assert Simplex(3).clip([math.inf, math.inf, 5.0]).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("norm", [1e-300, 1e-200, 1.0, 1e200])
def test_long_ballots_land_on_the_sphere_at_every_scale(norm: float) -> None:
    for scale in (1e-150, 1.0, 1e150, 1e299):
        clipped = Ball(2, norm).clip([3 * scale, -4 * scale])
        if 5 * scale > norm:
            np.testing.assert_allclose(clipped / norm, [0.6, -0.8], rtol=1e-14)
        else:
            assert clipped.tolist() == [3 * scale, -4 * scale]


@pytest.mark.parametrize("bound", [bound_named(name, 3) for name in NAMES], ids=NAMES)
@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 2), (0,), (5, 0)])
def test_a_wrong_shape_is_named(bound: Bound, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="`ballots` must have 3 coordinates on their last axis"):
        bound.clip(np.zeros(shape))


@pytest.mark.parametrize("given_", [[[1.0, 7770123.0], [2.0]], [["7770123x", "1"]], [[7770123j, 1]]])
def test_unreadable_ballots_are_refused_without_being_quoted(given_: Any) -> None:
    with pytest.raises(DataError, match="`ballots` must be an array of real numbers") as caught:
        Ball(2).clip(given_)
    assert "7770123" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_no_ballots_are_no_problem() -> None:
    assert all(bound_named(name, 3).clip(np.zeros((0, 3))).shape == (0, 3) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dimension", [0, -1, 1.5, True, None, "3"])
def test_a_bad_dimension_is_named(name: str, dimension: Any) -> None:
    with pytest.raises(RecipeError, match="`dimension` must be a whole number ≥ 1"):
        bound_named(name, dimension)


@pytest.mark.parametrize(("build", "name"), [(Ball, "norm"), (Orthant, "norm"), (Cube, "side")])
@pytest.mark.parametrize("size", [0, -1.0, math.nan, math.inf, None, "1", 10**400], ids=lambda size: repr(size)[:9])
def test_a_bad_size_is_named(build: Any, name: str, size: Any) -> None:
    with pytest.raises(RecipeError, match=f"`{name}` must be a finite number > 0"):
        build(3, size)


def test_an_unknown_bound_is_named() -> None:
    with pytest.raises(RecipeError, match=r"`bound` must be one of ball, orthant, .*\. Got 'sphere'"):
        bound_named("sphere", 3)
