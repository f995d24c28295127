"""Attack the division of units among teachers through releases: the old rule is refuted, the new one is not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tests.statistical.audit import Audit, audit

from tutelage.data.dataset import Private
from tutelage.data.digits import digits
from tutelage.privacy.accounting import cost
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.mechanisms import GNMax, NoisyMean
from tutelage.privacy.sealed import _KEY, Sealed
from tutelage.privacy.units import Shards
from tutelage.teachers.estimators import EstimatorTeachers

PATIENTS, TEACHERS, QUERIES, CLASSES, DELTA = 500, 100, 100, 10, 1e-5
EPSILON, SIGMA = 8.0, 8.489  # what is claimed, and the noise that makes it true where one teacher changes
SIZE = 1600  # releases of all answers, drawn for each of two data sets
Rule = Callable[[np.ndarray], Shards]


def hashed(units: np.ndarray) -> Shards:
    return Shards.hashed(units, TEACHERS, key="0")


def by_first_appearance(units: np.ndarray) -> Shards:
    """Divide as `Shards.split` did: evenly at random, by the order in which units first appear."""
    distinct, first, which = np.unique(units, return_index=True, return_inverse=True)
    keys = [hashlib.blake2b(f"0:{place}".encode(), digest_size=16).digest() for place in range(len(distinct))]
    home = np.empty(len(distinct), dtype=np.int64)
    home[sorted(range(len(distinct)), key=keys.__getitem__)] = np.arange(len(distinct)) % TEACHERS
    places = np.empty(len(distinct), dtype=np.int64)
    places[np.argsort(first)] = np.arange(len(distinct))
    where = home[places[which]]
    return Shards.of([np.flatnonzero(where == k) for k in range(TEACHERS)], units)


RULES: dict[str, Rule] = {"hash of the id": hashed, "first appearance": by_first_appearance}


@cache
def ballots(rule: str, dropped: bool) -> np.ndarray:
    """Give all teachers' votes (teachers, queries, classes), where the first patient has lost one of two records, or not."""
    private, pool, _ = digits()
    units = np.array([f"patient {row % PATIENTS}" for row in range(len(private))])  # everybody comes once, then everybody again
    kept = np.arange(dropped, len(private))
    mine = Private.of(private.inputs[kept], private.targets[kept], units=units[kept], unit="patient")
    teachers = EstimatorTeachers("neighbours").fit(mine, RULES[rule](units[kept]))
    votes = teachers.vote(pool.inputs[:QUERIES])._open(_KEY)
    return np.asarray(votes[..., None] == np.arange(CLASSES))


def released(mechanism: GNMax | NoisyMean, given: np.ndarray) -> np.ndarray:
    """Answer all questions many times over with the mechanism itself: (SIZE, queries, classes)."""
    step = 100  # at once
    parts = [mechanism.contribute(Sealed(np.tile(given, (1, step, 1)))) for _ in range(SIZE // step)]
    answers = np.concatenate(parts)
    return (np.eye(CLASSES)[answers] if answers.ndim == 1 else answers).reshape(SIZE, QUERIES, CLASSES)


def attacked(mechanism: GNMax | NoisyMean, rule: str) -> tuple[Audit, float]:
    """Tell two data sets apart by their releases: how much more an answer is like the counts of one than those of the other.

    Gives what the audit finds, and the share of releases that are taken for the right one.
    """
    claim = cost([(mechanism.event(), QUERIES)], DELTA)
    assert claim.epsilon == pytest.approx(EPSILON, abs=0.01)
    sides = [ballots(rule, dropped) for dropped in (False, True)]
    apart = sides[0].sum(axis=0) - sides[1].sum(axis=0).astype(np.float64)
    scores = [(released(mechanism, side) * apart).sum(axis=(1, 2)) for side in sides]
    middle = np.median(scores)
    right = 0.5 + ((scores[0] > middle).mean() - (scores[1] > middle).mean()) / 2
    return audit(*scores, claim), float(right)


MECHANISMS = [GNMax(CLASSES, SIGMA), NoisyMean(OneHot(CLASSES), SIGMA, TEACHERS)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["votes", "means"])
def test_a_division_by_first_appearance_is_refuted(
    mechanism: GNMax | NoisyMean, record_property: Callable[[str, object], None]
) -> None:
    """The patient keeps a record, so that nobody's place is empty; it is only met later. Every other unit moves on by one."""
    changed = (ballots("first appearance", False) != ballots("first appearance", True)).any(axis=(1, 2))
    assert changed.sum() > 0.9 * TEACHERS
    found, right = attacked(mechanism, "first appearance")
    record_property("mu", (found.mu, found.claim.mu))
    record_property("right", right)
    assert found.refuted
    assert right > (0.85 if isinstance(mechanism, GNMax) else 0.999)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["votes", "means"])
def test_a_division_by_a_hash_of_the_id_is_not_refuted(
    mechanism: GNMax | NoisyMean, record_property: Callable[[str, object], None]
) -> None:
    changed = (ballots("hash of the id", False) != ballots("hash of the id", True)).any(axis=(1, 2))
    assert changed.sum() == 1
    found, right = attacked(mechanism, "hash of the id")
    record_property("mu", (found.mu, found.claim.mu))
    record_property("right", right)
    assert not found.refuted
    assert 0.4 < right < 0.65
