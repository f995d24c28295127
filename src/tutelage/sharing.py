"""The ledger of a run: its own under `private/`, or one that it shares with other runs on the same data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.runs import RunFolder, held


@contextmanager
def ledger_of(folder: RunFolder, budget: Budget, shared: str | os.PathLike[str] | None) -> Iterator[Ledger]:
    """Open the ledger of a run, and refuse one that is older than what the run's folder knows of.

    A shared ledger has a budget of its own. A run with a smaller one makes its noise for that, and the ledger's filter holds the
    sum of all runs. One run uses it at a time: rows of two would be exported in the order in which they were written, and whoever
    knows how fast the other run was would read off how long this one trained on private records.
    """
    state, place = folder.state, folder.book
    if shared is not None:
        given, before = Path(os.path.realpath(shared)), Path(os.path.realpath(place))
        if state and given != before and (before.exists() or not given.exists()):  # one that was moved is known by its rows
            raise LedgerError("`ledger` must be the one that this run was begun with. Got another instead.")
        place = given
        _check_outside(folder, place)
    own = folder.is_own(place)
    with _alone(place), owned(place, budget, own=own, heads=folder.heads) as ledger:
        yield ledger


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep a second run off a ledger."""
    try:
        real = Path(os.path.realpath(place))  # under whatever name: another one would have another lock
        lock = os.open(real.with_name(f"{real.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RecipeError(f"`ledger` must lie in a folder that can be written. Got «{error.strerror}» instead.") from None
    with held(lock, "`ledger` must be used by one run at a time. Got one in use by another run instead."):
        yield


def owned(place: Path, budget: Budget, *, own: bool = False, heads: list[tuple[int, str]] | None = None) -> Ledger:
    """Open a ledger that its owner alone can read; where there is none yet, make it with this budget."""
    fresh = not place.exists() or not place.stat().st_size
    if not (own or fresh) and place.stat().st_mode & 0o077:
        raise RecipeError(f"`ledger` must be readable by its owner alone: chmod 600. Got wider rights on {place.name!r} instead.")
    ledger = Ledger(place, budget if own or fresh else None, heads=heads or [])
    try:
        _check_budget(budget, ledger.budget)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _check_outside(folder: RunFolder, place: Path) -> None:
    """Refuse a ledger inside a release: it would be published."""
    for release in (folder.draft, folder.published):
        if Path(os.path.realpath(release)) in place.parents:
            raise RecipeError("`ledger` must lie outside of the release. Got a place inside instead.")


def _check_budget(budget: Budget, whole: Budget) -> None:
    """Refuse a run whose unit, δ or neighbours are not the ledger's, or whose ε is larger than the ledger's."""
    for name in ("delta", "unit", "adjacency"):
        if getattr(budget, name) != getattr(whole, name):
            raise LedgerError(f"`{name}` must be the ledger's, {getattr(whole, name)}. Got {getattr(budget, name)} instead.")
    if budget.epsilon > whole.epsilon:
        raise LedgerError(f"`epsilon` must be at most the ledger's, {whole.epsilon:g}. Got {budget.epsilon:g} instead.")


def summary(place: Path) -> dict[str, Any]:
    """Give a ledger's budget, what was spent of it so far, and the runs that share it. All of it is public."""
    with Ledger(place) as ledger:
        return {
            "budget_epsilon": ledger.budget.epsilon,
            "delta": ledger.budget.delta,
            "unit": ledger.budget.unit.name,
            "unit_teachers": ledger.budget.unit.teachers,
            "adjacency": str(ledger.budget.adjacency),
            "spent_epsilon": ledger.spent().epsilon,
            "runs": list(dict.fromkeys(run for run, _ in ledger.starts())),
            "rows": ledger.length,
            "head": ledger.head,
        }
