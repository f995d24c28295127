"""Masks as answers: codes through the door, masks behind it, Dice as the judge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.answers import Answers
from tutelage.asking import Model, Progress, Questions, chosen_questions
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import BudgetExceeded, RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.account import account
from tutelage.tasks.task import Students

Array = npt.NDArray[Any]
_SAMPLES = 8  # public images with their stages that the report can show
_ENCODED = 16  # teachers whose masks are also sent through the codec, for the stages table
_PIXELS = 1 << 28  # of all teachers' masks in memory at once, half a GiB of float16


@final
class Masking:
    """Ask for masks of public images."""

    def __init__(
        self, public: Public, queries: int, how: Aggregation, questions: Questions | None, codec: Codec | Sighted, teachers: int
    ) -> None:
        if how.method not in ("mean", "gnmax"):
            raise RecipeError(f"`method` must be 'mean' or 'gnmax' for masks. Got {how.method!r} instead.")
        if how.vectors is isinstance(codec.bound, OneHot):
            wanted = "give codes for 'mean'" if how.vectors else "cast votes for 'gnmax'"
            raise RecipeError(f"`codec` must {wanted}. Got one bounded by {type(codec.bound).__name__} instead.")
        self.public, self.how, self.codec, self.teachers = public, how, codec, teachers
        self.chosen = chosen_questions(public, queries, questions)

    @property
    def adaptive(self) -> bool:
        """The number of answers is fixed beforehand, and so is the price."""
        return False

    def ask(self, curator: Curator, student: Students, folder: RunFolder, say: Progress) -> Answers:
        """Ask a twentieth at a time; what was answered before is given again, free."""
        total, step = len(self.chosen), max(1, len(self.chosen) // 20)
        codes: list[Array] = []
        asked: list[Array] = []
        for start in range(0, total, step):
            part = self._askable(curator, self.chosen[start : start + step])
            if len(part):
                codes.append(curator.codes(self.public.inputs[part]))
                asked.append(part)
            say("asking the teachers", min(start + step, total), total)
        if not codes:
            raise BudgetExceeded("the budget must hold at least one answer. Got none left after earlier kills instead.")
        chosen, released = np.concatenate(asked), np.concatenate(codes)
        values = curator.decode(released, self.public.inputs[chosen])
        if not isinstance(curator.mechanism, NoisyMean):
            return Answers(chosen, values)
        return Answers(chosen, values, released, curator.mechanism.sigma / curator.mechanism.teachers, curator.codec)

    def _askable(self, curator: Curator, part: Array) -> Array:
        """Keep what was answered before, and as many new questions as fit: a kill may have used up the room of the others."""
        inputs = self.public.inputs
        if curator.known(inputs[part]):
            return part
        new = np.asarray([not curator.known(inputs[[place]]) for place in part])
        return np.asarray(part[~new | (np.cumsum(new) <= curator.affordable())])

    def account(self, curator: Curator, folder: RunFolder) -> float | None:
        """Seal the data-dependent ε of votes for regions; a mean's price does not depend on the data."""
        return account(curator, folder, self.how)

    def lesson(self, answers: Answers) -> Answers:
        """Give the answers as they are."""
        return answers

    def counts(self, answers: Answers) -> dict[str, int]:
        """Count the teachers' masks."""
        return {"released": len(answers), "reinforced": 0}

    def scores(self, model: Model, answers: Answers, test: Public, student: Students) -> dict[str, float]:
        """Score the student, the mean shape as a constant and as a label, and nothing at all."""
        assert test.targets is not None
        scores = {"private student": _dice(model.predict(test.inputs), test.targets)}
        if self.public.targets is not None:
            scores["released masks"] = _dice(answers.values, self.public.targets[answers.chosen])
        constant = np.broadcast_to(answers.mean, test.targets.shape)
        scores["control: mean shape, constant"] = _dice(constant, test.targets)
        began = getattr(model, "beginning", model)  # a latent student began as the mean shape's
        if began is model:
            began = student().fit(self.public.unlabelled(), answers.averaged())
        scores["control: mean shape, as the student's label"] = _dice(began.predict(test.inputs), test.targets)
        scores["control: public only, no answers (ε = 0)"] = _dice(np.zeros(test.targets.shape), test.targets)
        return scores

    def controls(self, teachers: Any, private: Private, answers: Any, test: Public, student: Students, folder: RunFolder) -> None:
        """Score the stages that only the owner of the data may see (names: runs.STAGES, in order)."""
        assert test.targets is not None
        everything = Public.of(private.inputs, source="private, for the control alone")
        unprotected = student().fit(everything, Answers.exact(private.targets))
        own = np.asarray([_dice(unprotected.predict(test.inputs), test.targets)])
        parts = [teachers.vote(test.inputs[part]).map(self._stages(test[part])) for part in _parts(test, self.teachers)]
        stages = Sealed.concatenate(parts)  # (records, 3)
        stages.map(lambda rows: np.concatenate([own, rows.mean(axis=0)])).store(folder.stages)
        self._picture(teachers, answers, folder)

    def _stages(self, test: Public) -> Any:
        """Score every teacher, some of them behind the codec, and their mean: (records, 3)."""
        codec = self._seeing(test.inputs)
        truth = np.asarray(test.targets)

        def figures(masks: Array) -> Array:
            if masks.ndim == 2:
                return self._chosen(codec, masks, test)
            alone = np.mean([dice(mask, truth) for mask in masks], axis=0)
            few = masks[:: max(1, len(masks) // _ENCODED)][:_ENCODED]
            coded = [dice(codec.decode(_as_released(code), test.inputs), truth) for code in codec.encode(few)]
            together = dice(np.mean(masks, axis=0, dtype=np.float32), truth)
            return np.stack([alone, np.mean(coded, axis=0), together], axis=1)

        return figures

    def _chosen(self, codec: Codec, votes: Array, test: Public) -> Array:
        """Score teachers who chose a region by its number: each of the few choices is painted once."""
        dimension, rows = codec.bound.dimension, np.arange(len(test))
        painted = [codec.decode(np.full(len(test), choice), test.inputs) for choice in range(dimension)]
        scores = np.stack([dice(masks, np.asarray(test.targets)) for masks in painted], axis=1)  # (records, choices)
        counts = codec.encode(votes).sum(axis=0)  # (records, choices)
        alone = (scores * counts).sum(axis=1) / len(votes)
        most = np.where(counts[:, :-1].max(axis=1) > len(votes) / 2, counts[:, :-1].argmax(axis=1), dimension - 1)
        return np.stack([alone, alone, scores[rows, most]], axis=1)  # behind its ballot a choice is the same

    def _seeing(self, images: Array) -> Codec:
        return self.codec.seeing(images) if isinstance(self.codec, Sighted) else self.codec

    def publish(self, folder: RunFolder, model: Model, answers: Answers, *, expose: bool) -> None:
        """Write the decoded answers, and some images with what became of them."""
        np.savez_compressed(folder.answers, chosen=answers.chosen, masks=np.clip(answers.values, 0, 1).astype(np.float16))
        shown = _shown(answers)
        images = self.public.inputs[answers.chosen[shown]]
        beside = {} if self.public.targets is None else {"truth": self.public.targets[answers.chosen[shown]]}
        np.savez_compressed(
            folder.samples,
            inputs=images,
            answers=answers.values[shown].astype(np.float16),
            mean=answers.mean.astype(np.float16),
            student=np.asarray(model.predict(images)),
            **beside,
        )
        folder.shown_stages.unlink(missing_ok=True)  # an earlier life may have been a benchmark
        if expose and folder.pictures.exists():
            shutil.copyfile(folder.pictures, folder.shown_stages)

    def _picture(self, teachers: Any, answers: Answers, folder: RunFolder) -> None:
        """Keep one teacher's mask, the same behind the codec, and the ensemble's, of the images that the report shows."""
        images = self.public.inputs[answers.chosen[_shown(answers)]]
        codec = self._seeing(images)

        def stages(masks: Array) -> Array:
            if masks.ndim == 2:  # numbers of regions
                masks = np.stack([codec.decode(_as_released(ballots), images) for ballots in codec.encode(masks)])
            behind = codec.decode(_as_released(codec.encode(masks[:1])[0]), images)
            return np.stack([masks[0], behind, masks.mean(axis=0, dtype=np.float32)]).astype(np.float16)

        teachers.vote(images).map(stages).store(folder.pictures)


def _as_released(ballots: Array) -> Array:
    """Give one teacher's ballots the form of a release: a one-hot vote is let out as its number."""
    return ballots.argmax(axis=-1) if ballots.dtype == bool else ballots


def _shown(answers: Answers) -> Array:
    """Choose the answers to show: those with the most in them."""
    sizes = answers.values.reshape(len(answers), -1).sum(axis=1, dtype=np.float64)  # bytes would turn round at the minus
    return np.sort(np.argsort(-sizes, kind="stable")[:_SAMPLES])


def _parts(test: Public, teachers: int) -> Iterator[slice]:
    """Divide the test images so that all teachers' masks of a part fit in memory."""
    assert test.targets is not None
    step = max(1, _PIXELS // (teachers * int(np.prod(test.targets.shape[1:]))))
    for start in range(0, len(test), step):
        yield slice(start, min(start + step, len(test)))


def _dice(predicted: Array, truth: Array) -> float:
    return float(dice(predicted, truth).mean())
