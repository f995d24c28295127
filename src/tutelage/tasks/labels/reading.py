"""How a run about labels is read: the file of labels, its counts, and what the report says of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tutelage.tasks.reading import Reading, Scores, Section
from tutelage.tasks.scores import Score

_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
COLUMNS = ["public_record", "label", "source"]


@final
@dataclass(frozen=True, kw_only=True)
class Labels(Reading):
    """Read labels.csv."""

    def count(self, path: Path, released: int) -> tuple[int, int]:
        """Count the teachers' labels and the student's own."""
        lines = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True))
        if lines[0] != COLUMNS or not {source for _, _, source in lines[1:]} <= {"teachers", "student"}:
            raise ValueError("not a table of labels")
        if not all(_WHOLE.fullmatch(figure) for place, label, _ in lines[1:] for figure in (place, label)):
            raise ValueError("records and labels must be whole numbers, written in one way")
        places = [int(place) for place, _, _ in lines[1:]]
        if places != sorted(set(places)):
            raise ValueError("records must stand once, in order")
        sources = [source for _, _, source in lines[1:]]
        return sources.count("teachers"), sources.count("student")

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Say how many labels there are, and whose."""
        lead, own = Reading.section(self, guarantee, scores).lead, guarantee["labels"]["reinforced"]
        if own:
            lead += f" {own:,} more labels are the student's own, where teachers had nothing to add."
        caption = "The first images of the public pool that have a label: the noisy one that was released"
        caption += ", or the student's own where the teachers had nothing to add." if own else "."
        return Section(lead, gallery="Questions and released answers", caption=caption)


READING = Labels(
    answers="labels.csv",
    sealed={
        "controls": (Score.ALL_LABELS, Score.PLURALITY, Score.ONE_TEACHER),
        "strong": (Score.BOOSTED,),
    },
)
