"""The door: the one place where something learned from private data becomes public."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import Bound
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.events import NoisyMax, SmoothRelease, Threshold
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import GNMax, LNMax, Mechanism, SmoothNumber, ThresholdTest
from tutelage.privacy.sealed import Sealed

Array = npt.NDArray[Any]

UNANSWERED = -1


class Teachers(Protocol):
    """Models that each saw one shard."""

    def vote(self, inputs: Array) -> Sealed:
        """Give every teacher's prediction for every input, sealed: (teachers, queries, ...)."""


class Codec(Protocol):
    """Between predictions and ballots. Not trusted: the bound clips whatever it emits."""

    bound: Bound

    def encode(self, predictions: Array) -> Array:
        """Turn predictions (teachers, queries, ...) into ballots (teachers, queries, dimension)."""

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Turn released codes into predictions; post-processing."""


@final
class Curator:
    """Answer questions about public inputs with the teachers' noisy, bounded, counted consensus.

    Formal guarantee: everything ever returned is (ε, δ)-DP for the ledger's budget and unit, because every step is charged
    before it reads and the ledger refuses what does not fit. `screen` is a first step that decides which questions are
    answered at all (Confident- and Interactive-GNMax); each step is charged before that step reads.
    """

    def __init__(
        self,
        teachers: Teachers,
        codec: Codec,
        mechanism: Mechanism,
        ledger: Ledger,
        *,
        screen: ThresholdTest | None = None,
        private: Path | None = None,
    ) -> None:
        self.teachers, self.codec, self.mechanism, self.ledger, self.screen = teachers, codec, mechanism, ledger, screen
        self._private = private
        if private is not None:
            private.mkdir(parents=True, exist_ok=True)

    def answer(self, inputs: npt.ArrayLike, *, baseline: npt.ArrayLike | None = None) -> Array:
        """Give one answer per input; -1 where the screen kept silent. What was answered before is given again, free."""
        asked = _valid_inputs(inputs)
        expected = None if baseline is None else np.asarray(baseline, dtype=np.float64)
        if expected is not None and (self.screen is None or len(expected) != len(asked)):
            raise RecipeError("`baseline` must come with a screen and hold one row per input. Got another instead.")
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
        return self._decode(np.stack([known[question] for question in questions]), asked)

    def affordable(self) -> int:
        """Tell how many more new questions the budget holds even if the screen lets every one pass."""
        steps = [self.mechanism.event()] if self.screen is None else [self.screen.event(), self.mechanism.event()]
        return self.ledger.affordable(*steps)

    def _release(self, inputs: Array, baseline: Array | None) -> Array:
        """Charge, then act; once per step."""
        first: Mechanism = self.mechanism if self.screen is None else self.screen
        self.ledger.charge(first.event(), count=len(inputs))
        ballots = self.teachers.vote(inputs).map(self.codec.encode)
        if self.screen is None:
            self._remember(ballots, np.ones(len(inputs), dtype=bool))
            return self.mechanism.contribute(ballots)
        passed = self.screen.contribute(ballots, baseline=baseline)
        self.ledger.charge(self.mechanism.event(), count=int(passed.sum()))
        self._remember(ballots, passed)
        released = np.full(len(inputs), UNANSWERED, dtype=np.int64)
        if passed.any():
            released[passed] = self.mechanism.contribute(ballots.map(lambda opened: opened[:, passed]))
        return released

    def _decode(self, codes: Array, inputs: Array) -> Array:
        if self.screen is None:
            return self.codec.decode(codes, inputs)
        answers = codes.copy()
        answered = codes != UNANSWERED
        answers[answered] = self.codec.decode(codes[answered], inputs[answered])
        return answers

    def _questions(self, inputs: Array, baseline: Array | None) -> list[str]:
        """Name each question by what is asked and how: the input's bytes, the codec, the mechanism."""
        manner = f"{self.codec!r}|{self.mechanism!r}|{self.screen!r}|{inputs.dtype.str}|{inputs.shape[1:]}".encode()
        rows = np.ascontiguousarray(inputs)
        beside = [b""] * len(rows) if baseline is None else [row.tobytes() for row in np.ascontiguousarray(baseline)]
        return [hashlib.sha256(manner + row.tobytes() + extra).hexdigest() for row, extra in zip(rows, beside, strict=True)]

    # ── the sealed account ────────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self, ballots: Sealed, passed: Array) -> None:
        """Keep vote counts sealed under private/, for the data-dependent account alone."""
        if self._private is None or not isinstance(self.mechanism, (GNMax, LNMax)):
            return
        bound = self.codec.bound
        rows = ballots.map(lambda opened: np.hstack([sum(bound.clip(ballot) for ballot in opened), passed[:, None]]))
        rows.store(self._private / f"counts-{self.ledger.length:06d}.npy")

    def _remembered(self) -> Sealed:
        if self._private is None:
            raise RecipeError("`private` must be a folder for the data-dependent account. Got None instead.")
        files = sorted(self._private.glob("counts-*.npy"))
        if not files:
            raise DataError("`private` must hold the counts of at least one answer. Got none instead.")
        return Sealed.concatenate([Sealed.load(file) for file in files])

    def data_dependent_rdp(self, orders: npt.ArrayLike) -> Sealed:
        """Price what was answered by how much the teachers agreed. The figure is private, and so is any choice made by it."""
        alpha = accounting.valid_orders(orders)
        return self._remembered().map(lambda rows: self._rdp(rows, alpha))

    def _rdp(self, rows: Array, alpha: Array) -> Array:
        counts, passed = rows[:, :-1], rows[:, -1] > 0
        if isinstance(self.mechanism, LNMax):
            moments = consensus.lnmax_log_moments(counts, self.mechanism.gamma, alpha - 1)
            return np.asarray((moments / (alpha - 1)).sum(axis=0) + self._uncovered(len(rows), 0, alpha))
        total = consensus.gnmax_rdp(self._tightened(counts[passed]), self._sigma, alpha).sum(axis=0)
        if self.screen is not None:
            total = total + self._screen_rdp(counts, alpha)
        return np.asarray(total + self._uncovered(int(passed.sum()), len(rows) if self.screen else 0, alpha))

    @property
    def _sigma(self) -> float:
        if not isinstance(self.mechanism, GNMax) or self.mechanism.unit.teachers != 1:
            raise RecipeError("`mechanism` must be GNMax with a unit behind one teacher for this account. Got another instead.")
        return float(self.mechanism.sigma)

    def _tightened(self, counts: Array) -> Array:
        """Take a grid step from the winner's lead: rounding can turn a lead that small into a tie."""
        lowered = counts.copy()
        step = self._sigma * 2.0**-19
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
        """Price at its full, data-independent cost whatever the book holds beyond the remembered counts (a crash between)."""
        total = np.zeros_like(alpha)
        for event, count in self.ledger.totals():
            covered = answers if isinstance(event, NoisyMax) else tests if isinstance(event, Threshold) else count
            total += max(0, count - covered) * accounting.event_rdp(event, alpha)
        return total

    def sanitised_epsilon(self, release: SmoothNumber, *, order: float) -> float:
        """Publish the data-dependent ε through its smooth sensitivity; the release is charged, and its price is part of the figure.

        `order`, β and σ must have been fixed without looking at these votes. The noise has mean zero: the figure is an
        estimate whose error is private too.
        """
        if self._sigma and not all(consensus.gnmax_smooth_conditions(self._sigma, self.codec.bound.dimension, order)):
            raise RecipeError(
                f"`order` must satisfy conditions C5 and C6 of Papernot et al. 2018 with sigma {self._sigma:g}. Got {order!r} instead."
            )
        price = accounting.smooth_release_rdp(release.beta, release.sigma, order)[0]
        if not math.isfinite(price):
            raise RecipeError(f"`order` must be below 1/(2·beta) = {1 / (2 * release.beta):g}. Got {order!r} instead.")
        answered = [pair for pair in self.ledger.totals() if not isinstance(pair[0], SmoothRelease)]
        question = hashlib.sha256(f"sanitised|{release!r}|{order!r}|{answered!r}".encode()).hexdigest()
        known = self.ledger.recall([question])
        if question not in known:
            self.ledger.charge(release.event())
            pair = self._remembered().map(lambda rows: self._number_and_sensitivity(rows, order, release.beta))
            self.ledger.keep([question], np.asarray([release.contribute(pair)]))
            known = self.ledger.recall([question])
        rdp = max(0.0, float(known[question])) + float(price)
        return accounting.rdp_to_epsilon([rdp], [order], self.ledger.budget.delta)[0]

    def _number_and_sensitivity(self, rows: Array, order: float, beta: float) -> Array:
        counts, passed = rows[:, :-1], rows[:, -1] > 0
        teachers = int(counts[0].sum())
        local = consensus.gnmax_local_sensitivity(self._tightened(counts[passed]), self._sigma, order, teachers).sum(axis=0)
        if self.screen is not None and not self.screen.beyond_student:
            local = local + consensus.threshold_local_sensitivity(
                counts.max(axis=1), self.screen.effective_threshold, self.screen.sigma, order, teachers
            ).sum(axis=0)
        number = float(self._rdp(rows, np.asarray([order]))[0])
        return np.asarray([number, consensus.discounted_max(local, beta)])


def _valid_inputs(inputs: npt.ArrayLike) -> Array:
    array = np.asarray(inputs)
    if array.ndim < 1:
        raise DataError(f"`inputs` must be one row per question. Got shape {array.shape} instead.")
    return array
