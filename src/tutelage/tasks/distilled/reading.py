"""How a run about a distilled set is read: its released sums, the set, and what the report says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from tutelage.tasks.reading import Reading, Scores, Section


@final
@dataclass(frozen=True, kw_only=True)
class Distilled(Reading):
    """Read distilled-sums.npz, which holds released sums however many answers there were."""

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Say what was released, and show some images of every class."""
        answers = f"{guarantee['labels']['released']:,}"
        return Section(
            f"{answers} noisy answers were released; a few images a class were matched to them. The private student is a network "
            "that was trained on these images alone.",
            gallery="The distilled set",
            caption="Up to ten stored images of every class. With a formation, one stored image shows several smaller ones.",
        )


_FILES = ("distilled.safetensors", "distilled.npz", "distilled.png", "distilled.md", "labeller.npz")
READING = Distilled(answers="distilled-sums.npz", files=_FILES)
