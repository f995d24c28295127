"""Masks as answers: what is asked, what is scored, and which stages only the owner sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.students.blobs import CODEC, answered, blobs

from tutelage.answers import Answers
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import DataError
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.account import account
from tutelage.tasks.masks import controls as controls_module
from tutelage.tasks.masks import task as module
from tutelage.tasks.masks.controls import Controls
from tutelage.tasks.masks.task import Masking
from tutelage.tasks.task import Learning, Plan

IMAGES, TRUTH = blobs(12, 0)
POOL, TEST = Public.of(IMAGES, TRUTH), Public.of(*blobs(7, 1))
SECRET = 7770123


class Crowd:
    """Three teachers who see what is bright, each from another level on."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def paint(self, inputs: np.ndarray) -> np.ndarray:
        return np.stack([inputs[:, 0] > level for level in (0.3, 0.5, 0.7)]).astype(np.float16)

    def vote(self, inputs: np.ndarray) -> Sealed:
        self.asked.append(len(inputs))
        return Sealed(self.paint(inputs))


class Thresholding:
    """A student that learns nothing: what is bright is the object's."""

    lessons: list[tuple[Any, Any]]

    def __init__(self, lessons: list[Any] | None = None) -> None:
        self.lessons = [] if lessons is None else lessons

    def fit(self, public: Public, answers: Answers) -> Thresholding:
        self.lessons.append((public, answers))
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs[:, 0] > 0.5).astype(np.uint8)


def task(codec: Any = CODEC, queries: int = 10, **told: Any) -> Masking:
    method = "gnmax" if isinstance(codec, RegionVotes) else "mean"
    return Masking(Plan(told.pop("public", POOL), queries, codec, Aggregation(method), told.pop("questions", None), 3))


def learning(folder: RunFolder, student: Any = Thresholding, say: Any = lambda *_: None) -> Learning:
    return Learning(student, Thresholding(), folder, say)


def stages(folder: RunFolder) -> np.ndarray:
    return np.load(folder.sealed("stages"))


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_chosen_questions_are_asked_each_once(tmp_path: Path) -> None:
    crowd, chosen, said = Crowd(), np.asarray([7, 2, 9]), []
    about = task(queries=3, questions=lambda public, count: chosen)
    mechanism, _ = about.how.built(Budget(8.0, 1e-5), 3, 3, CODEC.bound)
    with Ledger(tmp_path / "book", Budget(8.0, 1e-5)) as ledger:
        oracle = Curator(crowd, CODEC, mechanism, ledger)
        answers = about.ask(oracle, learning(RunFolder(tmp_path), say=lambda *told: said.append(told)))
        again = about.ask(oracle, learning(RunFolder(tmp_path)))
        assert account(oracle, RunFolder(tmp_path), about.how) is None
        [(event, count)] = ledger.totals()
    assert (count, crowd.asked) == (3, [1, 1, 1])
    assert answers.chosen.tolist() == [7, 2, 9]
    assert answers.sigma == event.sigma / 3  # type: ignore[union-attr]
    assert np.array_equal(answers.codes, again.codes)
    assert np.array_equal(answers.values, CODEC.decode(answers.codes, POOL.inputs[chosen]))
    assert said == [("asking the teachers", done, 3) for done in (1, 2, 3)]
    lessons: list[Any] = []
    about.fit(answers, Learning(Thresholding, Thresholding(lessons), RunFolder(tmp_path)))
    assert lessons[0][1] is answers
    assert about.counts(answers) == {"released": 3, "distinct": 3, "reinforced": 0}
    assert not about.adaptive


# ── what anyone may compute ───────────────────────────────────────────────────────────────────────────────────────────


def test_scores_are_dice_on_public_data() -> None:
    answers, lessons = answered(TRUTH, 0.1), []
    scores = task().scores(Thresholding(), answers, TEST, learning(RunFolder("none"), lambda: Thresholding(lessons)))
    assert scores["private student"] == pytest.approx(dice(Thresholding().predict(TEST.inputs), TEST.targets).mean())
    assert scores["released masks"] == pytest.approx(dice(answers.values, TRUTH).mean())
    constant = np.broadcast_to(answers.mean, TEST.targets.shape)
    assert scores["control: mean shape, constant"] == pytest.approx(dice(constant, TEST.targets).mean())
    assert scores["control: public only, no answers (ε = 0)"] == 0.0
    [(public, lesson)] = lessons  # the student of the mean shape
    assert public.targets is None
    assert np.allclose(lesson.values, answers.mean)


def test_a_student_that_began_as_the_mean_shape_s_is_not_fitted_again() -> None:
    class Later(Thresholding):
        beginning = Thresholding()

    scores = task().scores(Later(), answered(TRUTH, 0.1), TEST, learning(RunFolder("none"), lambda: pytest.fail("fitted again")))
    assert scores["control: mean shape, as the student's label"] == scores["private student"]


# ── what only the owner may ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("at_once", [1 << 28, 2 * 3 * 256])
@pytest.mark.parametrize("codec", [CODEC, RegionVotes((16, 16), 6, "superpixels", share=0.2)], ids=["codes", "votes"])
def test_stages_are_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Any, at_once: int) -> None:
    monkeypatch.setattr(controls_module, "_PIXELS", at_once)
    folder, crowd, lessons = RunFolder(tmp_path).create(), Crowd(), []
    private, answers = Private.of(IMAGES[::-1], TRUTH[::-1]), answered(TRUTH, 0.1)
    Controls().score(task(codec), private, crowd, answers, TEST, learning(folder, lambda: Thresholding(lessons)))
    painted = crowd.paint(TEST.inputs)
    seeing = codec.seeing(TEST.inputs) if isinstance(codec, RegionVotes) else codec
    coded = [seeing.decode(one.argmax(axis=-1) if one.dtype == bool else one, TEST.inputs) for one in seeing.encode(painted)]
    expected = [
        dice(Thresholding().predict(TEST.inputs), TEST.targets).mean(),
        np.mean([dice(mask, TEST.targets) for mask in painted]),
        np.mean([dice(mask, TEST.targets) for mask in coded]),
        dice(painted.mean(axis=0), TEST.targets).mean(),
    ]
    assert stages(folder) == pytest.approx(expected)
    assert crowd.asked == ([7, 8] if at_once > 1e6 else [2, 2, 2, 1, 2, 2, 2, 2])
    assert np.array_equal(lessons[0][1].values, private.targets)
    pictures = np.load(folder.pictures)
    assert pictures.shape == (3, 8, 16, 16)
    assert not list(folder.release.iterdir())


def test_choices_by_number_have_the_stages_of_their_masks(tmp_path: Path) -> None:
    class Choosers:
        def __init__(self, painting: bool) -> None:
            self.painting = painting

        def vote(self, inputs: np.ndarray) -> Sealed:
            rng = np.random.default_rng(len(inputs))
            votes = np.where(rng.random((9, len(inputs))) < 0.6, 1, rng.integers(0, 4, (9, len(inputs)))).astype(np.uint8)
            labels = codec.seeing(inputs).labels
            return Sealed(labels[None] == votes[:, :, None, None] if self.painting else votes)

    codec, found = RegionVotes((16, 16), 3, "levels", share=0.2), []
    for painting in (False, True):
        folder = RunFolder(tmp_path / str(painting)).create()
        private, answers = Private.of(IMAGES, TRUTH), answered(TRUTH, 0.1)
        Controls().score(task(codec), private, Choosers(painting), answers, TEST, learning(folder))
        found.append((stages(folder), np.load(folder.pictures)))
    assert found[0][0] == pytest.approx(found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_a_failing_stage_says_no_private_value(tmp_path: Path) -> None:
    class Quoting:
        bound = CODEC.bound

        def encode(self, predictions: np.ndarray) -> np.ndarray:
            raise ValueError(f"{SECRET}")

    folder = RunFolder(tmp_path).create()
    with pytest.raises(DataError) as caught:
        Controls().score(task(Quoting()), Private.of(IMAGES, TRUTH), Crowd(), answered(TRUTH, 0.1), TEST, learning(folder))
    assert str(SECRET) not in str(caught.value)
    assert caught.value.__context__ is None


def test_shown_are_questions_evenly_spaced_whatever_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((20, 16, 16), np.float32)
    spaced = module.shown_answers(Answers(np.arange(20)[::-1], values)).tolist()
    values[3:11] = 1.0
    assert module.shown_answers(Answers(np.arange(20), values)).tolist() == spaced == [0, 2, 5, 7, 10, 12, 15, 17]
    assert module.shown_answers(Answers(np.arange(5), values[:5])).tolist() == [0, 1, 2, 3, 4]
    monkeypatch.setattr(module, "_VALUES", 2 * 256)  # large ones: few
    assert module.shown_answers(Answers(np.arange(20), values)).tolist() == [0, 10]
