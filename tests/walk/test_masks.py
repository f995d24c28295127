"""The verb about masks, through the real book: what is paid for, what is published, and what stays inside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.students.blobs import CODEC, NETWORK, QUICK, TRAINING, blobs
from tests.walk.tiny import Killed, kill_after, promised
from tests.walk.tiny_masks import POOL, QUESTIONS, TEACHERS, Painters, mask_run

import tutelage as tt
from tutelage.codecs.dct import DCT
from tutelage.codecs.pca import PCA
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.nets.masks import MaskModel
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import BudgetExceeded, DataError, RecipeError
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.runs import RunFolder
from tutelage.students.latent import Latent, LatentStudent
from tutelage.tasks.masks import reading as masks_reading
from tutelage.tasks.masks.controls import Controls
from tutelage.tasks.table import read_controls
from tutelage.teachers.segmenter import Segmenter
from tutelage.verification import verify

STAGES = masks_reading.READING.sealed["stages"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Small tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def charged(out: Path) -> int:
    with Ledger(out / "private" / "book.sqlite") as book:
        return sum(row.body["count"] for row in book.entries() if row.kind == "charge")


def test_the_walk_with_networks_all_the_way(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = mask_run(
        tmp_path / "run",
        teachers=Segmenter(NETWORK, training=replace(TRAINING, steps=50), engine="sequential", device="cpu"),
        student=lambda: LatentStudent(
            NETWORK, settings=Latent(begin=replace(TRAINING, steps=50), steps=50, again=None), device="cpu"
        ),
        budget=tt.Budget(1e4, 1e-5),  # so little noise that five teachers can be heard
        progress=lambda what, done, total: said.append(what),
        tuned_on="nothing",
    )
    scores = outcome.scores
    assert scores["private student"] > max(0.75, scores["control: mean shape, constant"] + 0.05)
    assert scores["private student"] > scores["control: mean shape, as the student's label"]
    assert scores["released masks"] > 0.75
    assert scores["control: public only, no answers (ε = 0)"] == 0.0
    assert outcome.labels.shape == (QUESTIONS, 16, 16)
    assert outcome.guarantee["labels"] == {"released": QUESTIONS, "distinct": QUESTIONS, "reinforced": 0}
    [event] = outcome.guarantee["events"]
    assert (event["kind"], event["count"]) == ("Gaussian", QUESTIONS)
    assert outcome.guarantee["epsilon"] == pytest.approx(1e4, rel=1e-6)
    again = MaskModel.load(outcome.folder.release / "student.safetensors", device="cpu")
    images, _ = blobs(5, 7)
    assert np.array_equal(again.predict(images), outcome.model.predict(images))
    controls = {"training the controls", "controls: teachers vote", "scoring the controls"}
    assert set(said) == {"training teachers", "asking the teachers", "training the student", *controls}


def test_the_noise_on_a_code_is_the_charged_one_over_the_teachers(tmp_path: Path) -> None:
    outcome = mask_run(tmp_path / "run", test=None)
    [event] = outcome.guarantee["events"]
    assert outcome.answers.sigma == pytest.approx(event["sigma"] / TEACHERS)
    private, (pool, _) = tt.Private.of(*blobs(30, 0)), blobs(POOL, 1)
    true = Painters().fit(private, private.split(TEACHERS, seed=0)).paint(pool[:QUESTIONS])
    off = outcome.answers.codes - CODEC.encode(true).mean(axis=0)
    assert np.std(off) == pytest.approx(outcome.answers.sigma, rel=0.05)
    assert abs(np.mean(off)) < 5 * outcome.answers.sigma / np.sqrt(off.size)


# ── what is published ─────────────────────────────────────────────────────────────────────────────────────────────────


def published(folder: Path) -> tuple[list[np.ndarray], str]:
    """Read everything under a folder: all pictures of 16×16 in any array, and all text."""
    from safetensors.numpy import load_file

    pictures, text = [], ""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.suffix in (".npz", ".npy"):
            loaded = np.load(file, allow_pickle=False)
            arrays = [loaded[name] for name in loaded.files] if file.suffix == ".npz" else [loaded]
        elif file.suffix == ".safetensors":
            arrays = list(load_file(file).values())
        else:
            arrays, text = [], text + file.read_text(encoding="utf-8")
        for array in arrays:
            if array.shape[-2:] == (16, 16):
                pictures += list(array.reshape(-1, 16, 16).astype(np.float64))
    return pictures, text


def leaks(outcome: tt.Outcome) -> list[str]:
    """Name what a release has of the private side: records, teachers' masks without noise, figures computed from either."""
    pictures, text = published(outcome.folder.release)
    inputs, _ = blobs(30, 0)
    pool, _ = blobs(POOL, 1)
    private = tt.Private.of(*blobs(30, 0))
    masks = Painters().fit(private, private.split(TEACHERS, seed=0)).paint(pool)
    coded = CODEC.decode(CODEC.encode(masks[:1])[0], pool)
    secrets = {
        "a record": inputs[:, 0],
        "a teacher's mask": masks[0],
        "an encoded mask": coded,
        "the ensemble": masks.mean(axis=0),
    }
    shown = np.stack(pictures)
    found = [
        name
        for name, arrays in secrets.items()
        if any((np.abs(shown - array).max(axis=(1, 2)) < 2e-3).any() for array in arrays.astype(np.float64))
    ]
    figures = read_controls(outcome.folder)
    return found + [name for name, value in figures.items() if name in text or repr(value) in text]


def test_the_release_holds_nothing_private(tmp_path: Path) -> None:
    outcome = mask_run(tmp_path / "run")
    assert leaks(outcome) == []
    assert {path.name for path in outcome.folder.release.rglob("*")} == {
        "answers.npz", "book.jsonl", "guarantee.json", "manifest.json", "metrics.json",
        "samples.npz", "scores.json", "student.safetensors",
    }  # fmt: skip
    with np.load(outcome.folder.release / "answers.npz") as answers:
        assert answers["masks"].shape == (QUESTIONS, 16, 16)
        assert answers["chosen"].tolist() == list(range(QUESTIONS))
        assert 0 <= answers["masks"].min() <= answers["masks"].max() <= 1
    stages = read_controls(outcome.folder)
    assert set(stages) == set(STAGES)
    assert stages["stage: ensemble, no noise"] > 0.5
    assert outcome.guarantee["excepted"] == []
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (outcome.folder.pictures, outcome.folder.sealed("stages")))


def exposing(real: Callable[..., None]) -> Callable[..., None]:
    def controls(self: Controls, *given: Any) -> None:
        real(self, *given)
        folder: RunFolder = given[5].folder
        shutil.copyfile(folder.pictures, folder.shown_stages)

    return controls


def loose(real: Callable[..., None]) -> Callable[..., None]:
    def controls(self: Controls, *given: Any) -> None:
        real(self, *given)
        folder: RunFolder = given[5].folder
        folder.scores.with_name("student.json").write_text(json.dumps(read_controls(folder)), encoding="utf-8")

    return controls


@pytest.mark.parametrize(("twin", "what"), [(exposing, "a teacher's mask"), (loose, "stage: teacher")])
def test_a_release_of_what_is_private_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: Any, what: str) -> None:
    monkeypatch.setattr(Controls, "score", twin(Controls.score))
    assert what in leaks(mask_run(tmp_path / "run"))


def test_a_code_without_noise_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(self: NoisyMean, ballots: Any, *, share: float = 1.0) -> np.ndarray:
        from tutelage.privacy.sealed import _KEY

        return next(iter(ballots))._open(_KEY)[0]

    monkeypatch.setattr(NoisyMean, "contribute", bare)
    assert "an encoded mask" in leaks(mask_run(tmp_path / "run"))


def test_a_benchmark_shows_its_stages_and_says_so(tmp_path: Path) -> None:
    shown = mask_run(tmp_path / "run", benchmark=True)
    assert {"a teacher's mask", "the ensemble", *STAGES} <= set(leaks(shown))
    assert shown.folder.shown_stages.exists()
    assert "stages.npy" in shown.guarantee["excepted"][0]
    hidden = mask_run(tmp_path / "run", resume=True)  # the same run, no benchmark any more
    assert leaks(hidden) == []
    assert hidden.guarantee["excepted"] == []


@pytest.mark.parametrize("choices", [{"controls": False}, {"test": None}], ids=["no controls", "no test data"])
def test_without_controls_there_is_nothing_to_show(tmp_path: Path, choices: dict[str, Any]) -> None:
    outcome = mask_run(tmp_path / "run", benchmark=True, **choices)
    assert read_controls(outcome.folder) == {}
    assert not outcome.folder.pictures.exists()
    assert leaks(outcome) == []
    assert bool(outcome.scores) == ("test" not in choices)


def test_without_public_masks_answers_are_not_scored(tmp_path: Path) -> None:
    outcome = mask_run(tmp_path / "run", public_targets=False)
    assert "released masks" not in outcome.scores
    assert "control: mean shape, constant" in outcome.scores
    with np.load(outcome.folder.samples) as samples:
        assert set(samples.files) == {"shown", "inputs", "answers", "mean", "student"}


# ── charge, then read ─────────────────────────────────────────────────────────────────────────────────────────────────


class Watching(Painters):
    """Teachers that note how many questions were paid for on disk, and how many were asked, whenever they are asked."""

    def __init__(self, book: Path) -> None:
        self.book, self.asked, self.seen = book, 0, []

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        self.asked += len(inputs)
        with Ledger(self.book) as book:
            self.seen.append((sum(row.body["count"] for row in book.entries() if row.kind == "charge"), self.asked))
        return super().vote(inputs)


def paid_first(out: Path) -> bool:
    teachers = Watching(out / "private" / "book.sqlite")
    mask_run(out, teachers=teachers, controls=False)
    assert teachers.asked == QUESTIONS
    return all(paid >= asked for paid, asked in teachers.seen)


def test_every_question_is_on_disk_before_a_teacher_sees_it(tmp_path: Path) -> None:
    assert paid_first(tmp_path / "run")


def test_a_question_that_is_paid_for_later_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: Curator, query: Any, fresh: list[int], baseline: Any) -> np.ndarray:
        inputs = query.rows[fresh]
        released = self._answered(query, self._seeing(inputs))
        self.ledger.charge(self.mechanism.event(), count=len(inputs))
        return released

    monkeypatch.setattr(Curator, "_release", late)
    assert not paid_first(tmp_path / "run")


class Idle:
    def fit(self, private: Any, shards: Any, *, progress: Any = None) -> Any:
        pytest.fail("the teachers were trained")

    def vote(self, inputs: Any) -> Any:
        pytest.fail("the teachers were asked")


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"aggregation": Aggregation("mean", sigma=1e-3)}, "`sigma` must let one answer fit ε = 8"),
        ({"aggregation": Aggregation("gnmax")}, "`codec` must cast votes for 'gnmax'. Got one bounded by Orthant"),
        (
            {"aggregation": Aggregation("mean"), "codec": RegionVotes((16, 16), 4)},
            "`codec` must give codes for 'mean'. Got one bounded by OneHot",
        ),
        ({"aggregation": Aggregation("lnmax")}, "`method` must be 'mean' or 'gnmax' for masks. Got 'lnmax'"),
        ({"aggregation": Aggregation("confident-gnmax")}, "`method` must be 'mean' or 'gnmax' for masks"),
        ({"queries": POOL + 1}, "`queries` must be between 1 and the public pool's 24"),
        ({"questions": lambda public, count: np.asarray([0, 0])}, "`questions` must choose"),
    ],
)
def test_a_plan_that_cannot_be_paid_is_refused_before_a_teacher_is_trained(
    tmp_path: Path, choices: dict[str, Any], rule: str
) -> None:
    with pytest.raises(RecipeError, match=rule):
        mask_run(tmp_path / "run", teachers=Idle(), **choices)
    assert list(tmp_path.iterdir()) == []


def test_a_student_that_a_control_would_teach_private_data_is_never_published(tmp_path: Path) -> None:
    class Remembering:
        """Is its own model, and learns again whenever it is told to."""

        beginning = MaskModel(NETWORK, NETWORK().state_dict(), device="cpu")  # no control of the mean shape: the private one

        def fit(self, public: tt.Public, answers: Any) -> Remembering:
            assert not np.array_equal(public.inputs, blobs(30, 0)[0]), "private data reached the student that is published"
            return self

        def predict(self, inputs: np.ndarray) -> np.ndarray:
            return np.zeros((len(inputs), 16, 16), np.uint8)

    shared = Remembering()
    with pytest.raises(RecipeError, match="`student` must make a new student at every call"):
        mask_run(tmp_path / "run", student=lambda: shared)
    assert not (tmp_path / "run").exists()


def test_a_failing_teacher_says_no_private_value(tmp_path: Path) -> None:
    class Talkative(Painters):
        def paint(self, inputs: np.ndarray) -> np.ndarray:
            raise ValueError("patient 4711 has a rare disease")

    with pytest.raises(DataError) as caught:
        mask_run(tmp_path / "run", teachers=Talkative())
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert not (tmp_path / "run" / "release").exists()
    assert not list(RunFolder(tmp_path / "run").draft.iterdir())


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_kill_nothing_is_paid_for_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        kill_after(patch, 3)
        with pytest.raises(Killed):
            mask_run(out)
    assert charged(out) == 4  # one question at a time: three were answered, and one was paid for and never heard
    once = mask_run(out, resume=True)
    assert charged(out) == QUESTIONS
    assert len(once.answers) == QUESTIONS - 1  # the budget is for twenty; the lost one is not given back
    again = mask_run(out, resume=True)
    assert charged(out) == QUESTIONS
    verdict = verify(again.folder)
    assert (verdict.events, verdict.against_private_book) == (QUESTIONS, True)
    assert verdict.recomputed_epsilon == pytest.approx(8.0, rel=5e-3)
    assert np.array_equal(once.answers.codes, again.answers.codes)
    assert once.answers.chosen.tolist() == again.answers.chosen.tolist()
    assert promised(again) == promised(once)


def test_after_a_kill_a_choice_and_its_values_are_not_paid_for_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"codec": DCT((16, 16), 20, 6.0), "aggregation": Aggregation("mean", selection=tt.Selection(1.0, 3))}
    with monkeypatch.context() as patch:
        kill_after(patch, 3)
        with pytest.raises(Killed):
            mask_run(tmp_path / "run", **how)
    assert charged(tmp_path / "run") == 2 * 4  # the fourth question's choice and values were paid for and never heard
    once = mask_run(tmp_path / "run", **how, resume=True)
    again = mask_run(tmp_path / "run", **how, resume=True)
    assert charged(tmp_path / "run") == 2 * QUESTIONS
    assert len(once.answers) == QUESTIONS - 1
    assert np.array_equal(once.answers.values, again.answers.values)
    assert promised(again) == promised(once)
    assert verify(again.folder).claimed_epsilon <= 8.0


def test_a_part_that_was_answered_is_given_again_when_the_budget_is_gone(tmp_path: Path) -> None:
    every: dict[str, Any] = {"queries": 60, "pool": 60, "test": None, "codec": DCT((16, 16), 20, 6.0)}  # blocks of three
    sigma = Aggregation("mean").built(tt.Budget(8.0, 1e-5), 13, TEACHERS, every["codec"].bound)[0].sigma  # type: ignore[attr-defined]
    every["aggregation"] = Aggregation("mean", sigma=sigma)
    first = mask_run(tmp_path / "run", **every)
    assert len(first.answers) == 13
    again = mask_run(tmp_path / "run", **every, resume=True)
    assert again.answers.chosen.tolist() == first.answers.chosen.tolist()
    assert np.array_equal(again.answers.codes, first.answers.codes)


def test_a_budget_eaten_by_kills_is_not_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        kill_after(patch, 0)
        for _ in range(2):
            with pytest.raises(Killed):
                mask_run(tmp_path / "run", queries=2, resume=True)
    with pytest.raises(BudgetExceeded, match="must hold at least one answer"):
        mask_run(tmp_path / "run", queries=2, resume=True)
    assert charged(tmp_path / "run") == 2
    assert not (tmp_path / "run" / "release").exists()
    assert not list(RunFolder(tmp_path / "run").draft.iterdir())


# ── other codecs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_for_regions_take_the_same_walk(tmp_path: Path) -> None:
    codec = RegionVotes((16, 16), 6, "superpixels", share=0.2)
    outcome = mask_run(tmp_path / "run", codec=codec, budget=tt.Budget(1e4, 1e-5))
    assert outcome.guarantee["events"][0]["kind"] == "NoisyMax"  # votes have a winner without being told so
    assert not outcome.answers.noisy
    assert set(np.unique(outcome.labels)) <= {0, 1}
    assert outcome.labels.any()
    assert set(read_controls(outcome.folder)) == set(STAGES)
    assert not any(path.name.startswith("counts") for path in outcome.folder.release.iterdir())


def test_components_of_public_masks_take_the_same_walk(tmp_path: Path) -> None:
    codec = PCA.fit(tt.Public.of(*blobs(50, 8), source="blobs"), components=5)
    settings = Latent(begin=QUICK, steps=3, again=None)
    outcome = mask_run(
        tmp_path / "run", codec=codec, student=lambda: LatentStudent(NETWORK, settings=settings, device="cpu"), benchmark=True
    )
    assert outcome.answers.codes.shape == (QUESTIONS, 5)
    assert outcome.guarantee["epsilon"] == pytest.approx(8.0)
