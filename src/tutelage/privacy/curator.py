"""The curator: the one place where contributions of private teachers become public."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting
from tutelage.privacy.account import VoteAccount
from tutelage.privacy.bounds import Bound
from tutelage.privacy.errors import BudgetExceeded, DataError, Error, RecipeError, Unsealed
from tutelage.privacy.events import SmoothRelease
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import (
    AboveThreshold,
    GNMax,
    LNMax,
    Mechanism,
    NoisyMean,
    NoisySum,
    SmoothNumber,
    ThresholdTest,
)
from tutelage.privacy.oracle import UNANSWERED, Released
from tutelage.privacy.queries import Form, Query, described
from tutelage.privacy.rounds import Rounds
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Adjacency

Array = npt.NDArray[Any]

KEYS = 2  # version of how answers are named in a ledger
_VALUES = 1 << 27  # numbers of all teachers' masks or votes in memory at once, 1 GiB: volumes are asked about in parts


class Teachers(Protocol):
    """Models that each saw one shard. A public text `key` may describe their kind and settings, never data.

    It enters the names of queries, so that other teachers' answers are not given again. Without one, their class does.
    Instead of `vote` they may have `contributions(query)`, which yields blocks: then nobody holds all of them at once.
    """

    def vote(self, inputs: Array) -> Sealed:
        """Give every teacher's prediction for every input, sealed: (teachers, queries, ...).

        An error in here may quote what a teacher saw: the curator gives its type alone. Whoever may see the rest calls
        `vote` directly.
        """


class Codec(Protocol):
    """Between predictions and contributions. Not trusted: the bound clips whatever it emits."""

    bound: Bound

    def encode(self, predictions: Array) -> Array:
        """Turn predictions (teachers, queries, ...) into contributions (teachers, queries, dimension)."""

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Turn released codes into predictions; post-processing."""


@runtime_checkable
class Sighted(Protocol):
    """A codec whose contributions also depend on the public inputs asked about, such as votes for regions of an image."""

    bound: Bound

    def seeing(self, inputs: Array) -> Codec:
        """Give the codec for these inputs. It is called before the charge: what it refuses has cost nothing."""


@final
class Curator:
    """Answer questions about public inputs with the teachers' noisy, bounded, counted consensus.

    Formal guarantee: everything ever returned is (ε, δ)-DP for the ledger's budget and unit, because every step is charged
    before it reads and the ledger refuses what does not fit. `screen` is a first step that decides which questions are
    answered at all (Confident- and Interactive-GNMax); each step is charged before that step reads. `selection` is a first step
    that decides which coordinates of an answer are let out (the sparse vector technique), the others are 0.
    `salt` is a public text that tells this ensemble from others on the same ledger (its shards' key, its settings): a question
    that was answered before is given again, free, only where salt, teachers, codec and all steps are the same.
    """

    def __init__(
        self,
        teachers: Teachers,
        codec: Codec | Sighted,
        mechanism: Mechanism,
        ledger: Ledger,
        *,
        screen: ThresholdTest | None = None,
        selection: AboveThreshold | None = None,
        salt: str = "",
        private: Path | None = None,
    ) -> None:
        if not isinstance(salt, str):
            raise RecipeError(f"`salt` must be a text. Got {type(salt).__name__} instead.")
        if not any(callable(getattr(teachers, name, None)) for name in ("vote", "contributions")):
            raise RecipeError(
                f"`teachers` must have a method `vote` or `contributions`. Got {type(teachers).__name__} without instead."
            )
        self.teachers, self.codec, self.mechanism, self.ledger, self.screen = teachers, codec, mechanism, ledger, screen
        self.selection, self.salt = selection, salt
        self._check_steps()
        self.salted = self._described()  # what cannot be described is refused now, and not after a charge
        if private is not None:
            if "private" not in private.resolve().parts:
                raise Unsealed("`private` must lie in a folder named 'private'. Got one outside instead.")
            private.mkdir(parents=True, exist_ok=True)
        self.private = private
        self.account = VoteAccount(mechanism, screen, ledger, private, self.salted)

    def _check_steps(self) -> None:
        """Refuse steps that do not promise what the book promises, or that do not fit together."""
        if self.screen is not None and not isinstance(self.mechanism, (GNMax, LNMax)):
            raise RecipeError(f"`screen` must come with GNMax or LNMax. Got {type(self.mechanism).__name__} instead.")
        if self.selection is not None and not (
            isinstance(self.mechanism, NoisyMean)
            and (self.selection.bound, self.selection.teachers) == (self.mechanism.bound, self.mechanism.teachers)
        ):
            raise RecipeError("`selection` must come with a NoisyMean of the same bound and teachers. Got another instead.")
        unit = self.ledger.budget.unit
        for step in (self.mechanism, self.screen, self.selection):
            reach = getattr(step, "unit", unit).teachers
            if reach != unit.teachers:
                raise RecipeError(f"`unit` must reach the {unit.teachers} teachers of the book's unit. Got {reach} instead.")
            promised = self.ledger.budget.adjacency
            claimed = getattr(step, "adjacency", Adjacency.REPLACE_ONE if promised == Adjacency.REPLACE_ONE else promised)
            if claimed != promised:
                raise RecipeError(f"`adjacency` must be the book's, {promised}. Got {claimed} instead.")

    # ── what an oracle does (tutelage.privacy.oracle) ─────────────────────────────────────────────────────────────────

    @property
    def run(self) -> str:
        """Name the run that asks, as its ledger does."""
        return self.ledger.run

    @property
    def noise(self) -> float | None:
        """Give the standard deviation on every coordinate of an answer. None where only a winner, or a selection, is released."""
        if isinstance(self.mechanism, NoisySum):
            return self.mechanism.sigma
        if self.selection is not None or not isinstance(self.mechanism, NoisyMean):
            return None
        return self.mechanism.sigma / self.mechanism.teachers

    @property
    def batch(self) -> int | None:
        """Leave it to the caller how many inputs to ask about at once."""
        return None

    def ask(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> Released:
        """Charge, read, keep, give. What was answered before is given again, free."""
        expected = self._expected(student_probs, len(query))
        if not len(query):
            return Released(np.empty(0, dtype=np.int64), ())
        names = query.keys(self.salted, expected)
        known = self.ledger.recall(names)
        fresh = [index for index, name in enumerate(names) if name not in known]
        fresh = list({names[index]: index for index in reversed(fresh)}.values())[::-1]  # ask a repeated question once
        if fresh:
            released = self._release(query, fresh, None if expected is None else expected[fresh])
            self.ledger.keep([names[index] for index in fresh], released)
            known = self.ledger.recall(names)
        codes = np.stack([known[name] for name in names])
        return Released(codes, tuple(names), None if query.form != Form.EACH else lambda codes: self.decode(codes, query.rows))

    def known(
        self, query: Query | Array, *, student_probs: npt.ArrayLike | None = None, baseline: npt.ArrayLike | None = None
    ) -> bool:
        """Tell whether all of these were answered before, with the same expectation, so that asking again is free."""
        query = query if isinstance(query, Query) else Query.inputs(query)
        names = query.keys(self.salted, self._expected(student_probs if baseline is None else baseline, len(query)))
        return len(self.ledger.recall(names)) == len(set(names))

    def remaining(self, wanted: int | None = None, *, beside: SmoothNumber | None = None) -> int:
        """Tell how many more new answers the budget holds, even if the screen lets every one pass, beside a smooth release."""
        steps = [step.event() for step in (self.screen, self.selection, self.mechanism) if step is not None]
        room = self.ledger.affordable(*steps)
        room = room if wanted is None else min(room, wanted)
        totals, budget = self.ledger.totals(), self.ledger.budget
        if beside is not None and not any(isinstance(event, SmoothRelease) for event, _ in totals):
            last = (beside.event(), 1)
            while room and not accounting.admits(
                [*totals, *((step, room) for step in steps), last], budget.epsilon, budget.delta
            ):
                room -= 1
        return room

    def reserve(
        self,
        rounds: int,
        template: Query,
        *,
        population: int | None = None,
        delta: float | None = None,
    ) -> Rounds:
        """Charge all rounds of a conversation before its first. The same reservation again goes on where it stopped.

        Every round asks a query of the template's kind and shapes. With a `population` one of so many teachers is drawn anew in
        every round, and stays secret: the rounds together cost one fixed pair (ε, `delta`), with the whole budget's δ by default.
        """
        return Rounds(self, rounds, template, population=population, delta=delta)

    def data_dependent_epsilon(self) -> Sealed | None:
        """Give the data-dependent ε of votes, sealed. A mean's price does not depend on the data."""
        return self.account.sealed_epsilon()

    def sanitised(self, release: SmoothNumber, *, order: float) -> float | None:
        """Publish the data-dependent ε of votes through a release that is paid for, where there is room for it."""
        return self.account.sanitised(release, order=order)

    def affordable(self) -> int:
        """Tell how many more new answers the budget holds, even if the screen lets every one pass."""
        return self.remaining()

    # ── the same, for inputs as arrays ────────────────────────────────────────────────────────────────────────────────

    def answer(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> Array:
        """Give one answer per input; -1 where the screen kept silent."""
        return self.ask(Query.inputs(inputs), student_probs=baseline).values

    def codes(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> Array:
        """Give released codes before they are decoded, one per input."""
        return self.ask(Query.inputs(inputs), student_probs=baseline).codes

    # ── what happens inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _expected(self, baseline: npt.ArrayLike | None, queries: int) -> Array | None:
        """Check the student's expectation against the screen that would subtract it."""
        if self.screen is None and baseline is not None:
            raise RecipeError("`baseline` must come with a screen. Got one without instead.")
        return None if self.screen is None else self.screen.expected(baseline, queries)

    def _release(self, query: Query, fresh: list[int], baseline: Array | None) -> Array:
        """Charge, then act; once per step."""
        if (query.form == Form.EACH) is isinstance(self.mechanism, NoisySum):
            raise RecipeError(
                f"`mechanism` must fit a query of form {query.form!s}. Got {type(self.mechanism).__name__} instead."
            )
        if isinstance(self.mechanism, NoisySum):
            return self._summed(query, self.mechanism)
        inputs, screen = query.rows[fresh], self.screen
        first: Mechanism = self.mechanism if screen is None else screen
        parts = self._parts(inputs)
        codecs = [self._seeing(inputs[part]) for part in parts]
        if self.selection is not None:
            if self.remaining() < len(inputs):  # or the positions would be paid for, and no value would follow
                raise BudgetExceeded(
                    f"`count` must fit the budget with both steps. Got {len(inputs)} questions; nothing was read."
                )
            self.ledger.charge(self.selection.event(), count=len(inputs))
        self.ledger.charge(first.event(), count=len(inputs))
        if screen is None:
            some = [query] if query.kind != "inputs" else [Query.inputs(inputs[part]) for part in parts]
            return np.concatenate([self._answered(one, codec) for one, codec in zip(some, codecs, strict=True)])
        ballots = self._ballots(Query.inputs(inputs), codecs[0])
        passed = quietly("screen", lambda: screen.contribute(ballots, baseline=baseline), ours=Error)
        self.ledger.charge(self.mechanism.event(), count=int(passed.sum()))
        self.account.remember(ballots, passed)
        released = np.full(len(inputs), UNANSWERED, dtype=np.int64)
        if passed.any():
            chosen = ballots.map(lambda opened: opened[:, passed])
            released[passed] = quietly("contribute", lambda: self.mechanism.contribute(chosen), ours=Error)
        return released

    def _summed(self, query: Query, mechanism: NoisySum) -> Array:
        """Charge, and release one sum over all places: (1, ...)."""
        if query.form != mechanism.form:
            raise RecipeError(f"`form` of a query must be the mechanism's, {mechanism.form!s}. Got {query.form!s} instead.")
        self.ledger.charge(mechanism.event())
        return self._noised(self._blocks(query), mechanism)[None]

    def once(self, query: Query, member: Sealed | None) -> Array:
        """Release the answer of one round, which its reservation has paid for. For tutelage.privacy.rounds alone."""
        if isinstance(self.mechanism, NoisySum):
            return self._noised(self._blocks(query, member), self.mechanism)
        codec = self._seeing(query.rows)
        codes = self._noised((self._encoded(block, codec, 1) for block in self._blocks(query, member)), self.mechanism)
        return np.asarray(codes[0])

    def _noised(self, blocks: Iterator[Any], mechanism: Any) -> Array:
        return np.asarray(quietly("contribute", lambda: mechanism.contribute(blocks), ours=Error))

    def _blocks(self, query: Query, member: Sealed | None = None) -> Iterator[Any]:
        """Let teachers contribute block by block. Of an error of theirs nothing but its type gets out."""
        if not callable(getattr(self.teachers, "contributions", None)):
            if member is not None:
                raise RecipeError("`teachers` must have `contributions` where one of them is drawn. Got `vote` alone instead.")
            yield quietly("vote", lambda: self.teachers.vote(query.rows))
            return
        given = {} if member is None else {"member": member}
        ask = self.teachers.contributions  # type: ignore[attr-defined]
        blocks = quietly("contributions", lambda: iter(ask(query, **given)))
        while (block := quietly("contributions", lambda: next(blocks, None))) is not None:
            yield block

    def _answered(self, query: Query, codec: Codec) -> Array:
        streamed = isinstance(self.mechanism, NoisyMean) and self.selection is None
        if streamed:  # a mean keeps nothing of its contributions, so that nobody needs all of them at once
            return self._noised((self._encoded(block, codec, len(query)) for block in self._blocks(query)), self.mechanism)
        ballots = self._ballots(query, codec)
        self.account.remember(ballots, np.ones(len(query), dtype=bool))
        return self._selected(ballots) if self.selection is not None else self._means(ballots)

    def _means(self, ballots: Sealed) -> Array:
        return quietly("contribute", lambda: self.mechanism.contribute(ballots), ours=Error)

    def _selected(self, ballots: Sealed) -> Array:
        """Let out the coordinates that the selection found large. It tells positions alone; values have noise of their own."""
        selection = self.selection
        assert selection is not None
        chosen = quietly("select", lambda: selection.contribute(ballots), ours=Error)  # (queries, dimension)
        # Within what is chosen, which is public now, a ballot is clipped into the same bound: its diameter is the price.
        return self._means(ballots.map(lambda opened: np.where(chosen, opened, 0.0))) * chosen

    def _ballots(self, query: Query, codec: Codec) -> Sealed:
        """Give all teachers' contributions at once: a winner, a test and a selection look at the same ones."""
        return Sealed.concatenate([self._encoded(block, codec, len(query)) for block in self._blocks(query)])

    def _encoded(self, votes: Any, codec: Codec, queries: int) -> Sealed:
        if not isinstance(votes, Sealed):
            raise RecipeError(f"`vote` must give a Sealed value. Got {type(votes).__name__} instead, withheld.")
        ballots = votes.map(codec.encode)
        if ballots.shape[1:2] != (queries,):
            raise DataError(f"`vote` must give (teachers, {queries}, ...) for as many inputs. Got {ballots.shape} instead.")
        return ballots

    def _parts(self, inputs: Array) -> list[slice]:
        """Divide questions whose ballots are too long to be held at once. Each has its own noise: it is all one to the book."""
        if isinstance(self.mechanism, (GNMax, LNMax)):  # few coordinates, and one file of counts per charge
            return [slice(0, len(inputs))]
        width = max(self.codec.bound.dimension, math.prod(inputs.shape[1:]))  # a mask is as large as its image
        step = max(1, _VALUES // (width * getattr(self.mechanism, "teachers", 1)))
        return [slice(start, min(start + step, len(inputs))) for start in range(0, len(inputs), step)]

    def decode(self, codes: Array, inputs: npt.ArrayLike) -> Array:
        """Turn codes into answers: post-processing. Where the screen kept silent, a label is -1 and a mask not a number."""
        asked = np.asarray(inputs)
        if self.screen is None or not len(codes):
            return self._seeing(asked).decode(codes, asked) if len(codes) else codes
        answered = codes != UNANSWERED
        heard = self._seeing(asked[answered]).decode(codes[answered], asked[answered])
        silent = UNANSWERED if heard.dtype.kind in "iu" and heard.ndim == 1 else np.nan
        answers = np.full((len(codes), *heard.shape[1:]), silent, dtype=np.result_type(heard, type(silent)))
        answers[answered] = heard
        return answers

    def _seeing(self, inputs: Array) -> Codec:
        return self.codec.seeing(inputs) if isinstance(self.codec, Sighted) else self.codec

    def _described(self) -> str:
        """Describe all that makes an answer, the same in every process: as a list, in which no two meanings run together."""
        kind = type(self.teachers)
        keyed = isinstance(getattr(self.teachers, "key", None), str)
        teachers = described(self.teachers, "teachers") if keyed else f"{kind.__module__}.{kind.__qualname__}"
        steps = {"codec": self.codec, "mechanism": self.mechanism, "screen": self.screen, "selection": self.selection}
        parts = [None if step is None else described(step, name) for name, step in steps.items()]
        return json.dumps([KEYS, self.salt, teachers, *parts], sort_keys=True)
