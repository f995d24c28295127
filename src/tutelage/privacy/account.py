"""The data-dependent price of votes. It is private: it stays sealed, or leaves through a release that is paid for."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.events import SmoothRelease, to_record
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import GNMax, LNMax, SmoothNumber, ThresholdTest
from tutelage.privacy.queries import described
from tutelage.privacy.sealed import Sealed

Array = npt.NDArray[Any]


@final
class VoteAccount:
    """Keep the vote counts behind answers sealed under `private`, and price the ledger by how much the teachers agreed."""

    def __init__(
        self, mechanism: Any, screen: ThresholdTest | None, ledger: Ledger, private: Path | None, description: str
    ) -> None:
        self.mechanism, self.screen, self.ledger, self.description = mechanism, screen, ledger, description
        self._private = private

    def sealed_epsilon(self) -> Sealed | None:
        """Give the lesser of the data-dependent and the plain ε, sealed. None where there is nothing to price.

        Votes that disagree can make the first one the dearer: what holds for all votes holds for these. Which of the two it
        was depends on the votes, and stays sealed with the figure.
        """
        budget = self.ledger.budget
        voted = isinstance(self.mechanism, (GNMax, LNMax)) and budget.unit.teachers == 1
        if not voted or not any(row.kind == "release" for row in self.ledger.entries()):
            return None
        orders, plain = accounting.ORDERS, self.ledger.spent().epsilon
        return self.data_dependent_rdp(orders).map(
            lambda rdp: min(float(accounting.rdp_to_epsilon(rdp, orders, budget.delta)[0]), plain)
        )

    def sanitised(self, release: SmoothNumber, *, order: float) -> float | None:
        """Publish the data-dependent ε, where there is room for it (a crash may have used it up) and one plan was charged."""
        rows = [row for row in self.ledger.entries() if row.kind in ("charge", "release")]
        if not any(row.kind == "release" for row in rows) or not self.ledger.own():
            return None
        charge, after = rows[-2:]
        kept = after.kind == "release" and charge.body.get("event", {}).get("kind") == "SmoothRelease"
        if not kept and not self.ledger.affordable(release.event()):
            return None
        return self.sanitised_epsilon(release, order=order)

    def remember(self, ballots: Sealed, passed: Array) -> None:
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

    def files(self) -> list[Path]:
        """List the files of counts. There must be one."""
        if self._private is None:
            raise RecipeError("`private` must be a folder for the data-dependent account. Got None instead.")
        files = sorted(self._private.glob(f"{self._manner}-*.npy"))
        if not files:
            raise DataError("`private` must hold the counts of at least one answer. Got none instead.")
        return files

    def _remembered(self) -> Sealed:
        return Sealed.concatenate([Sealed.load(file) for file in self.files()])

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
        pairs = [[to_record(event), count] for event, count in answered]
        asked = json.dumps(["sanitised", self.description, described(release, "release"), float(order).hex(), pairs])
        question = hashlib.sha256(asked.encode()).hexdigest()
        known = self.ledger.recall([question])
        if question not in known:
            self.files()  # refuse before the charge when there is nothing to price
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
