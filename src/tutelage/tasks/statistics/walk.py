"""The common walk of released sums: a folder, a ledger, shares of μ² fixed when the run opens, and one guarantee."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage import publication
from tutelage.data.dataset import Private
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import NoisySum
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sealed import quietly
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.teachers.statistics import PublicFunction, Statistics

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Sum:
    """Describe one release: its share of μ², the form and size of the sum, and how long what one place adds may be."""

    share: float
    form: Form
    width: int
    norm: float = 1.0
    groups: int = 1
    right: int = 1
    nonnegative: bool = False
    rounds: int = 1

    def mechanism(self, budget: Budget, places: int) -> NoisySum:
        """Give the noisy sum whose rounds together take the share."""
        shape = {
            "form": self.form, "width": self.width, "norm": self.norm, "places": places, "groups": self.groups,
            "right": self.right, "nonnegative": self.nonnegative, "unit": budget.unit, "adjacency": budget.adjacency,
        }  # fmt: skip
        sensitivity = NoisySum(sigma=1.0, **shape).sensitivity
        return NoisySum(sigma=budget.sigma(sensitivity, share=self.share, rounds=self.rounds), **shape)


def planned(budget: Budget, shares: Mapping[str, float]) -> dict[str, float]:
    """Check shares of μ²: above 0, and 1 together. Give the μ of every part."""
    if not shares or any(not share > 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-9:
        raise RecipeError("`shares` must be above 0 and add up to 1. Got others instead.")
    return {name: budget.mu * math.sqrt(share) for name, share in shares.items()}


@final
class Walk:
    """Ask public functions of the private records, each through a curator of its own on one ledger."""

    def __init__(self, private: Private, parts: Shards, folder: RunFolder, ledger: Ledger, budget: Budget, run: str) -> None:
        self.private, self.parts, self.folder, self.ledger = private, parts, folder, ledger
        self.budget, self.run = budget, run
        self.about: dict[str, Any] = {}
        self.asked = 0

    def once(self, function: PublicFunction, what: Sum, query: Query, *, progress: Any = None) -> Array:
        """Release one sum. A run that goes on is given the same one again, free, and reads no record for it."""
        curator = self._curator(function, what)
        if not curator.known(query):
            self._read(curator, progress)
        self.asked += 1
        return np.asarray(curator.ask(query).codes[0])

    def rounds(self, function: PublicFunction, what: Sum, student: Any, *, progress: Any = None) -> None:
        """Let an iterative student ask in reserved rounds until it has no query left, or until a crash has used them up."""
        curator = self._curator(function, what)
        talk = curator.reserve(what.rounds, student.template())
        kept = talk.state()
        if kept is not None:
            student.load_state_dict(kept)
        done = what.rounds - talk.left
        if talk.left:
            self._read(curator, progress)
        while talk.left and (query := student.query()) is not None:
            student.update(talk.ask(query))
            talk.save(student.state_dict())
            done += 1
            if progress is not None:
                progress("asking in rounds", done, what.rounds)
        self.asked += what.rounds

    def publish(self, scores: Mapping[str, float], pages: Any = None) -> dict[str, Any]:
        """Write scores and the guarantee that follows from the exported ledger, and publish by one rename."""
        counts = {"released": self.asked, "distinct": self.asked, "reinforced": 0}
        return publication.publish(self.folder, self.ledger, self.about, scores=scores, counts=counts, pages=pages)

    def _curator(self, function: PublicFunction, what: Sum) -> Curator:
        teachers = Statistics(function, grouped=what.groups > 1)
        salt = json.dumps([self.run, self.parts.key])
        mechanism = what.mechanism(self.budget, len(self.parts))
        return Curator(teachers, None, mechanism, self.ledger, salt=salt, private=self.folder.private)

    def _read(self, curator: Curator, progress: Any) -> None:
        def say(done: int, total: int) -> None:
            if progress is not None:
                progress("reading records", done, total)

        quietly("fit", lambda: curator.teachers.fit(self.private, self.parts, progress=say), ours=Error)


@contextmanager
def opened(
    private: Private,
    *,
    task: str,
    out: str | Path,
    budget: Budget,
    plan: Mapping[str, Any],
    ledger: str | Path | None = None,
    seed: int = 0,
    shards: int | None = None,
    resume: bool = False,
    recipe: str = "",
    purpose: str = "",
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
) -> Iterator[Walk]:
    """Open a run. Without `shards` its places are the roster's: one place per unit, so that one unit moves one place."""
    if private.places is None:
        raise RecipeError(
            "`private` must have a public roster: give `units` with `roster`, or arrays without units. Got none instead."
        )
    parts = private.split(shards or private.places, seed=seed)
    folder = RunFolder(out).create(resume=resume)
    with folder.locked(), ledger_of(folder, budget, ledger) as book:
        run = publication.named(folder, purpose)
        facts = {"recipe": recipe, "tuned_on": tuned_on, "data": data}
        about = publication.begin(folder, book, run, task=task, adaptive=False, plan=plan, private=private, parts=parts, **facts)
        walk = Walk(private, parts, folder, book, budget, run)
        walk.about = about
        yield walk
