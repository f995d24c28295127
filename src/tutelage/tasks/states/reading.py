"""How a run about a student's states is read: the file of the last state, and what the report says of the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from tutelage.tasks.reading import Reading, Scores, Section
from tutelage.tasks.scores import Score


@final
@dataclass(frozen=True, kw_only=True)
class States(Reading):
    """Read weights.npz, which holds one state however many rounds led to it."""

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Say how many rounds there were."""
        rounds = f"{guarantee['labels']['released']:,}"
        linear = f"All teachers corrected a public guess {rounds} times; the noisy mean of each round was released."
        other = f"All teachers were asked {rounds} times in which direction the student should move; noisy means were released."
        return Section(
            linear if guarantee.get("task", "corrections") == "corrections" else other,
            gallery="Public images, as the student names them",
            caption="The first images of the public pool. Nothing was asked about them: "
            "the student learned from the directions in which teachers would move it.",
        )


READING = States(
    answers="weights.npz",
    files=("linear.npz",),
    sealed={
        "corrected": (Score.ALL_LABELS, Score.EXACT_CORRECTIONS),
        "heir": (Score.ALL_LABELS_NETWORK,),
        "strong": (Score.BOOSTED,),
    },
)
