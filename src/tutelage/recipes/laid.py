"""The public pool of a run with its images laid over each other, before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tutelage.data.dataset import Public
from tutelage.recipes.learned import learned
from tutelage.runs import RunFolder

Progress = Callable[[str, int, int], None]
Laid = tuple[Public, str]


def laid(public: Public, settings: Mapping[str, Any], folder: RunFolder, *, device: str, progress: Progress | None) -> Laid:
    """Align the pool, and name the file in the release that says where every image went: the answers are about those places.

    A run that goes on takes it up, and asks the same questions.
    """
    from tutelage.features.alignment import Aligning, Alignment

    how, say = Aligning(**settings), progress or (lambda what, done, total: None)

    def fit() -> Alignment:
        return Alignment.fit(
            public.inputs, settings=how, device=device, progress=lambda done, total: say("aligning", done, total)
        )

    manner = f"{how!r}|{public.sha256}"
    found, file = learned(folder, "alignment", manner, lambda: fit().arrays(), lambda arrays: Alignment(**arrays))
    return found.pool(public), file
