"""Sums of records: exact on the grid, clipped jointly per place, and twins that clip row by row are caught."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.statistical.audit import audit

from tutelage.privacy import mechanisms
from tutelage.privacy.accounting import cost
from tutelage.privacy.bounds import Ball, Stacked
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.mechanisms import NoisySum
from tutelage.privacy.queries import Form
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.sums import Block, GridSum, Shape
from tutelage.privacy.units import Adjacency, Unit

RNG = np.random.default_rng(7)
FORMS = [Form.SUM, Form.GROUPED, Form.GRAM, Form.OUTER]


def block(places: Any, left: Any, groups: Any = None, right: Any = None) -> Block:
    return Block(
        Sealed(np.asarray(places, dtype=np.int64)),
        Sealed(left),
        None if groups is None else Sealed(np.asarray(groups, dtype=np.int64)),
        None if right is None else Sealed(right),
    )


def rows_of(form: Form, rows: int, width: int = 5, scale: float = 3.0) -> tuple[np.ndarray, Any, Any]:
    left = RNG.normal(size=(rows, width)) * scale
    groups = RNG.integers(0, 3, rows) if form in (Form.GROUPED,) else None
    return left, groups, RNG.normal(size=(rows, 2)) * scale if form == Form.OUTER else None


def shape_of(form: Form, width: int = 5, places: int = 40, unit: float = 2.0**-20, norm: float = 1.0) -> Shape:
    return Shape(form, width, norm, places, unit, 3 if form == Form.GROUPED else 1, 2 if form == Form.OUTER else 1)


def moved(form: Form, one: tuple[Any, Any, Any], other: tuple[Any, Any, Any], **more: Any) -> float:
    """Give how far a sum moves when the rows of its only place are others."""
    found = []
    for left, groups, right in (one, other):
        total = GridSum(shape_of(form, **more))
        total.add(np.zeros(len(left), dtype=np.int64), left, groups, right)
        found.append(total.total * total.shape.unit)
    return float(np.linalg.norm(found[0] - found[1]))


# ── what one place can do ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", [0.5, 1.0, 7.0])
def test_no_rows_of_one_place_move_the_sum_further_than_is_charged(form: Form, norm: float) -> None:
    shape = shape_of(form, norm=norm, unit=2.0**-16)
    charged = NoisySum(form, 5, norm, 1.0, 40, groups=shape.groups, right=shape.right).sensitivity
    for number in range(60):
        one = rows_of(form, 1 + number % 17, scale=10.0 ** RNG.integers(-6, 7))
        other = rows_of(form, 1 + (number * 7) % 17, scale=10.0 ** RNG.integers(-6, 7))
        assert moved(form, one, other, norm=norm, unit=2.0**-16) <= charged


@pytest.mark.parametrize("form", FORMS)
def test_what_is_charged_is_reached(form: Form) -> None:
    left, right = np.eye(5)[:1], np.eye(2)[:1]
    away = -left if form in (Form.SUM, Form.GROUPED) else np.eye(5)[1:2] if form == Form.GRAM else left
    groups = np.zeros(1, dtype=np.int64) if form == Form.GROUPED else None
    one = (left, groups, right if form == Form.OUTER else None)
    other = (away, groups, -right if form == Form.OUTER else None)
    shape = shape_of(form)
    charged = NoisySum(form, 5, 1.0, 1.0, 40, groups=shape.groups, right=shape.right).sensitivity
    assert moved(form, one, other) == pytest.approx(charged, rel=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_wild_rows_are_clipped_and_never_refused(form: Form) -> None:
    wild = np.array([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, 1.0])
    for _ in range(50):
        left = RNG.choice(wild, (4, 5))
        groups = RNG.integers(-9, 9, 4) if form == Form.GROUPED else None
        right = RNG.choice(wild, (4, 2)) if form == Form.OUTER else None
        zero = (np.zeros((1, 5)), None if groups is None else groups[:1], None if right is None else np.zeros((1, 2)))
        assert moved(form, (left, groups, right), zero) <= 1.0 + 1e-6


def test_a_unit_with_sixteen_records_moves_a_sum_as_far_as_one_with_one() -> None:
    """The broken twin clips row by row: it moves the sum by 32 where 2 is charged."""
    left = np.repeat(np.eye(5)[:1], 16, axis=0)
    joint = moved(Form.SUM, (left, None, None), (-left, None, None))
    assert joint == pytest.approx(2.0, rel=1e-4)
    apart = GridSum(shape_of(Form.SUM))
    apart.add(np.arange(16), left, None, None)  # the twin: every record is a place of its own
    assert 2 * np.linalg.norm(apart.total * apart.shape.unit) == pytest.approx(32.0, rel=1e-4)


def test_one_place_is_clipped_over_all_groups_together() -> None:
    left, groups = np.repeat(np.eye(5)[:1], 3, axis=0), np.arange(3)
    total = GridSum(shape_of(Form.GROUPED))
    total.add(np.zeros(3, dtype=np.int64), left, groups, None)
    assert np.linalg.norm(total.total * total.shape.unit) == pytest.approx(1.0, rel=1e-4)


def test_gram_matrices_per_class_are_clipped_together() -> None:
    shape = Shape(Form.GRAM, 4, 1.0, 10, 2.0**-20, groups=2)
    total = GridSum(shape)
    total.add(np.zeros(2, dtype=np.int64), np.eye(4)[:2] * 5, np.array([0, 1]), None)
    traces = np.trace(total.total * shape.unit, axis1=1, axis2=2)
    assert traces.sum() <= 1.0 + 1e-9
    assert traces == pytest.approx([0.5, 0.5], rel=1e-3)


# ── what the sum is ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_sums_are_those_of_plain_arithmetic() -> None:
    left, right, groups = RNG.normal(size=(300, 6)) * 0.1, RNG.normal(size=(300, 2)) * 0.1, RNG.integers(0, 3, 300)
    places, unit = np.arange(300), 2.0**-24
    cases = {
        Form.SUM: left.sum(axis=0),
        Form.GROUPED: np.stack([left[groups == group].sum(axis=0) for group in range(3)]),
        Form.GRAM: left.T @ left,
        Form.OUTER: left.T @ right,
    }
    for form, wanted in cases.items():
        total = GridSum(Shape(form, 6, 1.0, 300, unit, 3 if form == Form.GROUPED else 1, 2 if form == Form.OUTER else 1))
        for some in np.array_split(np.arange(300), 7):
            given = (groups[some] if form == Form.GROUPED else None, right[some] if form == Form.OUTER else None)
            total.add(places[some], left[some], *given)
        assert total.total * unit == pytest.approx(wanted, abs=2e-3), form


@pytest.mark.parametrize("form", FORMS)
def test_the_order_and_the_size_of_blocks_change_nothing(form: Form) -> None:
    left, groups, right = rows_of(form, 60)
    places = np.sort(RNG.integers(0, 40, 60))
    found = set()
    for parts in (1, 2, 9):
        total = GridSum(shape_of(form))
        cuts = np.array_split(np.unique(places), parts)
        for some in cuts[::-1]:
            rows = np.flatnonzero(np.isin(places, some))
            total.add(places[rows], left[rows], *(None if given is None else given[rows] for given in (groups, right)))
        found.add(total.total.tobytes())
    assert len(found) == 1


def test_a_place_in_two_blocks_is_refused() -> None:
    total = GridSum(shape_of(Form.SUM))
    total.add(np.array([3]), np.ones((1, 5)), None, None)
    with pytest.raises(DataError, match="each in one block"):
        total.add(np.array([3]), np.ones((1, 5)), None, None)
    with pytest.raises(DataError, match="`places` must be 0 to 39"):
        total.add(np.array([40]), np.ones((1, 5)), None, None)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_nothing_negative_costs_less(nonnegative: bool) -> None:
    mechanism = NoisySum(Form.GROUPED, 5, 2.0, 1.0, 4, groups=3, nonnegative=nonnegative)
    assert mechanism.sensitivity == pytest.approx(2.0 * math.sqrt(2) if nonnegative else 4.0)
    total = mechanism.contribute([block(np.arange(4), -np.ones((4, 5)), np.zeros(4))])
    assert (abs(total[0]).max() < 20) or not nonnegative


@pytest.mark.parametrize(
    ("form", "more", "wanted"),
    [
        (Form.GRAM, {}, math.sqrt(2) * 9), (Form.OUTER, {"right": 2}, 6.0), (Form.SUM, {}, 6.0),
        (Form.SUM, {"unit": Unit("patient", 4)}, 24.0),
        (Form.SUM, {"unit": Unit("institution"), "adjacency": Adjacency.ADD_REMOVE}, 3.0),
        (Form.GRAM, {"unit": Unit("institution"), "adjacency": Adjacency.ADD_REMOVE}, 9.0),
    ],
)  # fmt: skip
def test_sensitivity_is_the_diameter(form: Form, more: dict[str, Any], wanted: float) -> None:
    assert NoisySum(form, 5, 3.0, 1.0, 4, **more).sensitivity == pytest.approx(wanted)


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": Form.EACH}, {"width": 0}, {"norm": 0.0}, {"sigma": 0.0}, {"places": 0}, {"groups": 2}, {"right": 2},
        {"form": Form.GRAM, "nonnegative": True}, {"norm": 1e12, "sigma": 1e-12},
    ],
)  # fmt: skip
def test_sums_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        NoisySum(**{"form": Form.SUM, "width": 5, "norm": 1.0, "sigma": 1.0, "places": 4, **wrong})


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def release(mechanism: NoisySum, rows: tuple[Any, Any, Any], times: int) -> np.ndarray:
    left, groups, right = rows
    places = np.zeros(len(left), dtype=np.int64)
    return np.stack([mechanism.contribute([block(places, left, groups, right)]).ravel() for _ in range(times)])


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_leaks_what_it_costs_and_half_the_noise_is_caught(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    width, times = 2, 3000
    groups = np.zeros(1, dtype=np.int64) if form == Form.GROUPED else None
    right = np.ones((1, 1)) if form == Form.OUTER else None
    one, other = np.eye(2)[:1], np.eye(2)[1:2] if form == Form.GRAM else -np.eye(2)[:1]
    shape = {"groups": 2 if form == Form.GROUPED else 1, "right": 1}
    sigma = NoisySum(form, width, 1.0, 1.0, 1, **shape).sensitivity / 2
    mechanism = NoisySum(form, width, 1.0, sigma, 1, **shape)
    claim = cost([(mechanism.event(), 1)], 1e-5)

    def samples() -> tuple[np.ndarray, np.ndarray]:
        both = [release(mechanism, (left, groups, right), times) for left in (one, other)]
        direction = both[0].mean(axis=0) - both[1].mean(axis=0)
        return both[0] @ direction, both[1] @ direction

    assert not audit(*samples(), claim).refuted
    real = mechanisms.rounded_gaussian
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: real(scale / 2, shape))
    assert audit(*samples(), claim).refuted


def test_the_noise_has_the_deviation_that_is_charged() -> None:
    mechanism = NoisySum(Form.SUM, 50_000, 1.0, 3.0, 1)
    noisy = mechanism.contribute([block([0], np.zeros((1, 50_000)))])
    assert np.std(noisy) == pytest.approx(3.0, rel=0.02)
    gram = NoisySum(Form.GRAM, 200, 1.0, 3.0, 1).contribute([block([0], np.zeros((1, 200)))])
    assert np.array_equal(gram, gram.T)
    assert np.std(np.diag(gram)) == pytest.approx(3.0, rel=0.2)
    assert np.std(gram[np.triu_indices(200, 1)]) == pytest.approx(3.0 / math.sqrt(2), rel=0.02)


# ── rows of one contribution ──────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_one_teacher_are_a_diameter_that_grows_with_their_root() -> None:
    bound = Stacked(Ball(3, 0.5), 16)
    assert bound.dimension == 48
    assert bound.diameter() == pytest.approx(2 * 0.5 * 4)
    clipped = bound.clip(RNG.normal(size=(7, 48)) * 100).reshape(7, 16, 3)
    assert np.linalg.norm(clipped, axis=-1).max() <= 0.5 + 1e-12
    assert np.linalg.norm(clipped.reshape(7, -1), axis=1).max() <= bound.radius() + 1e-9


@pytest.mark.parametrize(
    ("form", "given"),
    [
        (Form.SUM, ([0], np.zeros((1, 4)), None, None)),
        (Form.SUM, ([0], np.zeros((1, 5), dtype=object), None, None)),
        (Form.SUM, ([0], np.zeros((1, 5)), None, np.zeros((1, 2)))),
        (Form.OUTER, ([0], np.zeros((1, 5)), None, None)),
        (Form.OUTER, ([0], np.zeros((1, 5)), None, np.zeros((1, 3)))),
        (Form.SUM, ([0, 1], np.zeros((1, 5)), None, None)),
        (Form.SUM, ([0], np.zeros((1, 5)), np.zeros(1, dtype=int), None)),
        (Form.GROUPED, ([0], np.zeros((1, 5)), None, None)),
        (Form.GROUPED, ([0], np.zeros((1, 5)), np.zeros(2, dtype=int), None)),
        (Form.GROUPED, ([0], np.zeros((1, 5)), np.zeros(1), None)),
    ],
)
def test_blocks_of_another_shape_are_refused(form: Form, given: tuple[Any, Any, Any, Any]) -> None:
    places, *rest = given
    with pytest.raises(DataError):
        GridSum(shape_of(form)).add(np.asarray(places), *rest)


def test_a_class_that_nobody_declared_is_class_0_and_an_empty_block_adds_nothing() -> None:
    total = GridSum(shape_of(Form.GROUPED))
    total.add(np.arange(0), np.zeros((0, 5)), np.arange(0), None)
    total.add(np.arange(2), np.eye(5)[:2] * 0.5, np.asarray([-3, 99]), None)
    assert (total.total[1:] == 0).all()
    assert total.total[0].sum() * total.shape.unit == pytest.approx(1.0, rel=1e-5)
