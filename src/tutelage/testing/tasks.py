"""The suite for tasks. It raises AssertionError where a task breaks its protocol."""

from __future__ import annotations

import tempfile
from typing import Any

from tutelage.data.dataset import Public
from tutelage.privacy.oracle import Oracle
from tutelage.runs import RunFolder
from tutelage.tasks import table
from tutelage.tasks.scores import Score
from tutelage.tasks.task import Learning, Plan, Students


def check_task(name: str, plan: Plan, oracle: Oracle, student: Students, test: Public) -> dict[str, float]:
    """Carry a task of the table out on an oracle, and hold its files and figures to how it says that they are read."""
    task, reading = table.opened(name, plan), table.reading(name)
    assert task.name in table.TABLE, "a task must have a name of the table"
    assert task.asked == table.opened(name, plan).asked, "the same plan must ask the same"
    assert isinstance(task.adaptive, bool), "`adaptive` must be a truth value"
    learner = student()
    task.check(teachers=None, learner=learner, test=test)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(place).create()
        learning = Learning(student, learner, folder)
        answers = task.ask(oracle, learning)
        counts = task.counts(answers)
        assert set(counts) == {"released", "distinct", "reinforced"}, "`counts` must say how many answers there are, and whose"
        assert counts["distinct"] <= counts["released"], "different answers are some of those that were released"
        model = task.fit(answers, learning)
        task.publish(folder, model, answers)
        own = {path.name for path in folder.release.iterdir()} - {"samples.npz", "rounds"}
        assert reading.answers in own, "a task must release the file of answers that its reading names"
        assert own <= {reading.answers, *reading.files}, "a task must release no file that its reading does not name"
        found = reading.count(folder.release / reading.answers, counts["released"])
        assert found == (counts["released"], counts["reinforced"]), "`count` must find what was released"
        scores = {str(key): value for key, value in task.scores(model, answers, task.judged(test), learning).items()}
    assert Score.STUDENT in scores, "the student must be scored"
    hidden = table.sealed_scores() & set(scores)
    assert not hidden, f"scores must be of public data alone, not {hidden}"
    guarantee: dict[str, Any] = {"labels": counts, "events": []}
    assert reading.section(guarantee, scores).lead, "the report must have something to say"
    assert isinstance(reading.verdict(scores), str), "`verdict` must be a text"
    assert isinstance(reading.figure(scores[Score.STUDENT]), str), "`figure` must be a text"
    return scores
