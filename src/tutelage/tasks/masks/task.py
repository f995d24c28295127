"""Masks as answers: teachers' masks are released as codes or votes, decoded, and scored by Dice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.answers import Answers
from tutelage.data.dataset import Private, Public
from tutelage.data.mapped import Rows, each, forget, write_npz
from tutelage.metrics import dice, judged
from tutelage.privacy.errors import BudgetExceeded
from tutelage.privacy.oracle import Oracle
from tutelage.privacy.queries import Query
from tutelage.runs import RunFolder
from tutelage.tasks.masks.checks import check_codec
from tutelage.tasks.masks.reading import READING
from tutelage.tasks.questions import check_count, checked, chosen_questions
from tutelage.tasks.rounds import Round, Rounds
from tutelage.tasks.scores import Score
from tutelage.tasks.task import Learning, Model, Plan, distinct
from tutelage.telling import telling

Array = npt.NDArray[Any]
_SAMPLES = 8  # questions with their stages that the report can show
_VALUES = 1 << 24  # numbers of questions or answers in memory at once: large volumes go one by one


@final
class Masking:
    """Ask for masks of public images."""

    name = "masks"

    def __init__(self, plan: Plan) -> None:
        check_codec(plan)
        check_count(plan.queries, plan.pool)
        self.plan, self.public, self.how, self.codec = plan, plan.pool, plan.how, plan.codec
        self.chosen = chosen_questions(plan.pool, plan.queries, plan.questions, plan.say)

    @property
    def asked(self) -> str:
        """Hash the questions."""
        return hashlib.sha256(np.asarray(self.chosen, dtype=np.int64).tobytes()).hexdigest()

    @property
    def adaptive(self) -> bool:
        """The number of answers is fixed beforehand, and so is the price."""
        return False

    def check(self, *, teachers: Any, learner: Any, test: Public | None) -> None:
        """Refuse nothing more: what can be refused was, when the task was opened."""

    def cleaned(self, private: Private) -> Private:
        """Keep all private records."""
        return private

    def judged(self, test: Public) -> Public:
        """Keep all test records."""
        return test

    def ask(self, oracle: Oracle, learning: Learning) -> Answers:
        """Ask a twentieth at a time, or as much as memory holds; what was answered before is given again, free."""
        self.chosen = self._settled(oracle, learning.folder)
        total, width = len(self.chosen), max(oracle.codec.bound.dimension, int(np.prod(self.public.inputs.shape[1:])))
        codes, values = Rows(total, learning.folder.private), Rows(total, learning.folder.private)
        asked = []
        for part in slices(total, width, most=oracle.batch or max(1, total // 20)):
            places = self._askable(oracle, self.chosen[part])
            if len(places):
                released = oracle.ask(self._query(places))
                values.add(released.values)
                if oracle.noise is not None:
                    codes.add(released.codes)
                asked.append(places)
            forget(self.public.inputs)
            learning.say("asking the teachers", part.stop, total)
        if not asked:
            raise BudgetExceeded("the budget must hold at least one answer. Got none left after earlier kills instead.")
        if oracle.noise is None:
            return Answers(np.concatenate(asked), values.array())
        return Answers(np.concatenate(asked), values.array(), codes.array(), oracle.noise, oracle.codec)

    def _settled(self, oracle: Oracle, folder: RunFolder) -> Array:
        """Keep questions that were computed, and take up those kept before: computed again they might be others."""
        if self.plan.questions is None:
            return self.chosen
        kept = Rounds(folder.rounds, oracle.run, self.public)
        before = kept.read(0)
        if before is None:
            kept.keep(0, Round(self.chosen, np.zeros((len(self.chosen), 0))))  # nobody predicts a mask
            return self.chosen
        return checked(before.chosen, len(self.chosen), self.public)

    def _askable(self, oracle: Oracle, part: Array) -> Array:
        """Keep what was answered before, and as many new questions as fit: a kill may have used up the room of the others."""
        if oracle.known(self._query(part)):
            return part
        new = np.asarray([not oracle.known(self._query(part[[place]])) for place in range(len(part))])
        beside = None if self.how.sanitise is None else self.how.sanitise.release()
        return np.asarray(part[~new | (np.cumsum(new) <= oracle.remaining(int(new.sum()), beside=beside))])

    def _query(self, places: Array) -> Query:
        return Query.inputs(self.public.inputs[places])

    def fit(self, answers: Answers, learning: Learning) -> Model:
        """Train on the answers as they are."""
        model: Model = telling(learning.learner.fit, learning.say, "training the student")(self.public.unlabelled(), answers)
        return model

    def counts(self, answers: Answers) -> dict[str, int]:
        """Count the teachers' masks."""
        return {"released": len(answers), "distinct": distinct(self.public, answers.chosen), "reinforced": 0}

    def scores(self, model: Model, answers: Answers, test: Public, learning: Learning) -> dict[str, float]:
        """Score the student, the mean shape as a constant and as a label, and nothing at all; public masks where they helped."""
        assert test.targets is not None
        truth, pool = test.targets, self.public.unlabelled()
        scores = _figures(Score.STUDENT, drawn(model, test))
        if self.public.targets is not None:
            truths = (self.public.targets[[place]] for place in answers.chosen)
            pairs = zip(each(answers.values), truths, strict=True)
            scores |= _figures(Score.RELEASED_MASKS, ((value[None], value[None], one) for value, one in pairs))
        mean = answers.mean[None]
        scores |= _figures(Score.MEAN_SHAPE, ((mean, mean, one[None]) for one in each(truth)))
        began = getattr(model, "beginning", model)  # a latent student began as the mean shape's
        if began is model:
            began = learning.trained(learning.another().fit)(pool, answers.averaged())
        scores |= _figures(Score.MEAN_SHAPE_LABEL, drawn(began, test))
        if self.public.targets is not None and saw_masks(self.codec):
            exact = learning.trained(learning.another().fit)(pool, Answers.exact(self.public.targets))
            scores |= _figures(Score.PUBLIC_MASKS, drawn(exact, test))
        nothing = np.zeros((1, *truth.shape[1:]))
        return {**scores, Score.PUBLIC_ONLY: mean_of([dice(nothing, one[None]) for one in each(truth)])}

    def publish(self, folder: RunFolder, model: Model, answers: Answers) -> None:
        """Write the decoded answers, and some questions with what became of them, whatever that is."""
        masks = (np.clip(mask, 0, 1) for mask in each(answers.values))
        like = np.empty(answers.values.shape[1:], np.float16)
        write_npz(folder.release / READING.answers, "masks", masks, like, count=len(answers), chosen=answers.chosen)
        shown = shown_answers(answers)
        images = self.public.inputs[answers.chosen[shown]]
        shows = self.plan.truth and self.public.targets is not None
        beside: dict[str, Any] = {"truth": np.asarray(self.public.targets)[answers.chosen[shown]]} if shows else {}
        np.savez_compressed(
            folder.samples,
            shown=shown,
            inputs=images,
            answers=answers.values[shown].astype(np.float16),
            mean=answers.mean.astype(np.float16),
            student=np.asarray(model.predict(images)),
            **beside,
        )


def shown_answers(answers: Answers) -> Array:
    """Choose the answers to show, of large volumes few: evenly spaced as they were asked. What is in them has no say."""
    most = max(1, min(_SAMPLES, len(answers), _VALUES // int(np.prod(answers.values.shape[1:]))))
    return np.arange(most) * len(answers) // most


def saw_masks(codec: Any) -> bool:
    """Tell whether a codec, or one inside it, was fitted on public masks: then those alone may do as well."""
    inside = (getattr(codec, name, None) for name in ("filter", "codec"))
    return getattr(codec, "provenance", None) is not None or any(saw_masks(one) for one in inside if one is not None)


def slices(rows: int, width: int, *, most: int | None = None, values: int | None = None) -> Iterator[slice]:
    """Cut rows of `width` numbers so that a part fits in memory; at least one row each."""
    step = max(1, min(most or rows, (values or _VALUES) // max(1, width)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def drawn(model: Any, test: Public, *, shares: bool = True) -> Iterator[tuple[Array, Array, Array]]:
    """Let a model draw the test images, some at a time: masks, each pixel's share where it has any, and the truth."""
    assert test.targets is not None
    own = getattr(model, "probabilities", None) if shares else None
    for part in slices(len(test), int(np.prod(test.inputs.shape[1:]))):
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
    return {key: mean_of(values) for key, values in found.items()}


def mean_of(values: list[Array]) -> float:
    """Average the scores of all records."""
    return float(np.concatenate(values).mean())


opened = Masking
