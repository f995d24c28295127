"""Masks as answers: teachers' masks are released as codes, decoded, and scored by Dice."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.answers import Answers
from tutelage.asking import Model, Progress, Questions, checked, chosen_questions
from tutelage.data.dataset import Private, Public
from tutelage.data.mapped import Rows, each, forget, write_npz
from tutelage.metrics import dice, judged
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import BudgetExceeded, RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.rounds import Round, Rounds
from tutelage.runs import RunFolder
from tutelage.tasks.account import account, distinct
from tutelage.tasks.task import VOTING, Students, trained
from tutelage.telling import silent

Array = npt.NDArray[Any]
_SAMPLES = 8  # questions with their stages that the report can show
_ENCODED = 16  # teachers whose masks are also sent through the codec, for the stages table
_PIXELS = 1 << 28  # of all teachers' masks in memory at once, half a GiB of float16
_VALUES = 1 << 24  # numbers of questions or answers in memory at once: large volumes go one by one
PUBLIC_MASKS = "control: public masks alone (ε = 0)"


@final
class Masking:
    """Ask for masks of public images. `truth` says whether true masks of those that are shown may be shown, too."""

    name = "masks"

    def __init__(
        self,
        public: Public,
        queries: int,
        how: Aggregation,
        questions: Questions | None,
        codec: Codec | Sighted,
        teachers: int,
        *,
        truth: bool = True,
        say: Progress = silent,
    ) -> None:
        if how.method not in ("mean", "gnmax"):
            raise RecipeError(f"`method` must be 'mean' or 'gnmax' for masks. Got {how.method!r} instead.")
        if how.vectors is isinstance(codec.bound, OneHot):
            wanted = "give codes for 'mean'" if how.vectors else "cast votes for 'gnmax'"
            raise RecipeError(f"`codec` must {wanted}. Got one bounded by {type(codec.bound).__name__} instead.")
        self.public, self.how, self.codec, self.teachers, self.truth = public, how, codec, teachers, truth
        self.chosen, self.computed = chosen_questions(public, queries, questions, say), questions is not None

    @property
    def asked(self) -> str:
        """Hash the questions."""
        return hashlib.sha256(np.asarray(self.chosen, dtype=np.int64).tobytes()).hexdigest()

    @property
    def adaptive(self) -> bool:
        """The number of answers is fixed beforehand, and so is the price."""
        return False

    def ask(self, curator: Curator, student: Students, folder: RunFolder, say: Progress) -> Answers:
        """Ask a twentieth at a time, or as much as memory holds; what was answered before is given again, free."""
        self.chosen = self._settled(curator, folder)
        total, width = len(self.chosen), max(curator.codec.bound.dimension, int(np.prod(self.public.inputs.shape[1:])))
        released, asked = Rows(total, folder.private), []
        for part in _slices(total, width, most=max(1, total // 20)):
            places = self._askable(curator, self.chosen[part])
            if len(places):
                released.add(curator.codes(self.public.inputs[places]))
                asked.append(places)
            forget(self.public.inputs)
            say("asking the teachers", part.stop, total)
        if not asked:
            raise BudgetExceeded("the budget must hold at least one answer. Got none left after earlier kills instead.")
        chosen, codes = np.concatenate(asked), released.array()
        values = self._decoded(curator, codes, chosen, folder, width)
        if not isinstance(curator.mechanism, NoisyMean) or curator.selection is not None:
            return Answers(chosen, values)  # votes are no codes, and what was not selected was not measured
        return Answers(chosen, values, codes, curator.mechanism.sigma / curator.mechanism.teachers, curator.codec)

    def _settled(self, curator: Curator, folder: RunFolder) -> Array:
        """Keep questions that were computed, and take up those of an earlier life: computed again they might be others."""
        if not self.computed:
            return self.chosen
        kept = Rounds.of(folder.rounds, curator.ledger, self.public)
        before = kept.read(0)
        if before is None:
            kept.keep(0, Round(self.chosen, np.zeros((len(self.chosen), 0))))  # nobody expects a mask
            return self.chosen
        return checked(before.chosen, len(self.chosen), self.public)

    def _decoded(self, curator: Curator, codes: Array, chosen: Array, folder: RunFolder, width: int) -> Array:
        """Decode released codes, a few at a time: masks are as large as codes."""
        values = Rows(len(chosen), folder.private)
        for part in _slices(len(chosen), width):
            values.add(curator.decode(codes[part], self.public.inputs[chosen[part]]))
            forget(codes)
            forget(self.public.inputs)
        return values.array()

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
        return {"released": len(answers), "distinct": distinct(self.public, answers.chosen), "reinforced": 0}

    def scores(self, model: Model, answers: Answers, test: Public, student: Students, say: Progress = silent) -> dict[str, float]:
        """Score the student, the mean shape as a constant and as a label, and nothing at all; public masks where they helped."""
        assert test.targets is not None
        scores = _figures("private student", _drawn(model, test))
        if self.public.targets is not None:
            truths = (self.public.targets[[place]] for place in answers.chosen)
            pairs = zip(each(answers.values), truths, strict=True)
            scores |= _figures("released masks", ((value[None], value[None], truth) for value, truth in pairs))
        mean, truth = answers.mean[None], test.targets
        scores |= _figures("control: mean shape, constant", ((mean, mean, one[None]) for one in each(truth)))
        began = getattr(model, "beginning", model)  # a latent student began as the mean shape's
        if began is model:
            began = trained(student().fit, say)(self.public.unlabelled(), answers.averaged())
        scores |= _figures("control: mean shape, as the student's label", _drawn(began, test))
        if self.public.targets is not None and _saw_masks(self.codec):
            told = trained(student().fit, say)(self.public.unlabelled(), Answers.exact(self.public.targets))
            scores |= _figures(PUBLIC_MASKS, _drawn(told, test))
        nothing = np.zeros((1, *test.targets.shape[1:]))
        scores["control: public only, no answers (ε = 0)"] = _mean([dice(nothing, one[None]) for one in each(truth)])
        return scores

    def controls(
        self,
        teachers: Any,
        private: Private,
        answers: Any,
        test: Public,
        student: Students,
        folder: RunFolder,
        say: Progress = silent,
    ) -> None:
        """Score the stages that only the owner of the data may see (names: runs.STAGES, in order)."""
        assert test.targets is not None
        takes = self.public.takes()  # what private inputs look like decides nothing, not even here
        everything = Public(private.inputs, source="private, for the control alone", accepted=takes)
        unprotected = trained(student().fit, say)(everything, Answers.exact(private.targets))
        own = np.asarray([_mean([dice(masks, truth) for masks, _, truth in _drawn(unprotected, test, shares=False)])])
        parts = []
        for part in _parts(test, self.teachers):
            parts.append(teachers.vote(test.inputs[part]).map(self._stages(test[part])))
            say(VOTING, part.stop, len(test))
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
            alike = (_as_released(codec.encode(mask[None])[0]) for mask in few)  # one by one: codes may be as large as masks
            coded = [dice(codec.decode(code, test.inputs), truth) for code in alike]
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

    def publish(self, folder: RunFolder, model: Model, answers: Answers) -> None:
        """Write the decoded answers, and some questions with what became of them, whatever that is."""
        masks = (np.clip(mask, 0, 1) for mask in each(answers.values))
        like = np.empty(answers.values.shape[1:], np.float16)
        write_npz(folder.answers, "masks", masks, like, count=len(answers), chosen=answers.chosen)
        shown = _shown(answers)
        images = self.public.inputs[answers.chosen[shown]]
        shows = self.truth and self.public.targets is not None
        beside = {"truth": np.asarray(self.public.targets)[answers.chosen[shown]]} if shows else {}
        np.savez_compressed(
            folder.samples,
            shown=shown,
            inputs=images,
            answers=answers.values[shown].astype(np.float16),
            mean=answers.mean.astype(np.float16),
            student=np.asarray(model.predict(images)),
            **beside,
        )

    def expose(self, folder: RunFolder) -> None:
        """Show the pictures of teachers and ensemble."""
        if folder.pictures.exists():
            shutil.copyfile(folder.pictures, folder.shown_stages)

    def _picture(self, teachers: Any, answers: Answers, folder: RunFolder) -> None:
        """Keep one teacher's mask, the same behind the codec, and the ensemble's, of the images that the report shows."""
        places = answers.chosen[_shown(answers)]

        def drawn(images: Array) -> Sealed:
            codec = self._seeing(images)

            def stages(masks: Array) -> Array:
                if masks.ndim == 2:  # numbers of regions
                    masks = np.stack([codec.decode(_as_released(ballots), images) for ballots in codec.encode(masks)])
                behind = codec.decode(_as_released(codec.encode(masks[:1])[0]), images)
                return np.stack([masks[0], behind, masks.mean(axis=0, dtype=np.float32)], axis=1).astype(np.float16)

            return teachers.vote(images).map(stages)  # (images, 3, *shape)

        width = self.teachers * int(np.prod(answers.values.shape[1:]))
        parts = [drawn(self.public.inputs[places[part]]) for part in _slices(len(places), width, values=_PIXELS)]
        Sealed.concatenate(parts).map(lambda rows: rows.swapaxes(0, 1)).store(folder.pictures)


def _as_released(ballots: Array) -> Array:
    """Give one teacher's ballots the form of a release: a one-hot vote is released as its number."""
    return ballots.argmax(axis=-1) if ballots.dtype == bool else ballots


def _shown(answers: Answers) -> Array:
    """Choose the answers to show, of large volumes few: evenly spaced as they were asked. What is in them has no say."""
    most = max(1, min(_SAMPLES, len(answers), _VALUES // int(np.prod(answers.values.shape[1:]))))
    return np.arange(most) * len(answers) // most


def _saw_masks(codec: Any) -> bool:
    """Tell whether a codec, or one inside it, was fitted on public masks: then those alone may do as well."""
    inside = (getattr(codec, name, None) for name in ("filter", "codec"))
    return getattr(codec, "provenance", None) is not None or any(_saw_masks(one) for one in inside if one is not None)


def _slices(rows: int, width: int, *, most: int | None = None, values: int | None = None) -> Iterator[slice]:
    """Cut rows of `width` numbers so that a part fits in memory; at least one row each."""
    step = max(1, min(most or rows, (values or _VALUES) // max(1, width)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _parts(test: Public, teachers: int) -> Iterator[slice]:
    """Divide the test images so that all teachers' masks of a part fit in memory."""
    assert test.targets is not None
    return _slices(len(test), teachers * int(np.prod(test.targets.shape[1:])), values=_PIXELS)


def _drawn(model: Any, test: Public, *, shares: bool = True) -> Iterator[tuple[Array, Array, Array]]:
    """Let a model draw the test images, some at a time: masks, each pixel's share where it has any, and the truth."""
    assert test.targets is not None
    own = getattr(model, "probabilities", None) if shares else None
    for part in _slices(len(test), int(np.prod(test.inputs.shape[1:]))):
        images = test.inputs[part]
        masks = np.asarray(model.predict(images))
        yield masks, masks if own is None else np.asarray(own(images)), test.targets[part]
        forget(test.inputs)


def _figures(name: str, drawn: Iterable[tuple[Array, Array, Array]]) -> dict[str, float]:
    """Average every measure; Dice goes by the name of what is judged, the others say first what they are."""
    found: dict[str, list[Array]] = {}
    for masks, shares, truth in drawn:
        for measure, values in judged(masks, shares, truth).items():
            found.setdefault(name if measure == "Dice" else f"{measure}: {name}", []).append(values)
    return {key: _mean(values) for key, values in found.items()}


def _mean(values: list[Array]) -> float:
    return float(np.concatenate(values).mean())
