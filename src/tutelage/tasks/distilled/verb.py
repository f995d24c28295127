"""The verb `tutelage.distill`, importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tutelage.data.dataset import Private
from tutelage.privacy.budget import Budget


def distill(private: Private, *, classes: Any, budget: Budget, out: str | Path, **given: Any) -> Any:
    """Make a few images a class that networks can be trained on: tutelage.tasks.distilled.sets.distill, which lists all settings.

    Formal guarantee: everything under `out`/release is (ε, δ)-DP for the budget and unit, unless `init` is "private".
    """
    from tutelage.tasks.distilled.sets import distill as made

    return made(private, classes=classes, budget=budget, out=out, **given)
