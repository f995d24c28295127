"""What is refused before anything is written: mistakes that public facts tell."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.students.blobs import CODEC, NETWORK, QUICK, blobs
from tests.walk.tiny import CLASSES, MeanTeachers, clouds, tiny_run
from tests.walk.tiny_masks import POOL, Painters, mask_run

import tutelage as tt
from tutelage.codecs.corrections import Corrections
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.rescaled import Rescaled
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.nets.networks import ConvNet
from tutelage.nets.unet import UNet
from tutelage.planning import Aggregation
from tutelage.students.adversarial import Adversarial, AdversarialStudent
from tutelage.students.consistency import ConsistencyStudent
from tutelage.students.heir import Heir
from tutelage.students.latent import Latent, LatentStudent
from tutelage.students.linear import LinearStudent
from tutelage.students.masks import MaskStudent
from tutelage.students.regions import RegionStudent
from tutelage.tasks import table
from tutelage.tasks.checks import check_place, check_records
from tutelage.tasks.task import Plan
from tutelage.teachers.classifier import Classifier
from tutelage.teachers.records import RecordTeachers
from tutelage.transfer import transfer

SIGHT = Sight.learn(tt.Public.of(clouds(60, 1)[0]), Seeing(axes=2, bins=3), device="cpu")


def untouched(tmp_path: Path) -> bool:
    return not list(tmp_path.iterdir())


# ── students of masks ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [MaskStudent, LatentStudent])
@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"window": (4, 4, 4)}, r"`window` must have 2 sizes, one per side\. Got \(4, 4, 4\)"),
        ({"window": 4}, r"`window` must have 2 sizes, one per side\. Got 4"),
        ({"window": (1, 1)}, r"`window` must let the network answer .* 1 channels of \(1, 1\)\. Got \(1, 1\)"),
        ({"network": UNet(shape=(3, 16, 16), widths=(8, 16))}, r"`network` must let the network answer .* of \(16, 16\)\. Got"),
        ({"network": UNet(shape=(1, 16, 16), widths=(8,), outputs=2)}, "`network` must let the network answer one number"),
        ({"threshold": 1.5}, r"`threshold` must lie in \(0, 1\), or be public data with masks\. Got 1\.5"),
        ({"threshold": tt.Public.of(blobs(3, 5)[0])}, "`threshold` must be a number, or public data with masks"),
    ],
)
def test_a_student_that_could_not_learn_or_look_costs_nothing(
    kind: Any, choices: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    how = {"training": QUICK} if kind is MaskStudent else {"settings": Latent(begin=QUICK, steps=1, again=None)}
    with pytest.raises(tt.RecipeError, match=rule):
        mask_run(tmp_path / "run", student=lambda: kind(**{"network": NETWORK, "device": "cpu", **how, **choices}))
    assert untouched(tmp_path)


@pytest.mark.parametrize("kind", [MaskStudent, LatentStudent])
@pytest.mark.parametrize("network", [NETWORK, None])
@pytest.mark.parametrize("window", [None, (8, 8), (32, 8)])
def test_a_student_that_can_is_let_pass(kind: Any, network: Any, window: Any) -> None:
    kind(network, window=window, device="cpu").check(tt.Public.of(blobs(2, 0)[0]))


def test_who_learns_from_whole_images_needs_a_network_for_them() -> None:
    """A window does not help a student that learns from codes: those are of whole masks."""

    def narrow() -> Any:
        from torch import nn

        class Small(nn.Module):
            def forward(self, x: Any) -> Any:
                if x.shape[-1] > 8:
                    raise MemoryError
                return x

        return Small()

    public = tt.Public.of(blobs(2, 0)[0])
    MaskStudent(narrow, window=(8, 8), device="cpu").check(public)
    with pytest.raises(tt.RecipeError, match="`network` must let the network answer"):
        LatentStudent(narrow, settings=Latent(free="all"), window=(8, 8), device="cpu").check(public)


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["private", "test"])
def test_records_of_another_shape_than_the_pool_s_cost_nothing(which: str, tmp_path: Path) -> None:
    parts = {"private": blobs(30, 0), "public": blobs(POOL, 1), "test": blobs(9, 2)}
    inputs, targets = parts[which]
    parts[which] = np.repeat(inputs, 3, axis=1), targets
    rule = rf"`{which}` must have records of the pool's shape \(1, 16, 16\)\. Got \(3, 16, 16\)"
    with pytest.raises(tt.RecipeError, match=rule):
        masks_transfer(tmp_path, parts)
    assert untouched(tmp_path)


@pytest.mark.parametrize("which", ["private", "test"])
@pytest.mark.parametrize("kind", [np.uint8, np.int16, bool])
def test_bytes_beside_floats_cost_nothing(which: str, kind: type, tmp_path: Path) -> None:
    """Private bytes with a pool of floats ran to an accuracy of 0.08 without a word."""
    parts = {"private": blobs(30, 0), "public": blobs(POOL, 1), "test": blobs(9, 2)}
    parts[which] = (255 * parts[which][0]).astype(kind), parts[which][1]
    rule = f"`{which}` must hold the pool's kind of numbers, float32. Got {np.dtype(kind).name} instead"
    with pytest.raises(tt.RecipeError, match=rule):
        masks_transfer(tmp_path, parts)
    assert untouched(tmp_path)


def test_a_test_part_of_another_scale_costs_nothing(tmp_path: Path) -> None:
    parts = {"private": blobs(30, 0), "public": blobs(POOL, 1), "test": blobs(9, 2)}
    parts["test"] = 255 * parts["test"][0], parts["test"][1]
    with pytest.raises(
        tt.RecipeError, match=r"`test` must be what a model of the pool takes\. .* must be scaled as the pool was"
    ):
        masks_transfer(tmp_path, parts)
    assert untouched(tmp_path)


def test_floats_of_any_width_go_together() -> None:
    (images, masks), pool, test = blobs(4, 0), blobs(4, 1)[0], tt.Public.of(*blobs(4, 2))
    check_records(tt.Private.of(images.astype(np.float64), masks), tt.Public.of(pool), test)


def test_grey_records_may_come_without_their_channel() -> None:
    (images, masks), pool, test = blobs(4, 0), blobs(4, 1)[0], tt.Public.of(*blobs(4, 2))
    grey = images[:, 0]
    for private, public in ((images, pool[:, 0]), (grey, pool), (grey, pool[:, 0])):
        check_records(tt.Private.of(private, masks), tt.Public.of(public), test)
    with pytest.raises(tt.RecipeError, match="must have records of the pool's shape"):
        check_records(tt.Private.of(grey, masks), tt.Public.of(np.repeat(images, 3, axis=1)), None)


@pytest.mark.parametrize("which", ["public", "test"])
def test_targets_of_another_shape_than_the_private_ones_cost_nothing(which: str, tmp_path: Path) -> None:
    parts = {"private": blobs(30, 0), "public": blobs(POOL, 1), "test": blobs(9, 2)}
    parts[which] = parts[which][0], np.zeros(len(parts[which][0]), int)
    rule = rf"`{which}` must have targets of the private ones' shape \(16, 16\)\. Got \(\) instead"
    with pytest.raises(tt.RecipeError, match=rule):
        masks_transfer(tmp_path, parts)
    assert untouched(tmp_path)


def masks_transfer(tmp_path: Path, parts: dict[str, Any]) -> Any:
    return transfer(
        tt.Private.of(*parts["private"]),
        tt.Public.of(*parts["public"]),
        test=tt.Public.of(*parts["test"]),
        teachers=Painters(),
        student=lambda: MaskStudent(NETWORK, training=QUICK, device="cpu"),
        codec=CODEC,
        budget=tt.Budget(8.0, 1e-5),
        shards=5,
        queries=20,
        out=tmp_path / "run",
    )


SMALL, EIGHT = DCT((8, 8), 9, 1.0), tt.Public.of(np.zeros((4, 1)), np.eye(64)[:4].reshape(4, 8, 8))


@pytest.mark.parametrize(
    "codec",
    [SMALL, Flips(SMALL, np.zeros(64, bool), 1.0), Rescaled.fit(SMALL, EIGHT)],
    ids=["itself", "its filter", "inside"],
)
def test_a_codec_of_another_size_than_the_masks_costs_nothing(codec: Any, tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match=r"`codec` must be one for masks of shape \(16, 16\)\. Got one for \(8, 8\)"):
        mask_run(tmp_path / "run", codec=codec)
    assert untouched(tmp_path)


def test_votes_for_classes_about_masks_cost_nothing(tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match="`codec` must be one for masks where targets are masks"):
        mask_run(tmp_path / "run", codec=tt.Votes(3))
    assert untouched(tmp_path)


@pytest.mark.parametrize("codec", [SMALL, CODEC, RegionVotes((8, 8), 4)], ids=["codes", "flips", "votes"])
def test_a_codec_for_masks_about_labels_costs_nothing(codec: Any, tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match="`codec` must be one for labels where targets are labels"):
        tiny_run(tmp_path / "run", codec=codec)
    assert untouched(tmp_path)


# ── classes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Knowing:
    """A student that says how many classes it, or its network, knows."""

    def __init__(self, classes: int | None = None, network: Any = None) -> None:
        self.classes, self.network = classes, network

    def fit(self, public: Any, labels: Any) -> Any:
        pytest.fail("the answers were paid for")


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"codec": tt.Votes(2)}, "`codec` must have a class for every label of `public`. Got 2 classes"),
        ({"test": tt.Public.of(clouds(9, 2)[0], np.full(9, 3))}, "`codec` must have a class for every label of `test`"),
        ({"teachers": Classifier(device="cpu")}, "`codec` must have a class for each of the teachers' 10. Got 3"),
        (
            {"teachers": Classifier(ConvNet(classes=4), device="cpu")},
            "`codec` must have a class for each of the teachers' 4. Got 3",
        ),
        (
            {"student": lambda: Knowing(classes=2)},
            "`student` must have as many classes as the codec, 3. Got 2",
        ),
        (
            {"student": lambda: Knowing(network=ConvNet(classes=2))},
            "`student` must have as many classes as the codec, 3. Got 2",
        ),
        (
            {"student": lambda: Knowing(classes=5), "aggregation": Aggregation("mean")},
            "`student` must have as many classes as the codec, 3. Got 5",
        ),
    ],
)
def test_labels_without_a_class_cost_nothing(choices: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match=rule):
        tiny_run(tmp_path / "run", **choices)
    assert untouched(tmp_path)


@pytest.mark.parametrize("odd", [7, -1, 0.5, float("nan"), "seven", None])
def test_a_private_label_without_a_class_decides_nothing(odd: Any, tmp_path: Path) -> None:
    inputs, targets = clouds(120, 0)
    outcome = labels_transfer(tmp_path, tt.Private.of(inputs, [odd, *targets.tolist()[1:]]))
    assert outcome.folder.guarantee.is_file()


def test_one_label_that_is_a_word_makes_words_of_all_and_decides_nothing(tmp_path: Path) -> None:
    inputs, targets = clouds(120, 0)
    labels = np.asarray(["seven", *targets.tolist()[1:]])
    assert labels.dtype.kind == "U"
    outcome = labels_transfer(tmp_path, tt.Private.of(inputs, labels))
    assert outcome.folder.guarantee.is_file()


def labels_transfer(tmp_path: Path, private: Any, public: Any = None, **choices: Any) -> Any:
    settings: dict[str, Any] = {
        "teachers": MeanTeachers(),
        "student": lambda: tt.SupervisedStudent("kernel"),
        "codec": tt.Votes(CLASSES),
        "budget": tt.Budget(8.0, 1e-5),
        "shards": 10,
        "queries": 30,
        "out": tmp_path / "run",
        **choices,
    }
    return transfer(private, public or tt.Public.of(clouds(60, 1)[0]), **settings)


def test_labels_of_the_pool_that_nobody_knows_may_be_below_zero(tmp_path: Path) -> None:
    pool, truth = clouds(60, 1)
    outcome = labels_transfer(tmp_path, tt.Private.of(*clouds(120, 0)), tt.Public.of(pool, np.where(truth == 0, -1, truth)))
    assert (outcome.labels >= 0).sum() == 30


@pytest.mark.parametrize(
    ("student", "rule"),
    [
        (tt.SpreadingStudent, "`student` must be one that learns shares where the method is 'mean'"),
        (AdversarialStudent, "`student` must be one that learns shares where the method is 'mean'"),
    ],
)
def test_a_student_that_cannot_learn_shares_costs_nothing(student: Any, rule: str, tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match=rule):
        tiny_run(tmp_path / "run", student=student, aggregation=Aggregation("mean"))
    assert untouched(tmp_path)


def test_a_student_of_images_about_tables_costs_nothing(tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match="`public` must hold images for a student that distorts them"):
        tiny_run(tmp_path / "run", student=ConsistencyStudent)
    assert untouched(tmp_path)


@pytest.mark.parametrize(
    ("student", "rule"),
    [
        (ConsistencyStudent(ConvNet(shape=(1, 28, 28))), "`network` must answer one number per class"),
        (ConsistencyStudent(NETWORK), "`network` must answer one number per class"),
        (AdversarialStudent(settings=Adversarial(kind="convolutional", generator=(8,) * 5)), "sides are multiples of 32"),
        (RegionStudent(RegionVotes((8, 8), 4)), r"`inputs` must be images of shape \(channels, \*\(8, 8\)\)"),
        (RegionStudent(RegionVotes((16, 16), 4), ConvNet(classes=3)), "`network` must answer two numbers about regions"),
        (
            Heir(LinearStudent(SIGHT, classes=3), lambda: ConsistencyStudent(NETWORK)),
            "`network` must answer one number per class",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused(student: Any, rule: str) -> None:
    with pytest.raises((tt.RecipeError, tt.DataError), match=rule):
        student.check(tt.Public.of(blobs(2, 0)[0]))


@pytest.mark.parametrize(
    "student",
    [
        ConsistencyStudent(),
        ConsistencyStudent(ConvNet(shape=(1, 16, 16), classes=3)),
        AdversarialStudent(),
        RegionStudent(RegionVotes((16, 16), 4)),
        Heir(LinearStudent(SIGHT, classes=3), ConsistencyStudent),
        Heir(LinearStudent(SIGHT, classes=3), tt.SpreadingStudent),
    ],
)
def test_networks_that_fit_are_let_pass(student: Any) -> None:
    student.check(tt.Public.of(blobs(2, 0)[0]))


@pytest.mark.parametrize(
    ("codec", "student", "rule"),
    [
        (Corrections(9, 3), LinearStudent(SIGHT, classes=3), "`codec` must be for the weights of `teachers`"),
        (Corrections(SIGHT.width, 3), LinearStudent(SIGHT, classes=2), "`codec` must be for the weights of `student`"),
        (
            Corrections(SIGHT.width, 3),
            Heir(LinearStudent(SIGHT, classes=2), tt.SpreadingStudent),
            "`codec` must be for the weights of `student`",
        ),
    ],
)
def test_corrections_of_other_weights_cost_nothing(codec: Any, student: Any, rule: str, tmp_path: Path) -> None:
    given = {"teachers": RecordTeachers(SIGHT), "codec": codec, "aggregation": Aggregation("mean"), "shards": 120}
    with pytest.raises(tt.RecipeError, match=rule):
        labels_transfer(tmp_path, tt.Private.of(*clouds(120, 0)), student=lambda: student, **given)
    assert untouched(tmp_path)


def test_test_labels_that_nobody_knows_are_not_scored(tmp_path: Path) -> None:
    rest, answers = clouds(60, 2)
    scores = tiny_run(tmp_path / "run", test=tt.Public.of(rest, np.where(np.arange(60) % 2, answers, -1))).scores
    alone = tiny_run(tmp_path / "half", test=tt.Public.of(rest[1::2], answers[1::2])).scores
    name = "control: public only, no answers (ε = 0)"
    assert scores[name] == alone[name]
    assert scores["private student"] > 0.9


# ── the place of a run ────────────────────────────────────────────────────────────────────────────────────────────────


def filled(place: Path, *names: str) -> Path:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"somebody's")
    return place


@pytest.mark.parametrize(
    "names", [("imagesTr/ann.nii.gz",), ("private/imagesTr/ann.nii.gz",), ("release/a", "notes.txt"), ("a",)]
)
def test_a_folder_of_other_files_is_no_place_for_a_run(names: tuple[str, ...], tmp_path: Path) -> None:
    place = filled(tmp_path / "scans", *names)
    (place / "private").mkdir(exist_ok=True)
    (place / "private").chmod(0o755)
    for resume in (False, True):
        with pytest.raises(tt.RecipeError, match="`out` must be a new or empty folder, or a run's"):
            tiny_run(place, resume=resume)
    assert not (place / "private" / "book.sqlite").exists()
    assert stat.S_IMODE((place / "private").stat().st_mode) == 0o755


@pytest.mark.parametrize("where", ["scans", "scans/runs/mine", "scans/..", "link/runs", "pool"])
def test_a_run_lies_apart_from_the_data(where: str, tmp_path: Path) -> None:
    scans, pool = filled(tmp_path / "scans", "imagesTr/ann.nii.gz"), tmp_path / "pool"
    (tmp_path / "link").symlink_to(scans)
    with pytest.raises(tt.RecipeError, match="`out` must lie apart from the folders of the data"):
        check_place(tmp_path / where, [scans, pool])


def test_a_new_folder_an_empty_one_and_a_run_are_places(tmp_path: Path) -> None:
    for name in ("new", "empty", "begun"):
        check_place(tmp_path / name, [tmp_path / "scans"])
        (tmp_path / name).mkdir()
        check_place(tmp_path / name)
    filled(tmp_path / "begun", "release/alignment-0.npz", "private/run.lock", ".DS_Store")
    check_place(tmp_path / "begun")
    tiny_run(tmp_path / "run")
    check_place(tmp_path / "run")


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"student": tt.SpreadingStudent()}, "`student` must make a new student at every call, .* an object of SpreadingStudent"),
        ({"student": None}, "`student` must make a new student at every call, .* Got None"),
        ({"student": lambda: None}, "`student` must make students, which have a `fit` or a `query`. Got one that makes None"),
        ({"teachers": None}, "`teachers` must have a `fit` and a `vote`. Got None"),
        ({"teachers": MeanTeachers}, "`teachers` must have a `fit` and a `vote`. Got the class MeanTeachers"),
        ({"codec": None}, "`codec` must be a codec, with a `bound`. Got None"),
        ({"codec": Corrections}, "`codec` must be a codec, with a `bound`. Got the class Corrections"),
        ({"budget": 8.0}, "`budget` must be Budget. Got an object of float"),
        ({"test": clouds(9, 2)[0]}, "`test` must be Public, or None. Got an object of ndarray"),
    ],
)
def test_what_is_not_of_its_kind_is_named(choices: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match=rule):
        tiny_run(tmp_path / "run", **choices)
    assert untouched(tmp_path)


def test_private_and_public_that_were_exchanged_are_named(tmp_path: Path) -> None:
    private, public = tt.Private.of(*clouds(120, 0)), tt.Public.of(clouds(60, 1)[0])
    with pytest.raises(tt.RecipeError, match=r"`private` must be Private\. Got an object of Public instead"):
        labels_transfer(tmp_path, public, private)
    assert untouched(tmp_path)


def test_the_same_student_twice_costs_nothing(tmp_path: Path) -> None:
    shared = tt.SupervisedStudent("kernel")
    with pytest.raises(tt.RecipeError, match=r"`student` must make a new student at every call\. Got the same one twice"):
        tiny_run(tmp_path / "run", student=lambda: shared)
    assert untouched(tmp_path)


def test_a_codec_of_somebody_else_s_may_call_anything_its_shape() -> None:
    class Mine:
        shape = (3,)

        def __init__(self) -> None:
            self.bound = tt.Votes(3).bound

    pool = tt.Public.of(np.zeros((4, 5)))
    assert table.named(None, Mine(), ()) == table.named(None, SMALL, ()) == "labels"
    table.opened("labels", Plan(pool, 2, Mine(), Aggregation(), target=()))
    with pytest.raises(tt.RecipeError, match="`codec` must be one for labels"):
        table.opened("labels", Plan(pool, 2, SMALL, Aggregation("mean"), target=()))


def test_a_threshold_may_be_any_real_number() -> None:
    public = tt.Public.of(blobs(2, 0)[0])
    MaskStudent(NETWORK, threshold=np.float32(0.4), device="cpu").check(public)  # type: ignore[arg-type]
    with pytest.raises(tt.RecipeError, match="`threshold` must lie in"):
        MaskStudent(NETWORK, threshold=np.float32(1.4), device="cpu").check(public)  # type: ignore[arg-type]
