"""What readers of a run know of its task: verification, report and printing. Plain data, without torch or private values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from tutelage.tasks.scores import Score

Scores = Mapping[str, float]


@final
@dataclass(frozen=True)
class Row:
    """Hold one line of a table of stages."""

    name: str
    what: str
    side: str  # "private", "released", "student" or "control"
    score: float


@final
@dataclass(frozen=True)
class Section:
    """Hold what the report says of a task's scores and answers. Without stages it draws a chart of all scores."""

    lead: str
    heading: str = ""  # over the stages
    stages: Sequence[Row] = ()  # from one teacher to the student
    controls: Sequence[Row] = ()
    notes: str = ""  # below the stages
    codec_saw_masks: bool = False  # public ones
    gallery: str = ""  # the heading over public records with their labels
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Say how a run of one task is read. What stands here holds for labels; a task overrides what differs."""

    answers: str  # the file of released answers
    files: tuple[str, ...] = ()  # other released files of this task alone
    sealed: Mapping[str, tuple[Score, ...]] = field(default_factory=dict)  # private/NAME.npy to its figures, in order
    measure: str = "accuracy"
    heading: str = "accuracy"  # of a printed table

    def figure(self, score: float) -> str:
        """Write a score."""
        return f"{score:.1%}"

    def count(self, path: Path, released: int) -> tuple[int, int]:
        """Count the answers in a released file: the teachers', and the student's own. Raise ValueError on another file."""
        return released, 0

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Give the report's section."""
        return Section(lead=f"{guarantee['labels']['released']:,} questions about public records were answered.")

    def verdict(self, scores: Scores) -> str:
        """Say so when a control that costs no privacy does as well."""
        student, public = scores.get(Score.STUDENT), scores.get(Score.PUBLIC_ONLY)
        if student is None or public is None or student > public:
            return ""
        return "The private student does not beat the public-only control: these answers bought nothing."
