"""How a run about images is read: its released sums, its generator, and what the report says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from tutelage.tasks.reading import Reading, Scores, Section


@final
@dataclass(frozen=True, kw_only=True)
class Images(Reading):
    """Read statistics.npz, which holds released sums however many answers there were."""

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Say what was released, and show some images of every class."""
        answers = f"{guarantee['labels']['released']:,}"
        return Section(
            f"{answers} noisy answers were released; a generator was fitted to them. The private student is a network that was "
            "trained on its images alone.",
            gallery="Generated images",
            caption="Ten images of every class, drawn by the released generator. None of them is real, and drawing more is free.",
        )


READING = Images(answers="statistics.npz", files=("generator.safetensors", "generator.md"))
