"""The common walk of releases that are sums: a folder, a ledger, shares of μ² fixed when the run opens, one guarantee at the end."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage import guarantee as guarantees
from tutelage.data.dataset import Private
from tutelage.data.provenance import counted
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.ledger import Ledger, read_lines
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
        self._asked = 0

    def once(self, function: PublicFunction, what: Sum, query: Query, *, progress: Any = None) -> Array:
        """Release one sum. A run that goes on is given the same one again, free, and reads no record for it."""
        curator = self._curator(function, what)
        if not curator.known(query):
            self._read(curator, progress)
        self._asked += 1
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
        self._asked += what.rounds

    def publish(self, scores: Mapping[str, float], pages: Any = None, *, declared: Sequence[str] = ()) -> dict[str, Any]:
        """Write scores and the guarantee that follows from the exported ledger, and publish by one rename."""
        known = guarantees.declared(self.ledger.entries())
        for one in dict.fromkeys(declared):
            if one not in known:
                self.ledger.note(declared=one)
        self.folder.scores.write_text(json.dumps(dict(scores), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        self.ledger.export(self.folder.exported_book)
        document = guarantees.guarantee(
            read_lines(self.folder.exported_book), run=self.ledger.run, about=self.about,
            labels={"released": self._asked, "distinct": self._answers(), "reinforced": 0},
        )  # fmt: skip
        guarantees.write(document, self.folder.guarantee)
        if pages is not None:
            pages(self.folder)
        self.folder.publish(self.ledger)
        return document

    def _answers(self) -> int:
        return self._asked

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
    resume: bool = False,
    recipe: str = "",
    purpose: str = "",
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
) -> Iterator[Walk]:
    """Open a run whose places are the roster's: one place per unit, so that one unit moves one place."""
    if private.places is None:
        raise RecipeError(
            "`private` must have a public roster: give `units` with `roster`, or arrays without units. Got none instead."
        )
    parts = private.split(private.places, seed=seed)
    folder = RunFolder(out).create(resume=resume)
    with folder.locked(), ledger_of(folder, budget, ledger) as book:
        begun = folder.state.get("run")
        run = purpose or begun or secrets.token_hex(16)
        if begun not in (None, run):
            raise RecipeError("`recipe` must be the one that this folder was begun with. Got another instead: take a new --out.")
        roster = private.roster
        about = guarantees.intended(
            task=task, adaptive=False, units=private.places, shards=parts.key, ledger=folder.own(book),
            roster=None if roster is None else roster.sha256, recipe_sha256=run if recipe else None, plan=dict(plan),
            tuned_on=tuned_on, data=data,
        )  # fmt: skip
        folder.reopen()
        folder.keep(book, run)
        book.begin(run, plan=guarantees.planned(about))
        folder.keep(book, run)
        folder.write_inside(folder.inside_data, json.dumps(counted(private), indent=2) + "\n")
        if recipe:
            folder.recipe.write_text(recipe, encoding="utf-8")
        walk = Walk(private, parts, folder, book, budget, run)
        walk.about = about
        yield walk
