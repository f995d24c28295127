"""Queries: named by their content, the same in every process, and plain."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.queries import Form, Query, described
from tutelage.privacy.units import Adjacency


@dataclass(frozen=True)
class Plain:
    number: float = 0.1
    words: tuple[str, ...] = ("a", "b")
    more: dict[str, Any] = field(default_factory=lambda: {"x": np.int64(3), "y": None, "z": True})
    table: Any = None
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unnamed: Any = field(default=None, compare=False)


def test_a_key_is_a_hash_of_everything_in_a_query() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    queries = [
        Query.inputs(rows),
        Query.inputs(rows.astype(np.float32)),
        Query.inputs(rows + 1),
        Query.inputs(rows[:1]),
        Query.state(weights=rows),
        Query.state(content={"a": 1}, weights=rows),
        Query.state(other=rows),
        Query.statistic(Form.SUM, {"a": 1}, weights=rows),
        Query.statistic(Form.GRAM, {"a": 1}, weights=rows),
    ]
    assert len({query.key for query in queries}) == len(queries)
    assert Query.inputs(rows.copy()).key == queries[0].key
    assert "3 answers" not in repr(queries[0])
    assert "2 answers" in repr(queries[0])


def test_a_key_is_the_same_in_another_process() -> None:
    code = (
        "import numpy as np\nfrom tutelage.privacy.queries import Form, Query\n"
        "print(Query.statistic(Form.GROUPED, {'features': 'random/1', 'seed': 0}, axes=np.arange(4.0)).key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = Query.statistic(Form.GROUPED, {"seed": 0, "features": "random/1"}, axes=np.arange(4.0)).key
    assert done.stdout.strip() == here


def test_every_row_of_inputs_has_its_own_name_and_what_is_expected_is_part_of_it() -> None:
    query = Query.inputs(np.asarray([[1.0], [2.0], [1.0]]))
    names = query.keys("salt")
    assert names[0] == names[2] != names[1]
    assert query.keys("other")[0] != names[0]
    assert query.keys("salt", np.full((3, 2), 0.5))[0] != names[0]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: Query("question"), RecipeError),  # type: ignore[arg-type]
        (lambda: Query("inputs", Form.SUM, {}, {"inputs": np.zeros((1, 1))}), RecipeError),
        (lambda: Query("state", "all"), RecipeError),  # type: ignore[arg-type]
        (lambda: Query.state(content={"a": object()}, weights=np.zeros(2)), RecipeError),
        (lambda: Query.state(content={"a": float("nan")}, weights=np.zeros(2)), RecipeError),
        (lambda: Query.state(weights=np.asarray([object()])), DataError),
        (lambda: Query.inputs(3.0), DataError),
        (lambda: Query.state(one=np.zeros(2), two=np.zeros(2)).rows, RecipeError),
    ],
)
def test_what_has_no_plain_name_is_refused(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()


def test_a_dataclass_is_described_by_its_compared_fields() -> None:
    one = described(Plain(table=np.arange(3)), "codec")
    assert json.dumps(one) == json.dumps(described(Plain(table=np.arange(3), unnamed=object()), "codec"))
    for other in (Plain(0.2), Plain(words=("a",)), Plain(more={}), Plain(table=np.arange(4))):
        assert json.dumps(described(other, "codec")) != json.dumps(one)
    nested = described(NoisyMean(Ball(3, 0.1), 2.0, 5), "mechanism")
    assert nested["bound"]["norm"] == (0.1).hex()


@pytest.mark.parametrize("thing", [object(), Plain(table=object()), Plain(table=np.asarray([object()])), Plain])
def test_what_has_no_description_is_refused(thing: Any) -> None:
    with pytest.raises(RecipeError, match="`codec` must have a public `key`"):
        described(thing, "codec")
