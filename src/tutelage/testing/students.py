"""Suites for students. They raise AssertionError where a student breaks its protocol."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.privacy.queries import Query
from tutelage.tasks.task import IterativeStudent, Students

Array = npt.NDArray[Any]


def check_student(make: Students, public: Public, answers: Any, inputs: Array) -> Any:
    """Hold a student to Student: it learns from public inputs and answers alone, changes neither, and can be stored."""
    assert make() is not make(), "every call must make a new student"
    pool = public.unlabelled()
    before = pool.inputs.copy(), np.array(answers, copy=True) if isinstance(answers, np.ndarray) else None
    model = make().fit(pool, answers)
    assert np.array_equal(pool.inputs, before[0]), "`fit` must not change the public pool"
    assert before[1] is None or np.array_equal(answers, before[1], equal_nan=before[1].dtype.kind == "f"), "nor the answers"
    _check_model(model, inputs)
    return model


def check_iterative_student(
    make: Callable[[], Any], answer: Callable[[Query], Array], inputs: Array, *, most: int = 10_000
) -> Any:
    """Hold a student to IterativeStudent: its queries and its result depend on the answers alone, and its state is all of it."""
    first, other = make(), make()
    assert first is not other, "every call must make a new student"
    assert isinstance(first, IterativeStudent), "a student must have query, update, state_dict, load_state_dict and result"
    rounds = 0
    while (query := first.query()) is not None:
        assert rounds < most, f"`query` must give None within {most} rounds"
        again = first.query()
        assert again is not None, "`query` must not move the student: only `update` does"
        assert again.key == query.key, "`query` must not move the student: only `update` does"
        same = other.query()
        assert same is not None, "the same answers must lead to the same queries"
        assert same.key == query.key, "the same answers must lead to the same queries"
        given = np.asarray(answer(query))
        first.update(given)
        other = _restored(make, other, given)
        rounds += 1
    assert rounds, "a student must ask at least once"
    assert other.query() is None, "a state must end where its student did"
    model = first.result()
    _check_model(model, inputs)
    assert np.array_equal(model.predict(inputs), other.result().predict(inputs)), "`state_dict` must hold all of the state"
    return model


def _restored(make: Students, student: Any, answer: Array) -> Any:
    """Update a student, and go on with another one that was given its state."""
    student.update(answer)
    state = {name: np.array(array) for name, array in student.state_dict().items()}
    assert state, "`state_dict` must hold arrays by their names"
    assert all(array.dtype.kind in "biuf" for array in state.values()), "`state_dict` must hold plain numbers"
    fresh = make()
    fresh.load_state_dict(state)
    return fresh


def _check_model(model: Any, inputs: Array) -> None:
    predicted = np.asarray(model.predict(inputs))
    assert len(predicted) == len(inputs), "`predict` must give one prediction per input"
    if hasattr(model, "probabilities"):
        shares = np.asarray(model.probabilities(inputs))
        assert len(shares) == len(inputs), "`probabilities` must give one row per input"
        assert np.isfinite(shares).all(), "`probabilities` must be finite"
    with tempfile.TemporaryDirectory() as place:
        written = Path(model.save(Path(place) / "student"))
        assert written.is_file(), "`save` must give the file that it wrote"
        assert written.stem == "student", "`save` must write the file that it was asked to, with an ending of its own"
        assert [path.name for path in Path(place).iterdir()] == [written.name], "`save` must write one file"
