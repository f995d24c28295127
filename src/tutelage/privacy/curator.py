"""The curator: the one place where answers of private teachers become public."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import Bound, OneHot
from tutelage.privacy.errors import BudgetExceeded, DataError, Error, RecipeError, Unsealed
from tutelage.privacy.events import SmoothRelease
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LNMax, Mechanism, NoisyMean, SmoothNumber, ThresholdTest
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Adjacency

Array = npt.NDArray[Any]

UNANSWERED = -1
_UNCLEAR = re.compile(r"\b0x[0-9a-fA-F]{5,}\b|[ \n,]\.\.\.[ \n,]")  # a memory address; elements that NumPy leaves out
_VALUES = 1 << 27  # numbers of all teachers' masks or ballots in memory at once, 1 GiB: volumes are asked about in parts


class Teachers(Protocol):
    """Models that each saw one shard. A public text `key` may describe their kind and settings, never data.

    It enters the names of questions, so that other teachers' answers are not given again. Without one, their class does.
    """

    def vote(self, inputs: Array) -> Sealed:
        """Give every teacher's prediction for every input, sealed: (teachers, queries, ...).

        An error in here may quote what a teacher saw: the curator tells its type alone. Whoever may see the rest calls
        `vote` directly.
        """


class Codec(Protocol):
    """Between predictions and ballots. Not trusted: the bound clips whatever it emits."""

    bound: Bound

    def encode(self, predictions: Array) -> Array:
        """Turn predictions (teachers, queries, ...) into ballots (teachers, queries, dimension)."""

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Turn released codes into predictions; post-processing."""


@runtime_checkable
class Sighted(Protocol):
    """A codec whose ballots also depend on the public inputs that are asked about, such as votes for regions of an image."""

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
        if not callable(getattr(teachers, "vote", None)):
            raise RecipeError(f"`teachers` must have a method `vote`. Got {type(teachers).__name__} without one instead.")
        self.teachers, self.codec, self.mechanism, self.ledger, self.screen = teachers, codec, mechanism, ledger, screen
        self.selection, self.salt = selection, salt
        self._private = private
        self._check_steps()
        self._described()  # what cannot be described is refused now, and not after a charge
        if private is not None:
            if "private" not in private.resolve().parts:
                raise Unsealed("`private` must lie in a folder named 'private'. Got one outside instead.")
            private.mkdir(parents=True, exist_ok=True)

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

    def answer(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> Array:
        """Give one answer per input; -1 where the screen kept silent. What was answered before is given again, free."""
        asked = _valid_inputs(inputs)
        return self.decode(self.codes(asked, baseline=baseline), asked)

    def codes(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> Array:
        """Give released codes before they are decoded, one per input, for a student that learns from codes."""
        asked = _valid_inputs(inputs)
        expected = self._expected(baseline, len(asked))
        if not len(asked):
            return np.empty(0, dtype=np.int64)
        questions = self._questions(asked, expected)
        known = self.ledger.recall(questions)
        fresh = [index for index, question in enumerate(questions) if question not in known]
        fresh = list({questions[index]: index for index in reversed(fresh)}.values())[::-1]  # ask a repeated question once
        if fresh:
            released = self._release(asked[fresh], None if expected is None else expected[fresh])
            self.ledger.keep([questions[index] for index in fresh], released)
            known = self.ledger.recall(questions)
        return np.stack([known[question] for question in questions])

    def known(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> bool:
        """Tell whether all of these were answered before, with the same baseline, so that asking again is free."""
        asked = _valid_inputs(inputs)
        questions = self._questions(asked, self._expected(baseline, len(asked)))
        return len(self.ledger.recall(questions)) == len(set(questions))

    def affordable(self) -> int:
        """Tell how many more new questions the budget holds even if the screen lets every one pass."""
        first = [step.event() for step in (self.screen, self.selection) if step is not None]
        return self.ledger.affordable(*first, self.mechanism.event())

    def _expected(self, baseline: npt.ArrayLike | None, queries: int) -> Array | None:
        """Check the student's expectation against the screen that would subtract it."""
        if self.screen is None and baseline is not None:
            raise RecipeError("`baseline` must come with a screen. Got one without instead.")
        return None if self.screen is None else self.screen.expected(baseline, queries)

    def _release(self, inputs: Array, baseline: Array | None) -> Array:
        """Charge, then act; once per step."""
        screen = self.screen
        first: Mechanism = self.mechanism if screen is None else screen
        parts = self._parts(inputs)
        codecs = [self._seeing(inputs[part]) for part in parts]
        if self.selection is not None:
            if self.affordable() < len(inputs):  # or the positions would be paid for, and no value would follow
                raise BudgetExceeded(
                    f"`count` must fit the budget with both steps. Got {len(inputs)} questions; nothing was read."
                )
            self.ledger.charge(self.selection.event(), count=len(inputs))
        self.ledger.charge(first.event(), count=len(inputs))
        if screen is None:
            return np.concatenate([self._heard(inputs[part], codec) for part, codec in zip(parts, codecs, strict=True)])
        ballots = self._ballots(inputs, codecs[0])
        passed = quietly("screen", lambda: screen.contribute(ballots, baseline=baseline), ours=Error)
        self.ledger.charge(self.mechanism.event(), count=int(passed.sum()))
        self._remember(ballots, passed)
        released = np.full(len(inputs), UNANSWERED, dtype=np.int64)
        if passed.any():
            chosen = ballots.map(lambda opened: opened[:, passed])
            released[passed] = quietly("contribute", lambda: self.mechanism.contribute(chosen), ours=Error)
        return released

    def _heard(self, inputs: Array, codec: Codec) -> Array:
        ballots = self._ballots(inputs, codec)
        self._remember(ballots, np.ones(len(inputs), dtype=bool))
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

    def _ballots(self, inputs: Array, codec: Codec) -> Sealed:
        votes = quietly("vote", lambda: self.teachers.vote(inputs))
        if not isinstance(votes, Sealed):
            raise RecipeError(f"`vote` must give a Sealed value. Got {type(votes).__name__} instead, withheld.")
        ballots = votes.map(codec.encode)
        if ballots.shape[1:2] != (len(inputs),):
            raise DataError(f"`vote` must give (teachers, {len(inputs)}, ...) for as many inputs. Got {ballots.shape} instead.")
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
        asked = _valid_inputs(inputs)
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

    def _questions(self, inputs: Array, baseline: Array | None) -> list[str]:
        """Name each question by what is asked, of whom and how: the input's bytes, and everything that makes the answer."""
        manner = json.dumps([self._described(), inputs.dtype.str, inputs.shape[1:], baseline is not None]).encode()
        rows = np.ascontiguousarray(inputs)
        beside = [b""] * len(rows) if baseline is None else [row.tobytes() for row in np.ascontiguousarray(baseline)]
        return [hashlib.sha256(manner + row.tobytes() + extra).hexdigest() for row, extra in zip(rows, beside, strict=True)]

    def _described(self) -> list[str]:
        """Describe all that makes an answer, the same in every process: as a list, in which no two meanings run together."""
        kind = type(self.teachers)
        teachers = getattr(self.teachers, "key", None)
        steps = {"codec": self.codec, "mechanism": self.mechanism, "screen": self.screen, "selection": self.selection}
        told = {"teachers": teachers if isinstance(teachers, str) else f"{kind.__module__}.{kind.__qualname__}"}
        for name, step in steps.items():
            key = getattr(step, "key", None)
            told[name] = key if isinstance(key, str) else repr(step)
        for name, text in told.items():
            if _UNCLEAR.search(text):
                raise RecipeError(
                    f"`{name}` must have a public `key`, or a `__repr__` without memory addresses and left-out elements. "
                    f"Got {type(getattr(self, name)).__name__} without instead."
                )
        return [self.salt, *told.values()]

    # ── the sealed account ────────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self, ballots: Sealed, passed: Array) -> None:
        """Keep vote counts sealed under private/, for the data-dependent account alone."""
        if self._private is None or not isinstance(self.mechanism, (GNMax, LNMax)):
            return
        bound = OneHot(self.mechanism.classes)  # the mechanism's own clip, whatever the codec says about itself
        rows = ballots.map(lambda opened: np.hstack([sum(bound.clip(ballot) for ballot in opened), passed[:, None]]))
        rows.store(self._private / f"{self._manner}-{self.ledger.length:06d}-{os.getpid()}.npy")

    @property
    def _manner(self) -> str:
        """Name these steps in a file's name: counts asked another way have another price."""
        return "counts-" + hashlib.sha256(f"{self.mechanism!r}|{self.screen!r}".encode()).hexdigest()[:12]

    def _files(self) -> list[Path]:
        if self._private is None:
            raise RecipeError("`private` must be a folder for the data-dependent account. Got None instead.")
        files = sorted(self._private.glob(f"{self._manner}-*.npy"))
        if not files:
            raise DataError("`private` must hold the counts of at least one answer. Got none instead.")
        return files

    def _remembered(self) -> Sealed:
        return Sealed.concatenate([Sealed.load(file) for file in self._files()])

    def data_dependent_rdp(self, orders: npt.ArrayLike) -> Sealed:
        """Price the whole book, and its votes by how much the teachers agreed: private, and so is any choice made by it."""
        alpha = accounting.valid_orders(orders)
        self._check_account()
        return self._remembered().map(lambda rows: self._rdp(rows, alpha) + self._smooth_rdp(alpha))

    def _rdp(self, rows: Array, alpha: Array) -> Array:
        counts, passed = rows[:, :-1], rows[:, -1] > 0
        agreed = self._tightened(counts[passed])
        if isinstance(self.mechanism, LNMax):
            answers = consensus.lnmax_log_moments(agreed, self.mechanism.gamma, alpha - 1) / (alpha - 1)
        else:
            answers = consensus.gnmax_rdp(agreed, self._scale, alpha)
        total = answers.sum(axis=0)
        if self.screen is not None:
            total = total + self._screen_rdp(counts, alpha)
        return np.asarray(total + self._uncovered(int(passed.sum()), len(rows), alpha))

    def _check_account(self) -> None:
        if self.ledger.budget.unit.teachers != 1:
            raise RecipeError("`unit` must stand behind one teacher for the data-dependent account. Got another instead.")

    @property
    def _scale(self) -> float:
        """Give the noise on one count."""
        if isinstance(self.mechanism, LNMax):
            return 1 / self.mechanism.gamma
        assert isinstance(self.mechanism, GNMax)
        return float(self.mechanism.sigma)

    def _tightened(self, counts: Array) -> Array:
        """Take a grid step from the winner's lead: rounding can turn a lead that small into a tie."""
        lowered = counts.copy()
        step = self._scale * 2.0**-19
        winners = counts.argmax(axis=1)
        lowered[np.arange(len(counts)), winners] -= np.minimum(step, counts.max(axis=1))
        return lowered

    def _screen_rdp(self, counts: Array, alpha: Array) -> Array:
        assert self.screen is not None
        if self.screen.beyond_student:  # its largest difference is not a whole number of votes: the plain price
            return np.asarray(len(counts) * accounting.event_rdp(self.screen.event(), alpha))
        top, threshold = counts.max(axis=1), self.screen.effective_threshold
        return np.asarray(consensus.threshold_rdp(top, threshold, self.screen.sigma, alpha).sum(axis=0))

    def _uncovered(self, answers: int, tests: int, alpha: Array) -> Array:
        """Price at its full, data-independent cost what the book holds beyond the remembered counts: a crash, other steps."""
        covered = {self.mechanism.event(): answers}
        if self.screen is not None:
            covered[self.screen.event()] = tests
        total = np.zeros_like(alpha)
        for event, count in self.ledger.totals():
            beyond = count - covered.get(event, 0)
            if beyond > 0 and not isinstance(event, SmoothRelease):
                total += beyond * accounting.event_rdp(event, alpha)
        return total

    def _smooth_rdp(self, alpha: Array) -> Array:
        """Price the smooth releases in the book; they are no part of the number that one of them releases."""
        total = np.zeros_like(alpha)
        for event, count in self.ledger.totals():
            if isinstance(event, SmoothRelease):
                total += count * accounting.event_rdp(event, alpha)
        return total

    def sanitised_epsilon(self, release: SmoothNumber, *, order: float) -> float:
        """Publish the data-dependent ε of the whole book through its smooth sensitivity; the release is charged, and priced in.

        `order`, β and σ must have been fixed without looking at these votes. The noise has mean zero: the figure is an
        estimate whose error is private too.
        """
        if not isinstance(self.mechanism, GNMax):
            raise RecipeError(f"`mechanism` must be GNMax for a smooth release. Got {type(self.mechanism).__name__} instead.")
        self._check_account()
        if not all(consensus.gnmax_smooth_conditions(self._scale, self.mechanism.classes, order)):
            raise RecipeError(
                f"`order` must satisfy conditions C5 and C6 of Papernot et al. 2018 with sigma {self._scale:g}. "
                f"Got {order!r} instead."
            )
        if not math.isfinite(accounting.smooth_release_rdp(release.beta, release.sigma, order)[0]):
            raise RecipeError(
                f"`order` must be below 1/(1 − e^(−2·beta)) = {-1 / math.expm1(-2 * release.beta):g}. Got {order!r} instead."
            )
        answered = [pair for pair in self.ledger.totals() if not isinstance(pair[0], SmoothRelease)]
        asked = json.dumps(["sanitised", self._described(), repr(release), repr(order), repr(answered)])
        question = hashlib.sha256(asked.encode()).hexdigest()
        known = self.ledger.recall([question])
        if question not in known:
            self._files()  # refuse before the charge when there is nothing to price
            self.ledger.charge(release.event())
            pair = self._remembered().map(lambda rows: self._number_and_sensitivity(rows, order, release.beta))
            self.ledger.keep([question], np.asarray([release.contribute(pair)]))
            known = self.ledger.recall([question])
        rdp = max(0.0, float(known[question])) + float(self._smooth_rdp(np.asarray([order]))[0])
        return accounting.rdp_to_epsilon([rdp], [order], self.ledger.budget.delta)[0]

    def _number_and_sensitivity(self, rows: Array, order: float, beta: float) -> Array:
        counts, passed = rows[:, :-1], rows[:, -1] > 0
        teachers = int(counts[0].sum())
        local = consensus.gnmax_local_sensitivity(self._tightened(counts[passed]), self._scale, order, teachers).sum(axis=0)
        if self.screen is not None and not self.screen.beyond_student:
            local = local + consensus.threshold_local_sensitivity(
                counts.max(axis=1), self.screen.effective_threshold, self.screen.sigma, order, teachers
            ).sum(axis=0)
        number = float(self._rdp(rows, np.asarray([order]))[0])
        return np.asarray([number, consensus.discounted_max(local, beta)])


def _valid_inputs(inputs: npt.ArrayLike) -> Array:
    array = np.asarray(inputs)
    if array.ndim < 1 or array.dtype.hasobject:  # the bytes of an object are an address, and say nothing about a question
        raise DataError(f"`inputs` must be one plain row per question. Got shape {array.shape} of {array.dtype} instead.")
    return array
