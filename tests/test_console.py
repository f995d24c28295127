"""What a terminal is shown: bars whose time left is that of what is going on."""

from __future__ import annotations

from typing import Any

import pytest
from rich.progress import Progress

from tutelage import console


def test_a_bar_that_begins_again_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second student of as many steps: the twin, which only moves the bar back, calls it finished with no time left."""
    made: list[Progress] = []

    class Kept(Progress):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(console, "Progress", Kept)
    with console.bars(quiet=True) as tell:
        for done in (0, 2, 4):
            tell("training", done, 4)
        (bar,) = made[0].tasks
        assert bar.finished
        tell("training", 2, 4)
        assert not bar.finished
        assert bar.completed == 2
        tell("training", 4, 8)  # more is to do than was said: no new beginning
        assert (bar.completed, bar.total) == (4, 8)
        twin = made[0].add_task("twin", total=4)
        for done in (4, 2):
            made[0].update(twin, completed=done)
        assert made[0].tasks[-1].finished
    assert len(made[0].tasks) == 2
