"""Rounds of queries about public records, each chosen by what the student learned from the answers before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.planning import Aggregation
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.oracle import Oracle
from tutelage.privacy.queries import Query
from tutelage.tasks.questions import Curious, Questions, check_count, checked, chosen_questions
from tutelage.tasks.rounds import Round, Rounds
from tutelage.tasks.task import Student
from tutelage.telling import Progress, silent, telling

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Labels:
    """Hold what the pool is called in the end, and by whom."""

    values: Array  # (public records,), -1 where there is none
    reinforced: Array  # (public records,), True where the teachers had nothing to add and the student's own label was taken
    shares: Array | None = None  # (public records, classes) noisy, not a number where nothing was answered; None for winners

    @property
    def released(self) -> Array:
        """Mark the records that the teachers answered."""
        return (self.values >= 0) & ~self.reinforced

    def counts(self) -> dict[str, int]:
        """Count both kinds: public, because both follow from what was released."""
        return {"released": int(self.released.sum()), "reinforced": int(self.reinforced.sum())}


@final
class Interview:
    """Ask an oracle about public records in rounds; everything that decides what is asked next is public.

    The rounds are planned when the interview is built, so that a bad choice is refused before anything is written.
    """

    def __init__(
        self,
        public: Public,
        queries: int,
        classes: int,
        how: Aggregation,
        questions: Questions | None,
        say: Progress = silent,
    ) -> None:
        self.public, self.classes, self.how, self.questions = public, classes, how, questions
        check_count(queries, public)
        turns = min(how.turns, queries)
        self._sizes = [len(part) for part in np.array_split(np.arange(queries), turns)]
        if turns > 1 and isinstance(questions, Curious):
            self._ahead = [chosen_questions(public, self._sizes[0], questions, say)]
        else:
            chosen = chosen_questions(public, queries, questions, say)
            self._ahead = [part for part in np.array_split(chosen, turns) if len(part)]
            self._sizes = [len(part) for part in self._ahead]

    @property
    def _keeps(self) -> bool:
        """Tell whether rounds are kept: the first records of a pool stay the same, what is computed need not."""
        return len(self._sizes) > 1 or self.questions is not None

    @property
    def asked(self) -> str:
        """Hash the questions that are known beforehand, and how many there are in each round."""
        parts = "|".join(",".join(map(str, part.tolist())) for part in self._ahead)
        return hashlib.sha256(f"{self._sizes}|{parts}".encode()).hexdigest()

    @property
    def adaptive(self) -> bool:
        """Tell whether the price depends on what was answered, so that only the budget may be quoted.

        It does after a test, and where answers decide what is asked next: a second copy of a record is free, so that even the
        same number of records need not be the same number of questions.
        """
        return self.how.adaptive or (len(self._sizes) > 1 and isinstance(self.questions, Curious))

    def hold(self, oracle: Oracle, student: Callable[[], Student], folder: Path, say: Progress) -> Labels:
        """Ask round by round for as long as the budget surely holds more; what was answered before is given again, free."""
        kept = Rounds(folder, oracle.run, self.public)
        records = len(self.public)
        shares = np.full((records, self.classes), np.nan) if self.how.vectors else None
        found = Labels(np.full(records, -1, dtype=np.int64), np.zeros(records, dtype=bool), shares)
        asked, done = np.zeros(records, dtype=bool), 0
        for number, size in enumerate(self._sizes):
            one = self._kept(kept, number, asked)
            if one is None:
                one = self._next(number, size, found.values, asked, student, say)
                if number and not self._room(oracle, 1) and not self._known(oracle, one, np.arange(len(one.chosen))):
                    break  # nobody can be asked any more: the last student is the one that is fitted on everything
                if self._keeps:
                    kept.keep(number, one)
            asked[one.chosen] = True
            self._ask(oracle, one, found, lambda new, before=done: say("asking the teachers", before + new, sum(self._sizes)))
            done += len(one.chosen)
        say("asking the teachers", sum(self._sizes), sum(self._sizes))
        return found

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _kept(self, kept: Rounds, number: int, asked: Array) -> Round | None:
        """Take up a round that was kept before, if it is one of this plan."""
        one = kept.read(number) if self._keeps else None
        if one is None:
            return None
        try:
            checked(one.chosen, self._sizes[number], self.public, asked)
            most = min(self._sizes[number], int((~asked).sum()))
            fits = one.shares.shape == (len(one.chosen), self.classes) and (number < len(self._ahead) or len(one.chosen) == most)
        except RecipeError:
            fits = False
        if not fits:
            raise DataError("`rounds` must be those of this plan and pool. Got others instead.")
        return one

    def _next(self, number: int, size: int, labels: Array, asked: Array, student: Callable[[], Student], say: Progress) -> Round:
        """Choose a round by what the student predicts now; while nothing is known, every class is as likely as another."""
        curious = isinstance(self.questions, Curious) and number >= len(self._ahead)
        asked_student = (curious or self.how.interactive) and (labels >= 0).any()
        if asked_student:
            model = telling(student().fit, say, "training between rounds")(self.public.unlabelled(), labels)
            shares = class_shares(model, self.public.inputs, self.classes)
        else:
            shares = np.broadcast_to(1 / self.classes, (len(self.public), self.classes))
        if not curious:
            chosen = self._ahead[number]
        else:
            assert isinstance(self.questions, Curious)
            chosen = self.questions.again(self.public.unlabelled(), size, shares=shares.copy(), asked=asked.copy())
            chosen, most = checked(chosen, size, self.public, asked), min(size, int((~asked).sum()))
            if len(chosen) != most:  # what a method without a test costs is fixed beforehand only if this is
                raise RecipeError(f"`questions` must choose {most} records, whatever was answered. Got {len(chosen)} instead.")
        return Round(chosen, shares[chosen])

    # ── asking it ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, oracle: Oracle, one: Round, found: Labels, say: Callable[[int], None]) -> None:
        """Ask one round block by block, and take the student's own label where the teachers have nothing to add to a sure one."""
        size = oracle.batch or max(1, sum(self._sizes) // 20)
        for start in range(0, len(one.chosen), size):
            waiting = np.arange(start, min(start + size, len(one.chosen)))  # places in the round
            while len(askable := self._askable(oracle, waiting, one)):
                answers = oracle.ask(self._query(one, askable), student_probs=self._expected(one, askable)).values
                if found.shares is not None:  # the whole noisy histogram costs what its winner costs
                    found.shares[one.chosen[askable]] = answers
                    answers = answers.argmax(axis=1)
                if self.how.interactive:
                    sure = (answers < 0) & (one.shares[askable].max(axis=1) >= self.how.sure)
                    answers = np.where(sure, one.shares[askable].argmax(axis=1), answers)
                    found.reinforced[one.chosen[askable]] = sure
                found.values[one.chosen[askable]] = answers
                waiting = waiting[~np.isin(waiting, askable)]
            say(min(start + size, len(one.chosen)))

    def _askable(self, oracle: Oracle, waiting: Array, one: Round) -> Array:
        """Keep what was answered before, and as many new questions as fit even if a screen lets every one of them pass."""
        if not len(waiting) or self._known(oracle, one, waiting):
            return waiting
        old = np.asarray([self._known(oracle, one, waiting[place : place + 1]) for place in range(len(waiting))])
        return waiting[old | (np.cumsum(~old) <= self._room(oracle, int((~old).sum())))]

    def _known(self, oracle: Oracle, one: Round, places: Array) -> bool:
        return oracle.known(self._query(one, places), student_probs=self._expected(one, places))

    def _query(self, one: Round, places: Array) -> Query:
        return Query.inputs(self.public.inputs[one.chosen[places]])

    def _expected(self, one: Round, places: Array) -> Array | None:
        return one.shares[places] if self.how.interactive else None

    def _room(self, oracle: Oracle, wanted: int) -> int:
        """Tell how many of these new questions fit, beside the sanitised ε where that is planned."""
        return oracle.remaining(wanted, beside=None if self.how.sanitise is None else self.how.sanitise.release())


def class_shares(model: Any, inputs: Array, classes: int) -> Array:
    """Give a fitted student's shares (records, classes): its own where it has some, else all on the class it predicts."""
    own = getattr(model, "probabilities", None) or getattr(getattr(model, "model", None), "probabilities", None)
    if own is None:
        return np.asarray(np.asarray(model.predict(inputs))[:, None] == np.arange(classes), dtype=np.float64)
    shares = np.asarray(own(inputs), dtype=np.float64)
    if shares.ndim != 2 or len(shares) != len(inputs) or shares.shape[1] > classes or not np.isfinite(shares).all():
        raise DataError(
            f"`probabilities` must give finite shares (records, at most {classes} classes). Got others of {shares.shape} instead."
        )
    shares = np.pad(shares, ((0, 0), (0, classes - shares.shape[1])))  # classes that nobody has named yet
    return np.clip(shares, 0.0, 1.0)  # rounding may leave 1 + 1e-7
