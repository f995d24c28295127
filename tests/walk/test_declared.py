"""What is public on somebody's word stands in the book; what is published is written before controls learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import clouds, forged, tiny_run

import tutelage as tt
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.ledger import read_lines
from tutelage.verification import verify

SAID = "Three people were declared public by whoever ran this."


def test_a_declaration_cannot_be_left_out(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", declared=(SAID,))
    assert SAID in outcome.guarantee["warnings"]
    assert verify(outcome.folder).rows > 1
    again = tiny_run(tmp_path / "run", declared=(SAID,), resume=True)
    assert again.guarantee["warnings"].count(SAID) == 1
    for number, said in enumerate(([], [SAID.replace("Three", "Two")], None, {SAID: True})):
        copy = forged(outcome.folder.release, tmp_path / f"copy-{number}", warnings=said)
        with pytest.raises(LedgerError, match=r"`warnings` must hold what|a wrong one, 'warnings'"):
            verify(copy)


def test_what_any_life_of_a_run_declared_is_told(tmp_path: Path) -> None:
    """A folder that was renamed is another sentence: whoever reads the guarantee sees both, and verify holds it to both."""
    renamed = SAID.replace("people", "people of 'renamed'")
    tiny_run(tmp_path / "run", declared=(SAID, SAID))
    for said in ((renamed,), (renamed,), ()):
        outcome = tiny_run(tmp_path / "run", declared=said, resume=True)
        assert [one for one in outcome.guarantee["warnings"] if one in (SAID, renamed)] == [SAID, renamed]
        assert verify(outcome.folder).rows > 1
    assert [row.body["declared"] for row in read_lines(outcome.folder.exported_book) if "declared" in row.body] == [SAID, renamed]


class Sharing:
    """A new student at every call, around one memory that all of them share: it recalls what it was told last."""

    memory: dict[bytes, int] = {}  # noqa: RUF012

    def fit(self, public: tt.Public, labels: Any) -> Sharing:
        known = np.asarray(labels) >= 0
        rows = zip(np.asarray(public.inputs)[known], np.asarray(labels)[known], strict=True)
        self.memory.update({row.tobytes(): int(label) for row, label in rows})
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray([self.memory.get(row.tobytes(), 0) for row in np.asarray(inputs)])

    def save(self, path: Path) -> Path:
        path.with_suffix(".json").write_text(json.dumps(sorted(key.hex() for key in self.memory)), encoding="utf-8")
        return path


def test_what_controls_learn_of_private_records_is_not_in_the_release(tmp_path: Path) -> None:
    Sharing.memory.clear()
    tiny_run(tmp_path / "run", student=Sharing)
    private, pool = ({row.tobytes().hex() for row in clouds(count, seed)[0]} for count, seed in ((120, 0), (60, 1)))
    assert private <= {key.hex() for key in Sharing.memory}  # a control did learn them
    released = set(json.loads((tmp_path / "run" / "release" / "student.json").read_text(encoding="utf-8")))
    assert released
    assert released <= pool
