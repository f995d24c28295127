"""How a run about masks is read: the file of masks, and Dice on the way from one teacher's mask to the student's."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from tutelage.metrics import BESIDE
from tutelage.tasks.reading import Reading, Row, Scores, Section
from tutelage.tasks.scores import Score

#: Names in scores.json, what the page calls them, what they are, and whose side they are on.
_WAY = (
    (Score.TEACHER, "teacher", "one network, one shard: the mean over all teachers", "private"),
    (Score.ENCODED_TEACHER, "encoded teacher", "the same mask, encoded and decoded", "private"),
    (Score.ENSEMBLE, "ensemble", "all teachers together, without noise", "private"),
    (
        Score.RELEASED_MASKS,
        "released answers, on the questions",
        "what was released, on the images that were asked about",
        "released",
    ),
    (Score.STUDENT, "student", "what may be published", "student"),
)
_CONTROLS = (
    (Score.ALL_MASKS, "non-private", "the same student, trained on every private mask", "private"),
    (Score.MEAN_SHAPE_LABEL, "mean shape as label", "a student trained on one shape for all images", "control"),
    (Score.MEAN_SHAPE, "mean shape", "the mean of all answers, whatever the image", "control"),
    (Score.PUBLIC_MASKS, "public masks", "a student trained on the public masks, no answers: ε = 0", "control"),
    (Score.PUBLIC_ONLY, "empty mask", "public only, ε = 0: says nothing everywhere", "control"),
)


def rows(scores: Scores) -> tuple[list[Row], list[Row]]:
    """Give the way from teacher to student, and the controls, as far as this page may show them."""
    way, controls = (
        [Row(name, what + beside(scores, key), side, scores[key]) for key, name, what, side in table if key in scores]
        for table in (_WAY, _CONTROLS)
    )
    return way, controls


def beside(scores: Scores, key: str) -> str:
    """Give the other measures of a row, which are on public data as its Dice is; nothing where there are none."""
    found = [f"{measure} {scores[f'{measure}: {key}']:.3g}" for measure in BESIDE if f"{measure}: {key}" in scores]
    return f" · {', '.join(found)}" if found else ""


def verdict(scores: Scores) -> str:
    """Say which controls, at no price or at the same, do as well as the student."""
    student = scores[Score.STUDENT]
    compared = [(name, scores[key]) for key, name, _, side in _CONTROLS if side == "control" and key in scores]
    better = [f"{name} ({score:.3f})" for name, score in compared if score >= student]
    return f"The private student ({student:.3f}) does not beat its controls: {', '.join(better)}." if better else ""


def scored_note(scores: Scores, *, votes: bool) -> str:
    """Say on which images each row is scored, and that answers are not the ensemble with noise where they were voted for."""
    note = "Mean Dice on held-out public test images."
    if Score.RELEASED_MASKS in scores:
        note = (
            "Mean Dice on held-out public test images, except for the released answers: they are scored on the public images "
            "that were asked about, which are others."
        )
    if Score.RELEASED_MASKS in scores and votes and Score.ENSEMBLE in scores:
        note += (
            " An answer is the region that won a vote with noise, and the ensemble the mean of all teachers' masks (of teachers "
            "who choose a region, the one that more than half chose): what lies between the two rows is not the noise alone."
        )
    if any(beside(scores, key) for key in scores):
        note += " Dice and surface Dice are better the higher, cross-entropy and squared error the lower."
    return note


def empty_note(scores: Scores) -> str:
    """Say what an empty mask is worth, which is the share of images without the object."""
    if Score.PUBLIC_ONLY not in scores:
        return ""
    share = scores[Score.PUBLIC_ONLY]
    if not share:
        return "Every test image holds the object: an empty mask scores 0."
    return f"Two empty masks count as 1: {share:.0%} of the test images hold nothing to find, and saying nothing scores that."


@final
@dataclass(frozen=True, kw_only=True)
class Masks(Reading):
    """Read answers.npz."""

    def figure(self, score: float) -> str:
        """Write a Dice."""
        return f"{score:.3f}"

    def count(self, path: Path, released: int) -> tuple[int, int]:
        """Count masks without reading them: their number stands in the array's header, and their data is as long as that says."""
        with zipfile.ZipFile(path) as archive:
            if sorted(archive.namelist()) != ["chosen.npy", "masks.npy"]:
                raise ValueError("not an archive of masks")
            masks, _ = _described(archive, "masks.npy")
            chosen, kind = _described(archive, "chosen.npy")
            if masks[0] != released:
                return masks[0], 0
            if chosen != (released,) or kind not in "iu" or archive.testzip() is not None:
                raise ValueError("one mask per question")
        with np.load(path, allow_pickle=False) as arrays:
            if len(np.unique(arrays["chosen"])) != released or (arrays["chosen"] < 0).any():
                raise ValueError("one mask per question")
        return released, 0

    def section(self, guarantee: Mapping[str, Any], scores: Scores) -> Section:
        """Give the stages and the controls, as far as this page may show them."""
        lead = Reading.section(self, guarantee, scores).lead
        if Score.STUDENT not in scores:
            return Section(lead)
        votes = any(event["kind"] == "NoisyMax" for event in guarantee["events"])
        notes = f"{scored_note(scores, votes=votes)} {empty_note(scores)}"
        way, controls = rows(scores)
        heading = "From a teacher's mask to the student's" if way[0].side == "private" else "What was released, and the student"
        return Section(lead, heading, way, controls, notes, codec_saw_masks=Score.PUBLIC_MASKS in scores)

    def verdict(self, scores: Scores) -> str:
        """Say which controls, at no price or at the same, do as well as the student."""
        return verdict(scores) if Score.STUDENT in scores else ""


def _described(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], str]:
    """Read the shape and the kind of an array out of its header, and refuse one whose data is longer or shorter."""
    with archive.open(name) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another form of header")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject or archive.getinfo(name).file_size != file.tell() + math.prod(shape) * dtype.itemsize:
            raise ValueError("more or less data than the header says")
    return shape, dtype.kind


READING = Masks(
    answers="answers.npz",
    files=("stages.npy",),
    sealed={"stages": (Score.ALL_MASKS, Score.TEACHER, Score.ENCODED_TEACHER, Score.ENSEMBLE)},
    measure="Dice",
    heading="Dice (two empty masks: 1)",
)
