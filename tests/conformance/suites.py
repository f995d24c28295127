"""What every implementation of a protocol must do, whoever wrote it. Call a suite with an instance; it raises what is wrong.

check_bound(bound)
check_codec(codec, predictions, inputs, released)
check_masks(codec, shape)
check_sighted(codec, inputs, predictions)
check_fit(fit, public, other)
check_mechanism(mechanism, ballots)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Bound
from tutelage.privacy.curator import Sighted
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.events import from_record, to_record
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Adjacency, Unit

NORMS = (1, 2, math.inf)
ROUNDING = 1 + 1e-9


def _wild(dimension: int) -> np.ndarray:
    """Ballots of every size and sort: ordinary, huge, tiny, zero, infinite and not numbers at all."""
    rng = np.random.default_rng(20)
    ordinary = rng.normal(0, 1, (60, dimension)) * 10.0 ** rng.integers(-12, 12, (60, 1))
    axes = np.vstack([np.eye(dimension), -np.eye(dimension)])[: 2 * min(dimension, 20)]
    signs = np.where(rng.random((30, dimension)) < 0.5, -1.0, 1.0)
    odd = rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1.0], (60, dimension))
    constant = np.array([0.0, 1.0, -1.0, 1e308, -1e308, math.nan, math.inf, -math.inf])[:, None] * np.ones(dimension)
    return np.vstack([ordinary, axes, 1e6 * axes, signs, 1e6 * signs, odd, constant])


def _same_words(thing: Any) -> None:
    """A question is named by the words of what answers it: they may not hold an address, nor a private value."""
    assert repr(thing) == repr(thing)
    assert " at 0x" not in repr(thing), "repr must name the parameters, so that the same question is known again"


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_bound(bound: Bound) -> None:
    """Clip is total and lands inside; radius and diameter hold for whatever it emits, on every grid."""
    assert isinstance(bound.dimension, (int, np.integer))
    assert bound.dimension >= 1
    _same_words(bound)
    wild = _wild(bound.dimension)
    before = wild.copy()
    clipped = bound.clip(wild)
    assert np.array_equal(wild, before, equal_nan=True), "clip must not change what it is given"
    assert clipped.shape == wild.shape
    assert clipped.dtype == np.float64
    assert np.isfinite(clipped).all(), "clip must be total"
    assert np.allclose(bound.clip(clipped), clipped, rtol=1e-12, atol=1e-300), "what is inside must stay where it is"
    assert np.array_equal(bound.clip(wild[None, :, None])[0, :, 0], clipped), "every ballot is clipped on its own"
    assert np.array_equal(np.stack([bound.clip(row) for row in wild]), clipped), "every ballot is clipped on its own"
    _check_distances(bound, clipped)
    for step in (2.0**-20, 2.0**-3):
        _check_distances(bound, np.trunc(clipped / step) * step)
    _check_sensitivity(bound)
    for shape in ((bound.dimension + 1,), (3, bound.dimension + 1), ()):
        with pytest.raises(DataError, match="`ballots` must have"):
            bound.clip(np.zeros(shape))


def _check_distances(bound: Bound, members: np.ndarray) -> None:
    apart = members[:, None] - members[None]
    for norm in NORMS:
        assert np.linalg.norm(members, ord=norm, axis=-1).max() <= bound.radius(norm) * ROUNDING, f"radius in the {norm}-norm"
        reached = np.linalg.norm(apart, ord=norm, axis=-1).max() if norm != 1 else np.abs(apart).sum(axis=-1).max()
        assert reached <= bound.diameter(norm) * ROUNDING, f"diameter in the {norm}-norm"
        assert bound.diameter(norm) <= 2 * bound.radius(norm) * ROUNDING


def _check_sensitivity(bound: Bound) -> None:
    for norm in NORMS:
        for teachers in (1, 3):
            unit = Unit("institution", teachers)
            assert bound.sensitivity(unit=unit, norm=norm) == pytest.approx(teachers * bound.diameter(norm))
            zero_is_a_member = not bound.clip(np.zeros(bound.dimension)).any()  # else the absent ballot is clipped to one
            absent = bound.radius(norm) if zero_is_a_member else bound.diameter(norm)
            assert bound.sensitivity(Adjacency.ADD_REMOVE, unit=unit, norm=norm) == pytest.approx(teachers * absent)
    with pytest.raises(RecipeError, match="`adjacency` must be 'replace-one'"):
        bound.sensitivity(Adjacency.ADD_REMOVE, unit=Unit("record"))
    with pytest.raises(RecipeError, match="`norm` must be"):
        bound.sensitivity(norm=3)


def check_furthest(bound: Bound, one: Any, other: Any, norm: float = 2) -> None:
    """The diameter is no larger than it must be: these two members lie that far apart."""
    ends = np.asarray([one, other], dtype=np.float64)
    assert np.allclose(bound.clip(ends), ends, rtol=1e-12), "both must be members"
    assert np.linalg.norm(ends[0] - ends[1], ord=norm) == pytest.approx(bound.diameter(norm))


# ── codecs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_codec(codec: Any, predictions: Any, inputs: Any, released: Any) -> None:
    """One teacher's ballot depends on that teacher alone; nothing is remembered; decoding gives one answer per input."""
    given, asked = np.asarray(predictions), np.asarray(inputs)
    assert isinstance(codec.bound, Bound)
    _same_words(codec)
    before = given.copy()
    codes = np.asarray(codec.encode(given))
    assert np.array_equal(given, before), "encode must not change what it is given"
    assert codes.shape == (*given.shape[:2], codec.bound.dimension)
    assert np.array_equal(codec.encode(given), codes), "encode must not remember"
    for teacher in range(len(given)):
        alone = np.asarray(codec.encode(given[teacher : teacher + 1]))[0]
        assert np.array_equal(alone, codes[teacher]), (
            "one teacher's ballot must not depend on the others': sensitivity rests on it"
        )
    order = np.random.default_rng(1).permutation(len(given))
    assert np.array_equal(codec.encode(given[order]), codes[order]), "a teacher's place must not matter"
    clipped = codec.bound.clip(codes)
    assert np.allclose(clipped, codes, rtol=1e-9, atol=1e-12), "an honest codec stays inside its own bound"
    answers = np.asarray(codec.decode(np.asarray(released), asked))
    assert len(answers) == len(asked)
    assert np.array_equal(codec.decode(np.asarray(released), asked), answers), "decode is post-processing: no state, no noise"


def check_masks(codec: Any, shape: tuple[int, ...], *, queries: int = 3) -> None:
    """Encode is total on masks of real numbers: a teacher that says nonsense gets a ballot, never an error (a release)."""
    rng = np.random.default_rng(21)
    odd = rng.choice([math.nan, math.inf, -math.inf, 1e308, -1.0, 0.0, 0.5, 1.0], (3, queries, *shape))
    codes = np.asarray(codec.encode(odd))
    assert np.isfinite(codes).all(), "encode must be total"
    for dtype in (np.uint8, bool, np.float32, np.float64):
        empty = np.asarray(codec.encode(np.zeros((1, queries, *shape), dtype)))
        assert np.array_equal(empty, codec.encode(np.zeros((1, queries, *shape)))), "a mask's type must not matter"
    assert codec.encode(np.zeros((0, queries, *shape))).shape == (0, queries, codec.bound.dimension)
    with pytest.raises(DataError, match="`predictions` must"):
        codec.encode(np.zeros((2, queries, *shape, 2)))
    with pytest.raises(AttributeError):  # frozen: what was named is what encodes
        codec.norm = 1e9


def check_sighted(codec: Any, inputs: Any, predictions: Any) -> None:
    """A codec that sees the questions sees each on its own: the door asks in parts, and decodes all of them together."""
    given, masks = np.asarray(inputs), np.asarray(predictions)
    assert isinstance(codec, Sighted)
    _same_words(codec)
    before = given.copy()
    whole = codec.seeing(given)
    assert np.array_equal(given, before), "seeing must not change what it is given"
    assert whole.bound == codec.bound, "what is planned for is what is asked with"
    ballots = np.asarray(whole.encode(masks))
    assert ballots.shape == (*masks.shape[:2], codec.bound.dimension)
    codes = np.arange(len(given)) % codec.bound.dimension if ballots.dtype == bool else ballots[0]
    answers = np.asarray(whole.decode(codes, given))
    for part in (slice(0, 1), slice(1, len(given))):
        some = codec.seeing(given[part])
        assert np.array_equal(some.encode(masks[:, part]), ballots[:, part]), "a ballot must not depend on the other questions"
        assert np.array_equal(some.decode(codes[part], given[part]), answers[part]), "nor an answer"


def check_fit(fit: Any, public: Any, other: Any) -> None:
    """Fit takes public data alone and says what it saw; the same data gives the same words, other data others."""
    codec = fit(public)
    found = codec.provenance
    assert (found.source, found.records) == (public.source, len(public))
    assert len(found.sha256) == 64
    assert repr(fit(public)) == repr(codec), "the same fit must have the same name, or an answer is paid for twice"
    assert repr(fit(other)) != repr(codec), "another fit must have another name, or it gets this one's answers"
    assert fit(other).provenance.sha256 != found.sha256
    for wrong in (Private.of(public.inputs, public.targets), public.targets, None):
        with pytest.raises(DataError, match="`public` must be Public"):
            fit(wrong)


# ── mechanisms ────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_mechanism(mechanism: Any, ballots: Any) -> None:
    """The event is known beforehand and does not move with the data; only sealed ballots of the right shape are taken."""
    given = np.asarray(ballots)
    teachers, queries, dimension = given.shape
    _same_words(mechanism)
    event = mechanism.event()
    assert from_record(to_record(event)) == event, "the book must be able to hold the event"
    price = accounting.cost([(event, 1)], 1e-5).epsilon
    assert 0 < price < math.inf, "a mechanism has a price"
    assert accounting.cost([(event, 2)], 1e-5).epsilon > price
    before = given.copy()
    released = np.asarray(mechanism.contribute(Sealed(given)))
    assert np.array_equal(given, before), "contribute must not change what it is given"
    assert len(released) == queries, "one answer per query"
    assert np.isfinite(released).all()
    assert released.dtype.kind in "biuf", "the book keeps numbers"
    assert mechanism.event() == event, "the event must not depend on what was read"
    assert len(mechanism.contribute(Sealed(given[:, :0]))) == 0
    for shape in ((teachers, queries), (teachers, queries, dimension + 1), (0, queries, dimension)):
        with pytest.raises(DataError, match="`ballots` must"):
            mechanism.contribute(Sealed(np.ones(shape)))
    for share in (0.0, -1.0, 2.0, math.nan):
        with pytest.raises(RecipeError, match="`share` must"):
            mechanism.contribute(Sealed(given), share=share)
    with pytest.raises(AttributeError):
        mechanism.contribute(given)  # not sealed
    with pytest.raises(AttributeError):  # frozen: what was charged is what happens
        mechanism.sigma = 1e-9


def check_noise(mechanism: Any, ballots: Any) -> None:
    """Asked the same again, a mechanism that releases values draws again."""
    one, other = (np.asarray(mechanism.contribute(Sealed(np.asarray(ballots)))) for _ in range(2))
    assert (one != other).mean() > 0.9
