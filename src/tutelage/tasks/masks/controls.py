"""Controls of masks that need private data: all private masks, and every stage between one teacher and the ensemble."""

from __future__ import annotations

import shutil
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.answers import Answers
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice
from tutelage.privacy.curator import Codec, Sighted
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.masks.task import drawn, mean_of, shown_answers, slices
from tutelage.tasks.task import VOTING, Learning, everything

Array = npt.NDArray[Any]
_ENCODED = 16  # teachers whose masks are also sent through the codec, for the stages table
_PIXELS = 1 << 28  # of all teachers' masks in memory at once, half a GiB of float16


@final
class Controls:
    """Score the stages that only the owner of the data may see (names: reading.READING.sealed, in order)."""

    def score(self, task: Any, private: Private, teachers: Any, answers: Answers, test: Public, learning: Learning) -> None:
        """Leave the figures, and pictures of the stages, sealed under `private/`."""
        assert test.targets is not None
        codec, shards, folder = task.codec, task.plan.shards, learning.folder
        unprotected = learning.trained(learning.another().fit)(everything(task, private), Answers.exact(private.targets))
        own = np.asarray([mean_of([dice(masks, truth) for masks, _, truth in drawn(unprotected, test, shares=False)])])
        parts = []
        for part in slices(len(test), shards * int(np.prod(test.targets.shape[1:])), values=_PIXELS):
            parts.append(teachers.vote(test.inputs[part]).map(_stages(codec, test[part])))
            learning.say(VOTING, part.stop, len(test))
        stages = Sealed.concatenate(parts)  # (records, 3)
        stages.map(lambda rows: np.concatenate([own, rows.mean(axis=0)])).store(folder.sealed("stages"))
        _picture(task, teachers, answers, folder)

    def expose(self, folder: RunFolder) -> None:
        """Show the pictures of teachers and ensemble."""
        if folder.pictures.exists():
            shutil.copyfile(folder.pictures, folder.shown_stages)


def _stages(given: Any, test: Public) -> Any:
    """Score every teacher, some of them behind the codec, and their mean: (records, 3)."""
    codec = _for_inputs(given, test.inputs)
    truth = np.asarray(test.targets)

    def figures(masks: Array) -> Array:
        if masks.ndim == 2:
            return _chosen(codec, masks, test)
        alone = np.mean([dice(mask, truth) for mask in masks], axis=0)
        few = masks[:: max(1, len(masks) // _ENCODED)][:_ENCODED]
        alike = (_as_released(codec.encode(mask[None])[0]) for mask in few)  # one by one: codes may be as large as masks
        coded = [dice(codec.decode(code, test.inputs), truth) for code in alike]
        together = dice(np.asarray(np.mean(masks, axis=0, dtype=np.float32)), truth)
        return np.stack([alone, np.mean(coded, axis=0), together], axis=1)

    return figures


def _chosen(codec: Codec, votes: Array, test: Public) -> Array:
    """Score teachers who chose a region by its number: each of the few choices is painted once."""
    dimension, rows = codec.bound.dimension, np.arange(len(test))
    painted = [codec.decode(np.full(len(test), choice), test.inputs) for choice in range(dimension)]
    scores = np.stack([dice(masks, np.asarray(test.targets)) for masks in painted], axis=1)  # (records, choices)
    counts = codec.encode(votes).sum(axis=0)  # (records, choices)
    alone = (scores * counts).sum(axis=1) / len(votes)
    most = np.where(counts[:, :-1].max(axis=1) > len(votes) / 2, counts[:, :-1].argmax(axis=1), dimension - 1)
    return np.stack([alone, alone, scores[rows, most]], axis=1)  # behind its ballot a choice is the same


def _for_inputs(codec: Any, images: Array) -> Codec:
    return codec.seeing(images) if isinstance(codec, Sighted) else codec


def _picture(task: Any, teachers: Any, answers: Answers, folder: RunFolder) -> None:
    """Keep one teacher's mask, the same behind the codec, and the ensemble's, of the images that the report shows."""
    places = answers.chosen[shown_answers(answers)]

    def stages_of(images: Array) -> Sealed:
        codec = _for_inputs(task.codec, images)

        def stages(masks: Array) -> Array:
            if masks.ndim == 2:  # numbers of regions
                masks = np.stack([codec.decode(_as_released(ballots), images) for ballots in codec.encode(masks)])
            behind = codec.decode(_as_released(codec.encode(masks[:1])[0]), images)
            return np.stack([masks[0], behind, masks.mean(axis=0, dtype=np.float32)], axis=1).astype(np.float16)

        votes: Sealed = teachers.vote(images)
        return votes.map(stages)  # (images, 3, *shape)

    width = task.plan.shards * int(np.prod(answers.values.shape[1:]))
    parts = [stages_of(task.public.inputs[places[part]]) for part in slices(len(places), width, values=_PIXELS)]
    Sealed.concatenate(parts).map(lambda rows: rows.swapaxes(0, 1)).store(folder.pictures)


def _as_released(ballots: Array) -> Array:
    """Give one teacher's ballots the form of a release: a one-hot vote is released as its number."""
    return ballots.argmax(axis=-1) if ballots.dtype == bool else ballots
