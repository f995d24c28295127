"""From the words of a recipe to the learners they mean: what is built, what is refused, what needs torch."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data import presets
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.recipes import learners
from tutelage.recipes.beginnings import Beginnings
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import embedded, run
from tutelage.students.questions import Prototypes, Uncertain
from tutelage.students.seen import SeenPrototypes
from tutelage.teachers.estimators import EstimatorTeachers
from tutelage.telling import tells

pytest.importorskip("torch")

NETWORKS = """
name = "networks"
[data]
set = "digits"
[privacy]
epsilon = 8
delta = 1e-5
[teachers]
kind = "convnet"
shards = 10
widths = [8, 8]
steps = 3
augmentation = "none"
[aggregation]
queries = 20
[student]
learner = "consistency"
kind = "convnet"
widths = [8, 8]
[student.consistency]
steps = 4
batch = 8
weak = "digits"
strong = { rotation = 5.0, flip = true }
"""
POOL = Public.of(np.zeros((12, 8, 8), np.float32))
SECRET = Private.of(np.zeros((12, 8, 8), np.float32), np.zeros(12, np.int64))


def test_teachers_get_what_the_recipe_says(tmp_path: Path) -> None:
    recipe = parse(NETWORKS.replace("steps = 3", 'steps = 3\nbatch = 7\nrate = 0.01\nprecision = "bfloat16"'))
    made = learners.teachers(recipe, SECRET, 10, device="cpu", engine="stacked", checkpoint=tmp_path)
    assert (made.training.steps, made.training.batch, made.training.rate, made.training.augmentation) == (3, 7, 0.01, None)
    assert made.training.precision == "bfloat16"
    assert (made.network.widths, made.network.shape, made.network.classes) == ((8, 8), (1, 8, 8), 10)
    assert (made.engine, made.device, made.checkpoint) == ("stacked", "cpu", tmp_path)
    forest = parse(NETWORKS.replace('kind = "convnet"\nshards', "shards").replace("widths = [8, 8]\nsteps = 3\n", "", 1)
                   .replace('augmentation = "none"\n', ""))  # fmt: skip
    made = learners.teachers(forest, SECRET, 10, device="cpu", engine="auto", checkpoint=tmp_path)
    assert isinstance(made, EstimatorTeachers)


def test_teachers_left_open_take_the_networks_own_defaults() -> None:
    from tutelage.nets.augmentation import CLOTHES
    from tutelage.nets.training import Training

    recipe = parse(NETWORKS.replace("widths = [8, 8]\nsteps = 3\n", "", 1).replace('"none"', '"clothes"'))
    assert learners.training(recipe) == Training(augmentation=CLOTHES)


def test_a_students_table_becomes_its_settings() -> None:
    from tutelage.nets.augmentation import DIGITS, Augmentation
    from tutelage.students.adversarial import Adversarial
    from tutelage.students.consistency import Consistency

    made = learners.settings(parse(NETWORKS))
    assert made == Consistency(steps=4, batch=8, weak=DIGITS, strong=Augmentation(rotation=5.0, flip=True))
    text = NETWORKS.replace("[student.consistency]", "[student.adversarial]").replace(
        '"consistency"\nkind = "convnet"', '"adversarial"'
    )
    text = text.replace("widths = [8, 8]\n[student", "[student").replace('weak = "digits"\n', "widths = [30, 20]\n")
    text = text.replace("strong = { rotation = 5.0, flip = true }\n", "")
    assert learners.settings(parse(text)) == Adversarial(steps=4, batch=8, widths=(30, 20))


def test_svhn_has_the_papers_student() -> None:
    from tutelage.nets.allconv import AllConv
    from tutelage.students.convolutions import Convolutions

    for name in ("svhn-lnmax-500", "svhn-lnmax-1000", "svhn-confident"):
        recipe = embedded(f"pate/{name}")
        pool = Public.of(np.zeros((2, 32, 32, 3), np.uint8))
        student = learners.student(recipe, pool, 10, device="cpu")()
        assert student.settings.players == Convolutions()
        assert student.settings.players.factory((3, 32, 32), 10) == AllConv()


def test_a_convolutional_student_refuses_its_pool_before_anybody_is_asked() -> None:
    recipe = embedded("pate/svhn-lnmax-500")
    with pytest.raises(DataError, match="`public` must hold images, channels first, whose sides are multiples of 8"):
        learners.student(recipe, Public.of(np.zeros((2, 28, 28), np.uint8)), 10, device="cpu")


@pytest.mark.parametrize("name", ["consistency", "adversarial"])
def test_every_setting_of_a_learner_can_be_written_in_a_recipe(name: str) -> None:
    from tutelage.students.adversarial import Adversarial
    from tutelage.students.consistency import Consistency

    kind: Any = {"consistency": Consistency, "adversarial": Adversarial}[name]
    plain = {field.name: getattr(kind(), field.name) for field in dataclasses.fields(kind)}
    plain = {
        k: (list(v) if isinstance(v, tuple) else dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v)
        for k, v in plain.items()
    }
    recipe = parse(NETWORKS)
    student = recipe.student.model_copy(update={"learner": name, "consistency": None, name: plain})
    assert learners.settings(recipe.model_copy(update={"student": student})) == kind()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps = 4", "step = 4", "`student.consistency.step` must be a known key. Got an unknown one instead. Did"),
        ("steps = 4", 'steps = "4"', "`student.consistency.steps` must be a valid integer. Got '4' instead."),
        ("steps = 4", "steps = 0", "`student.consistency.steps` must be a whole number ≥ 1. Got 0 instead."),
        ('"digits"\nstrong', '"digit"\nstrong', "colour'. Got 'digit' instead. Did you mean 'digits'?"),
        ("flip = true", "flipp = true", "must be a known key. Got an unknown one instead. Did you mean `flip`?"),
        ("rotation = 5.0", "rotation = -5.0", "rotation` must be ≥ 0. Got -5.0 instead."),
        ('"none"', '"nothing"', "`teachers.augmentation` must be one of 'none', 'digits', 'clothes', 'colour'. Got 'nothing'"),
        ('kind = "convnet"\nshards', 'kind = "convnets"\nshards', "Did you mean 'convnet'?"),
        ('kind = "convnet"\nshards', 'kind = "forest"\nshards', "`teachers.steps` must stay open for 'forest'"),
        ("widths = [8, 8]\nsteps", "widths = []\nsteps", "`teachers.widths`"),
        ("widths = [8, 8]\nsteps", 'widths = ["8"]\nsteps', "`teachers.widths.0` must be a valid integer. Got '8' instead."),
        ('learner = "consistency"', 'learner = "spreading"', "`student.consistency` must stay open for the learner 'spreading'."),
        ('kind = "convnet"\nwidths = [8, 8]\n[student', 'kind = "forest"\n[student', "`student.kind` must be one of 'convnet'"),
        ('kind = "convnet"\nwidths = [8, 8]\n[student', "widths = [8, 8]\n[student", "`student.widths` must come with a"),
        ("queries = 20", 'queries = 20\nquestions = "prototype"', "must be 'first', 'prototypes', 'seen' or 'uncertain'."),
    ],
)  # fmt: skip
def test_bad_words_are_refused_before_anything_is_read(old: str, new: str, message: str) -> None:
    assert old in NETWORKS
    with pytest.raises(RecipeError) as refused:
        learners.check(parse(NETWORKS.replace(old, new)))
    assert message in str(refused.value)


def test_networks_are_for_images(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"`kind` must be one for tables, because this data is no images. Got 'convnet'"):
        learners.network(parse(NETWORKS).teachers, np.zeros((3, 7), np.float32), 2)


def test_questions_by_name() -> None:
    for word, kind in (("first", type(None)), ("prototypes", Prototypes), ("seen", SeenPrototypes), ("uncertain", Uncertain)):
        recipe = parse(NETWORKS.replace("queries = 20", f'queries = 20\nquestions = "{word}"'))
        assert isinstance(learners.questions(recipe), kind)


def test_filters_that_choose_questions_need_torch_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = embedded("digits")
    seen = plain.model_copy(update={"aggregation": plain.aggregation.model_copy(update={"questions": "seen"})})
    monkeypatch.setitem(sys.modules, "torch", None)
    learners.require(plain, device="auto", engine="auto")
    with pytest.raises(RecipeError, match=r"`recipe` must do without networks and filters where torch is not installed"):
        learners.require(seen, device="auto", engine="auto")


def test_a_recipe_with_networks_is_read_but_not_run_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    recipe = embedded("pate/mnist-ours")
    with pytest.raises(RecipeError, match=r"`recipe` must do without networks and filters where torch is not installed"):
        run(recipe, tmp_path / "run", data=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_devices_and_engines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"`device` must be one of 'auto', 'cpu', 'cuda'. Got 'gpu' instead."):
        run(parse(NETWORKS), tmp_path / "run", device="gpu")
    with pytest.raises(RecipeError, match=r"Got 'stack' instead\. Did you mean 'stacked'\?"):
        run(parse(NETWORKS), tmp_path / "run", engine="stack")


def test_students_tell_how_far_they_are() -> None:
    make = learners.student(parse(NETWORKS), POOL, 10, device="cpu")
    assert make().classes == 10
    assert make() is not make()
    assert tells(make().fit)


FEATURES = NETWORKS.replace("[teachers]", '[features]\nsteps = 2\nbatch = 4\naugmentation = "digits"\n[teachers]')


def test_equal_networks_learn_to_see_once_and_a_resumed_run_begins_in_the_same_place(tmp_path: Path) -> None:
    from tutelage.nets.networks import Started

    recipe, said = parse(FEATURES), []
    pool = Public.of(np.random.default_rng(0).random((12, 8, 8)).astype(np.float32))
    begin = Beginnings(recipe, pool, tmp_path / "release", device="cpu", progress=lambda *now: said.append(now))
    one = learners.teachers(recipe, SECRET, 10, begin, device="cpu", engine="stacked", checkpoint=tmp_path).network
    two = begin(one.factory)
    assert isinstance(one, Started)
    assert (one.sha256, said) == (two.sha256, [("learning features", 2, 2)])
    again = Beginnings(recipe, pool, tmp_path / "release", device="cpu", progress=None)
    assert again(one.factory).sha256 == one.sha256
    elsewhere = Beginnings(recipe.model_copy(update={"seed": 1}), pool, tmp_path / "release", device="cpu", progress=None)
    assert elsewhere(one.factory).sha256 != one.sha256
    plain = Beginnings(parse(NETWORKS), pool, tmp_path, device="cpu", progress=None)
    assert plain(one.factory) is one.factory


def test_features_that_nobody_begins_with_are_refused() -> None:
    forests = FEATURES.replace('kind = "convnet"', 'kind = "forest"', 1)
    forests = forests.replace('widths = [8, 8]\nsteps = 3\naugmentation = "none"\n', "", 1).split("[student]")[0]
    with pytest.raises(RecipeError, match="`features` must come with"):
        parse(forests)
    with pytest.raises(RecipeError, match=r"`features\.augmentation` must be"):
        learners.check(parse(FEATURES.replace('augmentation = "digits"', 'augmentation = "digit"')))


def test_a_named_data_set_is_read_from_where_the_run_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    class Found(Exception):
        pass

    def load(name: str, directory: Any, *, split: str | None, published: bool, progress: Any) -> Any:
        asked.append((name, directory, split))
        raise Found

    monkeypatch.setattr(presets, "load", load)
    text = NETWORKS.replace('"digits"\n[privacy]', '"mnist"\nsplit = "half"\ndirectory = "here"\n[privacy]')
    for given in (None, tmp_path):
        with pytest.raises(Found):
            run(parse(text), tmp_path / "run", data=given)
    assert asked == [("mnist", "here", "half"), ("mnist", tmp_path, "half")]


def test_what_the_machine_lacks_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    networks = parse(NETWORKS)
    for choice, message in (({"engine": "ray"}, "where Ray is not installed"), ({"device": "cuda"}, "`device` must be one that")):
        with pytest.raises(RecipeError, match=message):
            run(networks, tmp_path / "run", **choice)
        assert not (tmp_path / "run").exists()
    records = embedded("pate/fashion-mnist-small")  # its filters are learned on a device, too
    with pytest.raises(RecipeError, match="`device` must be one that"):
        run(records, tmp_path / "run", device="cuda", data=tmp_path)
    assert not (tmp_path / "run").exists()
    learners.require(embedded("digits"), device="cpu", engine="ray")  # no network is trained there
