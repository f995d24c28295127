"""What a plan is worth on public or simulated votes: the labels to expect from it, and how many of them are news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special

from tutelage.planning import Aggregation
from tutelage.privacy.errors import RecipeError
from tutelage.simulation import PublicVotes

Array = npt.NDArray[Any]

_STEPS = 2  # per vote: questions whose tests differ by less pass with the same chance


@final
@dataclass(frozen=True, eq=False)
class Situation:
    """Hold, for every question, what a test compares with its threshold and what a label would tell somebody."""

    beyond: Array  # (questions,) the largest count, or what is largest in it beyond a student's expectation
    known: Array  # (questions,) the student guesses right: a right answer is no news
    own: Array  # (questions,) the student is sure: its own label is taken where teachers have nothing to add

    def passing(self, threshold: float, noise: float) -> Array:
        """Give the chance (questions,) to pass a test."""
        return np.asarray(special.ndtr((self.beyond - threshold) / noise))


def situations(votes: PublicVotes, how: Aggregation) -> list[Situation]:
    """Give the situations that questions are asked in: one, or that of the first round and that of all later ones.

    In the first round of the interactive method nobody knows anything, and every class is expected alike. In all later ones the
    student is the one that the votes come with: it is not simulated how answers make it better.
    """
    nothing = np.zeros(len(votes), dtype=bool)
    tops = votes.counts.max(axis=1)
    if not how.interactive:
        return [Situation(tops, nothing, nothing)]
    first = Situation(tops - votes.teachers / votes.classes, nothing, nothing)
    if how.turns == 1:
        return [first]
    if votes.student is None:
        raise RecipeError("`student` must come with the votes for 'interactive-gnmax' in more than one round. Got none instead.")
    beyond = (votes.counts - votes.teachers * votes.student).max(axis=1)
    return [first, Situation(beyond, votes.student.argmax(axis=1) == votes.truth, votes.student.max(axis=1) >= how.sure)]


def parts(how: Aggregation, queries: Any) -> Array:
    """Give which part of so many questions (plans,) is asked in each situation: (situations, plans)."""
    count = np.atleast_1d(np.asarray(queries, dtype=np.float64))
    if not how.interactive or how.turns == 1:
        return np.ones((1, len(count)))
    first = np.ceil(count / np.minimum(how.turns, count)) / count  # rounds are of one size, and the first ones take what is over
    return np.stack([first, 1 - first])


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Count the labels to expect, plan by plan."""

    right: Array  # (plans,) answers
    wrong: Array  # answers
    known: Array  # of the right answers: those that the student had right already
    own: Array  # labels of the student itself
    mistaken: Array  # of its own labels: those that are wrong

    @property
    def answers(self) -> Array:
        """Count the answers."""
        return np.asarray(self.right + self.wrong)

    def worth(self, penalty: float) -> Array:
        """Count the right answers that are news, less the penalty for every wrong label, whoever gave it."""
        return np.asarray(self.right - self.known - penalty * (self.wrong + self.mistaken))

    def held(self, part: Array) -> Labels:
        """Keep a part of all, where the budget ends before the questions do."""
        return Labels(self.right * part, self.wrong * part, self.known * part, self.own * part, self.mistaken * part)


@final
class Worth:
    """Tell which labels plans of one method give, at any noise, from the chances to be right at some."""

    def __init__(self, votes: PublicVotes, how: Aggregation, sigmas: Sequence[float] | Array, right: Array) -> None:
        self.how, self.votes = how, votes
        self._log_sigmas = np.log(np.asarray(sigmas, dtype=np.float64))
        self._groups = [_Group(one, right) for one in situations(votes, how)]  # `right` is (sigmas, questions)

    def passed(self, count: Array, threshold: Array, noise: Array) -> Array:
        """Give the share of questions that pass: (plans,)."""
        chances = [self._passing(group, threshold, noise) @ group.weights for group in self._groups]
        return np.asarray((parts(self.how, count) * chances).sum(axis=0))

    def labels(self, count: Array, sigma: Array, threshold: Array, noise: Array) -> Labels:
        """Count the labels to expect if every question is asked."""
        at = np.interp(np.log(sigma), self._log_sigmas, np.arange(len(self._log_sigmas)))
        below = at.astype(np.int64)
        above, near = np.minimum(below + 1, len(self._log_sigmas) - 1), (at - below)[:, None]
        found = np.zeros((5, len(count)))  # answers, right, known, own, mistaken
        for group, part in zip(self._groups, parts(self.how, count), strict=True):
            passing = self._passing(group, threshold, noise)
            right, known = ((1 - near) * table[below] + near * table[above] for table in (group.right, group.known))
            silent = 1 - passing
            each = [passing @ group.weights, (passing * right).sum(axis=1), (passing * known).sum(axis=1)]
            found += part * count * np.stack([*each, silent @ group.own, silent @ group.mistaken])
        answers, right, known, own, mistaken = found
        return Labels(right, np.maximum(answers - right, 0.0), known, own, mistaken)

    def _passing(self, group: _Group, threshold: Array, noise: Array) -> Array:
        if not self.how.adaptive:
            return np.ones((len(threshold), len(group.beyond)))
        return np.asarray(special.ndtr((group.beyond - threshold[:, None] * self.votes.teachers) / noise[:, None]))


@final
class _Group:
    """Put questions of a situation together that pass a test with nearly the same chance; every array is shares of all."""

    def __init__(self, one: Situation, right: Array) -> None:
        _, place = np.unique(np.rint(_STEPS * one.beyond), return_inverse=True)

        def share(of: Array) -> Array:
            return np.bincount(place, weights=of) / len(place)

        self.weights = share(np.ones(len(place)))
        self.beyond = share(one.beyond) / self.weights  # (groups,)
        self.right = np.stack([share(chance) for chance in right])  # (sigmas, groups)
        self.known = np.stack([share(chance * one.known) for chance in right])
        self.own, self.mistaken = share(one.own), share(one.own & ~one.known)
