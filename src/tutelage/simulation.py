"""Votes and students that may be looked at: simulated, or met on public data. What is chosen on them costs nothing."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special

from tutelage.privacy import accounting
from tutelage.privacy.errors import DataError, RecipeError, Unsealed

Array = npt.NDArray[Any]

# Of students that learned from 150 answers of public MNIST teachers (benchmarks/student.py), asked at random. Of questions that
# they are least sure of, both are less: 0.1 to 0.4, and 0.04.
ALIKE = 0.7  # correlation of ranks in what they and their teachers find easy: 0.4 to 0.6, and a little more to be careful
SPREAD = 0.3  # variance of their largest share, of the largest that there could be: 0.28 to 0.31 for the calibrated ones


@final
@dataclass(frozen=True, eq=False)
class PublicVotes:
    """Hold vote counts that are public or simulated, what would have been right, and what a student expects, if there is one.

    Nothing here can tell where counts came from. Counts of private teachers' votes are private: a noise or a threshold
    chosen on them is a release that no book mentions.
    """

    counts: Array  # (questions, classes)
    truth: Array  # (questions,)
    source: str = "memory"
    student: Array | None = None  # (questions, classes) shares of the teachers that it expects for each class

    def __post_init__(self) -> None:
        counts, truth = np.asarray(self.counts, dtype=np.float64), np.asarray(self.truth)
        if counts.ndim != 2 or not len(counts) or counts.shape[1] < 2 or not (np.isfinite(counts) & (counts >= 0)).all():
            raise DataError(f"`counts` must be votes ≥ 0 of shape (questions, classes ≥ 2). Got {counts.shape} instead.")
        if len(np.unique(counts.sum(axis=1))) != 1 or not counts[0].any():
            raise DataError("`counts` must have the same number of teachers in every row. Got different sums instead.")
        whole = truth.shape == (len(counts),) and np.issubdtype(truth.dtype, np.integer)
        if not whole or truth.min() < 0 or truth.max() >= counts.shape[1]:
            raise DataError(f"`truth` must be one class below {counts.shape[1]} per question. Got {truth.shape} instead.")
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "truth", truth.astype(np.int64))
        if self.student is not None:
            object.__setattr__(self, "student", _shares(self.student, counts.shape))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def teachers(self) -> int:
        """Count the teachers."""
        return round(float(self.counts[0].sum()))

    @property
    def classes(self) -> int:
        """Count the classes."""
        return int(self.counts.shape[1])

    @property
    def accuracy(self) -> float:
        """How often one teacher is right."""
        return float(self.counts[np.arange(len(self)), self.truth].mean() / self.teachers)

    @property
    def agreement(self) -> float:
        """How often two different teachers say the same."""
        pairs = self.teachers * max(1, self.teachers - 1)
        return float((self.counts * (self.counts - 1)).sum(axis=1).mean() / pairs)

    @property
    def plurality(self) -> float:
        """How often the class with the most votes is right."""
        return float(np.mean(self.counts.argmax(axis=1) == self.truth))

    def first(self, rows: int) -> PublicVotes:
        """Give the first questions alone."""
        student = None if self.student is None else self.student[:rows]
        return replace(self, counts=self.counts[:rows], truth=self.truth[:rows], student=student)


def _shares(student: Any, shape: tuple[int, ...]) -> Array:
    """Refuse what no student expects: a label is no share, and neither is a logit."""
    shares = np.asarray(student)
    if (
        shares.shape != shape
        or shares.dtype.kind not in "biuf"
        or not ((shares >= 0) & (shares <= 1)).all()
        or np.abs(shares.sum(axis=1) - 1).max() > 1e-3
    ):
        raise DataError(
            f"`student` must hold shares in [0, 1] of shape {shape}, 1 in every row. Got others of {shares.shape} instead."
        )
    return shares.astype(np.float64)


def simulate(
    classes: int,
    teachers: int,
    accuracy: float,
    *,
    agreement: float | None = None,
    rival: float = 0.4,
    queries: int = 1000,
    seed: int = 0,
) -> PublicVotes:
    """Draw the votes of teachers that are right with a given frequency.

    Every question has a difficulty of its own: teachers are right about it independently with a chance p drawn from a Beta
    distribution whose mean is `accuracy`. One wrong class, another for every question, takes the share `rival` of the wrong
    votes, and the other classes take the rest evenly. The Beta's width is what makes teachers alike: it is set so that two
    teachers say the same with frequency `agreement`, or, without one, to an eighth of the largest variance there is.
    """
    for name, value, least in (("classes", classes, 2), ("teachers", teachers, 1), ("queries", queries, 1)):
        if not (isinstance(value, int) and value >= least):
            raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
    accounting.probability(accuracy=accuracy)
    if not 0 <= rival <= 1:
        raise RecipeError(f"`rival` must be in [0, 1]. Got {rival!r} instead.")
    wrong = np.asarray([1.0] if classes == 2 else [rival, *[(1 - rival) / (classes - 2)] * (classes - 2)])  # (classes − 1,)
    size = _concentration(accuracy, agreement, float((wrong**2).sum()))
    draw = np.random.default_rng(seed)
    right = draw.beta(accuracy * size, (1 - accuracy) * size, queries)
    shares = np.hstack([right[:, None], (1 - right)[:, None] * wrong])  # (queries, classes): truth, rival, others
    counts = draw.multinomial(teachers, shares)
    places = draw.permuted(np.tile(np.arange(classes), (queries, 1)), axis=1)
    named = np.zeros_like(counts)
    np.put_along_axis(named, places, counts, axis=1)
    how = "the default agreement" if agreement is None else f"agreement {agreement:g}"
    return PublicVotes(named, places[:, 0], f"simulated: accuracy {accuracy:g}, {how}, seed {seed}")


def with_student(votes: PublicVotes, accuracy: float, *, alike: float = ALIKE, seed: int = 0) -> PublicVotes:
    """Draw what a student expects that guesses right with a given frequency on these questions.

    It is calibrated: of the guesses to which it gives the share c, the part c is right. The largest share is drawn from a Beta
    distribution between 1/classes and 1 whose mean is `accuracy`; the rest is spread evenly over the other classes. It finds hard
    what the teachers find hard: the more of them are right about a question, the larger the share that it gives to the truth,
    rank by rank, with the correlation `alike` of a Gaussian copula (1: the same order; 0: nothing in common). A wrong guess is
    that of one of the teachers who are wrong, drawn at random.
    """
    least = 1 / votes.classes
    if not (isinstance(accuracy, (int, float)) and least < accuracy < 1):
        raise RecipeError(
            f"`student_accuracy` must be above 1/{votes.classes}, as of chance, and below 1. Got {accuracy!r} instead."
        )
    if not 0 <= alike <= 1:
        raise RecipeError(f"`alike` must be in [0, 1]. Got {alike!r} instead.")
    draw, size, rows = np.random.default_rng([seed, 1]), 1 / SPREAD - 1, np.arange(len(votes))
    mean = (accuracy - least) / (1 - least)
    sure = least + (1 - least) * draw.beta(mean * size, (1 - mean) * size, len(votes))
    right = draw.random(len(votes)) < sure
    rest = (1 - sure) / (votes.classes - 1)
    # Order what it would say by its share for the truth, and hand it to the questions in the order of their ease.
    said = np.argsort(np.where(right, sure, rest))
    own = votes.counts[rows, votes.truth]
    ease = np.empty(len(votes))
    ease[np.lexsort((draw.random(len(votes)), own))] = special.ndtri((rows + 0.5) / len(votes))
    place = np.argsort(np.argsort(alike * ease + math.sqrt(1 - alike**2) * draw.normal(size=len(votes))))
    sure, right, rest = sure[said][place], right[said][place], rest[said][place]
    wrong = votes.counts.copy()
    wrong[rows, votes.truth] = 0
    wrong[~wrong.any(axis=1)] = 1.0  # where nobody errs, it errs as it likes
    wrong[rows, votes.truth] = 0
    among = wrong.cumsum(axis=1)
    named = (among > draw.random((len(votes), 1)) * among[:, -1:]).argmax(axis=1)
    student = np.repeat(rest[:, None], votes.classes, axis=1)
    student[rows, np.where(right, votes.truth, named)] = sure
    return replace(votes, student=student, source=f"{votes.source}; a simulated student, accuracy {accuracy:g}")


def _concentration(accuracy: float, agreement: float | None, same_error: float) -> float:
    """Give the Beta's size a + b: two teachers agree with frequency E p² + c·E(1 − p)², c for two errors that are the same."""
    most = accuracy * (1 - accuracy)  # variance of p when every question is either known to all or to nobody
    if agreement is None:
        variance = most / 8  # of 250 teachers' votes that are public: a tenth (MNIST) to a third (SVHN) of the largest
    else:
        variance = (agreement - accuracy**2 - same_error * (1 - accuracy) ** 2) / (1 + same_error)
        least, largest = (accuracy**2 + v + same_error * ((1 - accuracy) ** 2 + v) for v in (0.0, most))
        if not 0 < variance < most:
            raise RecipeError(
                f"`agreement` must be between {least:.4g} and {largest:.4g} at this accuracy. Got {agreement!r} instead."
            )
    return most / variance - 1


def read(path: Path) -> PublicVotes:
    """Read public votes: .npz with `counts`, `truth` and maybe `student`, or .npy with counts, its plurality taken for right."""
    if "private" in path.resolve().parts:
        raise Unsealed("`votes` must be public or simulated, and lie outside folders named 'private'. Got one inside instead.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            counts = np.atleast_2d(loaded)
            return PublicVotes(counts, counts.argmax(axis=1), f"{path.name}, its plurality taken to be right")
        with loaded:
            return PublicVotes(loaded["counts"], loaded["truth"], path.name, loaded.get("student"))
    except OSError as error:
        raise RecipeError(
            f"`votes` must be a readable .npy or .npz file. Got «{error.strerror or 'another format'}» for {path.name} instead."
        ) from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise RecipeError(
            f"`votes` must be a .npz with `counts` and `truth`, or a .npy with counts. Got other content in {path.name} instead."
        ) from None


def save(votes: PublicVotes, path: Path) -> Path:
    """Write counts, truth and the student, if there is one, where `read` finds them."""
    target = path.with_suffix(".npz")
    student = {} if votes.student is None else {"student": votes.student}
    np.savez_compressed(target, counts=votes.counts.astype(np.int64), truth=votes.truth, **student)
    return target


def right_chance(votes: PublicVotes, sigma: float) -> Array:
    """Give the chance (questions,) that the largest count after N(0, sigma²) on each is the right one.

    The chance that class j wins is the mean over z ~ N(0, 1) of Π Φ((count_j − count_i)/sigma + z), i ≠ j: a quadrature.
    """
    accounting.positive(sigma=sigma)
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    own = votes.counts[np.arange(len(votes)), votes.truth]
    leads = (own[:, None] - votes.counts) / sigma  # (questions, classes)
    beaten = special.ndtr(leads[:, :, None] + nodes)  # (questions, classes, nodes)
    beaten[np.arange(len(votes)), votes.truth] = 1.0  # a class does not have to beat itself
    return np.asarray(beaten.prod(axis=1) @ (weights / math.sqrt(2 * math.pi)))
