"""Events are closed, validated at birth, and come back from the book exactly as they went in."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.events import (
    Gaussian,
    Laplace,
    NoisyMax,
    NonPrivate,
    Sampled,
    SmoothRelease,
    SparseVector,
    Threshold,
    from_record,
    to_record,
)

sizes = st.floats(1e-6, 1e6)
whole = st.integers(1, 10**6)
plain = st.one_of(st.builds(Gaussian, sizes, sizes), st.builds(Laplace, sizes, sizes))


@st.composite
def fixed_samples(draw: st.DrawFn) -> Sampled:
    population = draw(whole)
    size = draw(st.integers(1, population))
    return Sampled(draw(plain), size / population, "fixed", size, population)


EVENTS = st.one_of(
    plain,
    st.builds(NoisyMax, st.sampled_from(["gaussian", "laplace"]), sizes, whole),
    st.builds(Threshold, sizes, whole),
    st.builds(SparseVector, sizes, sizes, whole),
    st.builds(SmoothRelease, sizes, sizes),
    st.builds(Sampled, plain, st.floats(1e-9, 1.0)),
    fixed_samples(),
    st.builds(NonPrivate, st.text(max_size=20)),
)
ONE_OF_EACH = [
    Gaussian(1.0, 2.0),
    Laplace(1.0, 2.0),
    NoisyMax("gaussian", 40.0, 2),
    NoisyMax("laplace", 20.0),
    Threshold(150.0),
    SparseVector(0.5, 1.0, 3),
    SmoothRelease(0.02, 8.0),
    Sampled(Gaussian(1.0, 2.0), 0.25),
    Sampled(Laplace(1.0, 2.0), 0.25, "fixed", 1, 4),
    NonPrivate("a demonstration"),
]
by_name = pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)


@given(event=EVENTS)
def test_a_record_comes_back_as_the_same_event_through_json(event: Any) -> None:
    assert from_record(json.loads(json.dumps(to_record(event)))) == event


@by_name
def test_an_event_cannot_be_changed(event: Any) -> None:
    name = next(iter(vars(event)))
    with pytest.raises(AttributeError, match="cannot assign"):
        setattr(event, name, 1.0)


@by_name
def test_a_missing_extra_or_unknown_field_is_refused(event: Any) -> None:
    record = to_record(event)
    for name in record:
        with pytest.raises(LedgerError):
            from_record({key: value for key, value in record.items() if key != name})
    with pytest.raises(LedgerError):
        from_record({**record, "comment": 1})
    with pytest.raises(LedgerError):
        from_record({**record, "kind": type(event).__name__.lower()})


@by_name
@pytest.mark.parametrize("value", [None, "1", [], {}, math.nan, math.inf, -1, 0], ids=repr)
def test_a_spoilt_number_in_the_book_is_refused(event: Any, value: object) -> None:
    record = to_record(event)
    for name in record:
        optional = isinstance(event, Sampled) and event.sampler == "poisson" and name in ("size", "population")
        if isinstance(record[name], (int, float)) and not optional:
            with pytest.raises(LedgerError, match="an event in the book must have valid parameters"):
                from_record({**record, name: value})


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(LedgerError, match="valid parameters"):
        from_record({"kind": "Gaussian", "sensitivity": 10**400, "sigma": 1.0})


@pytest.mark.parametrize("record", [None, 5, "Gaussian", [], {}, {"kind": []}, {"kind": {}}, {"kind": None}, {"kind": "Event"}])
def test_what_is_no_record_is_refused(record: Any) -> None:
    with pytest.raises(LedgerError, match="one of this version's kinds"):
        from_record(record)


@pytest.mark.parametrize("inner", [None, 5, "x", {}, to_record(Threshold(1.0)), to_record(Sampled(Gaussian(1.0, 1.0), 0.5))])
def test_a_sample_of_anything_but_plain_noise_is_refused(inner: Any) -> None:
    with pytest.raises(LedgerError):
        from_record({**to_record(Sampled(Gaussian(1.0, 2.0), 0.25)), "event": inner})


BAD = [0, 0.0, -1.0, math.nan, math.inf, -math.inf, "1", None, True]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda v: Gaussian(v, 1.0), "sensitivity"),
        (lambda v: Gaussian(1.0, v), "sigma"),
        (lambda v: Laplace(v, 1.0), "sensitivity"),
        (lambda v: Laplace(1.0, v), "scale"),
        (lambda v: NoisyMax("gaussian", v), "scale"),
        (lambda v: Threshold(v), "sigma"),
        (lambda v: SparseVector(v, 1.0, 1), "epsilon_threshold"),
        (lambda v: SparseVector(1.0, v, 1), "epsilon_answers"),
        (lambda v: SmoothRelease(v, 1.0), "beta"),
        (lambda v: SmoothRelease(0.1, v), "sigma"),
    ],
)
def test_a_bad_parameter_is_named(build: Any, name: str, value: object) -> None:
    with pytest.raises(RecipeError, match=rf"`{name}` of \w+ must be a finite number > 0\. Got"):
        build(value)


@pytest.mark.parametrize("votes", [0, -1, 1.5, None])
def test_votes_and_answers_are_whole(votes: Any) -> None:
    with pytest.raises(RecipeError, match="`votes` of NoisyMax"):
        NoisyMax("laplace", 1.0, votes)
    with pytest.raises(RecipeError, match="`votes` of Threshold"):
        Threshold(1.0, votes)
    with pytest.raises(RecipeError, match="`answers` of SparseVector"):
        SparseVector(1.0, 1.0, votes)


def test_an_unknown_noise_or_sampler_is_named() -> None:
    with pytest.raises(RecipeError, match=r"`noise` of NoisyMax must be 'gaussian' or 'laplace'\. Got 'cauchy'"):
        NoisyMax("cauchy", 1.0)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"`sampler` of Sampled must be 'poisson' or 'fixed'\. Got 'batch'"):
        Sampled(Gaussian(1.0, 1.0), 0.5, "batch")  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, math.nan, math.inf, None, "0.5"])
def test_a_sampling_rate_is_a_probability(rate: Any) -> None:
    with pytest.raises(RecipeError, match="`rate` of Sampled must lie in"):
        Sampled(Gaussian(1.0, 1.0), rate)


@pytest.mark.parametrize(("rate", "size", "population"), [(0.5, 0, 0), (0.5, 2, 1), (0.5, 1, 3), (0.5, 0, 2)])
def test_a_fixed_size_sample_has_the_rate_of_its_size(rate: float, size: int, population: int) -> None:
    with pytest.raises(RecipeError, match="`rate` of Sampled must be size/population"):
        Sampled(Gaussian(1.0, 1.0), rate, "fixed", size, population)


def test_only_plain_noise_can_be_sampled() -> None:
    with pytest.raises(RecipeError, match=r"`event` of Sampled must be Gaussian or Laplace\. Got Threshold"):
        Sampled(Threshold(1.0), 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [10**400, 2**53 + 1, True, 2.0, None])
@pytest.mark.parametrize(
    "record",
    [
        {"kind": "NoisyMax", "noise": "gaussian", "scale": 40.0, "votes": "?"},
        {"kind": "Threshold", "sigma": 40.0, "votes": "?"},
        {"kind": "SparseVector", "epsilon_threshold": 0.1, "epsilon_answers": 0.1, "answers": "?"},
        {
            "kind": "Sampled", "event": {"kind": "Gaussian", "sensitivity": 1.0, "sigma": 1.0},
            "rate": 0.5, "sampler": "fixed", "size": 5, "population": "?",
        },
    ],
)  # fmt: skip
def test_a_number_that_no_float_holds_is_refused(record: dict[str, Any], number: Any) -> None:
    with pytest.raises(LedgerError, match="must have valid parameters"):
        from_record({name: number if value == "?" else value for name, value in record.items()})


@pytest.mark.parametrize("reason", [["a"], {"a": 1}, None, 3])
def test_a_reason_is_a_text(reason: Any) -> None:
    with pytest.raises(LedgerError, match="must have valid parameters"):
        from_record({"kind": "NonPrivate", "reason": reason})
