"""The stages table: Dice on the way from a teacher's mask to a student's, and of the controls beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tutelage.metrics import BESIDE

EMPTY = "control: public only, no answers (ε = 0)"
PUBLIC = "control: public masks alone (ε = 0)"
RELEASED = "released masks"
STUDENT = "private student"
#: Names in scores.json, what the page calls them, what they are, and whose side they are on.
_WAY = (
    ("stage: teacher", "teacher", "one network, one shard: the mean over all teachers", "private"),
    ("stage: encoded teacher", "encoded teacher", "the same mask behind its own ballot", "private"),
    ("stage: ensemble, no noise", "ensemble", "all teachers together, without noise", "private"),
    (RELEASED, "released answers, on the questions", "what was released, on the images that were asked about", "released"),
    (STUDENT, "student", "what may be published", "student"),
)
_CONTROLS = (
    ("control: non-private, all private masks", "non-private", "the same student, told every private mask", "private"),
    ("control: mean shape, as the student's label", "mean shape as label", "a student told one shape for all images", "control"),
    ("control: mean shape, constant", "mean shape", "the mean of all answers, whatever the image", "control"),
    (PUBLIC, "public masks", "a student told the public masks, no answers: ε = 0", "control"),
    (EMPTY, "empty mask", "public only, ε = 0: says nothing everywhere", "control"),
)


@final
@dataclass(frozen=True)
class Row:
    """Hold one line of the table."""

    name: str
    what: str
    side: str
    score: float


def is_masks(scores: dict[str, float]) -> bool:
    """Tell whether these are scores of masks."""
    return "control: mean shape, constant" in scores


def rows(scores: dict[str, float]) -> tuple[list[Row], list[Row]]:
    """Give the way from teacher to student, and the controls, as far as this page may show them."""
    way, controls = (
        [Row(name, what + beside(scores, key), side, scores[key]) for key, name, what, side in table if key in scores]
        for table in (_WAY, _CONTROLS)
    )
    return way, controls


def beside(scores: dict[str, float], key: str) -> str:
    """Give the other measures of a row, which are on public data as its Dice is; nothing where there are none."""
    found = [f"{measure} {scores[f'{measure}: {key}']:.3g}" for measure in BESIDE if f"{measure}: {key}" in scores]
    return f" · {', '.join(found)}" if found else ""


def verdict(scores: dict[str, float]) -> str:
    """Say which controls, at no price or at the same, do as well as the student."""
    student = scores[STUDENT]
    compared = [(name, scores[key]) for key, name, _, side in _CONTROLS if side == "control" and key in scores]
    better = [f"{name} ({score:.3f})" for name, score in compared if score >= student]
    return f"The private student ({student:.3f}) does not beat its controls: {', '.join(better)}." if better else ""


def scored_note(scores: dict[str, float], *, votes: bool) -> str:
    """Say on which images each row is scored, and that answers are not the ensemble with noise where they were voted for."""
    said = "Mean Dice on held-out public test images."
    if RELEASED in scores:
        said = (
            "Mean Dice on held-out public test images, except for the released answers: they are scored on the public images "
            "that were asked about, which are others."
        )
    if RELEASED in scores and votes and "stage: ensemble, no noise" in scores:
        said += (
            " An answer is the region that won a vote with noise, and the ensemble the mean of all teachers' masks (of teachers "
            "who choose a region, the one that more than half chose): what lies between the two rows is not the noise alone."
        )
    if any(beside(scores, key) for key in scores):
        said += " Dice and surface Dice are better the higher, cross-entropy and squared error the lower."
    return said


def empty_note(scores: dict[str, float]) -> str:
    """Say what an empty mask is worth, which is the share of images without the object."""
    if EMPTY not in scores:
        return ""
    share = scores[EMPTY]
    if not share:
        return "Every test image holds the object: an empty mask scores 0."
    return f"Two empty masks count as 1: {share:.0%} of the test images hold nothing to find, and saying nothing scores that."
