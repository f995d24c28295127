"""Make a distilled set of private images: one noisy grouped release, then images are matched to it for as long as one likes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tutelage.data.dataset import Private, Public
from tutelage.distillation.embedding import Embedding, joined
from tutelage.distillation.formations import check_formation, expand
from tutelage.distillation.lessons import Lesson, accuracies, learn
from tutelage.distillation.matching import ReleasedMatching
from tutelage.distillation.sets import DistilledSet, draw_grid
from tutelage.distillation.siamese import Siamese
from tutelage.distillation.stack import one_of
from tutelage.distillation.starts import chosen, noise
from tutelage.nets.classics import NormedConvNet, stages_for
from tutelage.nets.inputs import pick_device
from tutelage.nets.model import Model
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import DataError, Error, RecipeError
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.runs import RunFolder
from tutelage.students.linear_rounds import LinearRounds, LinearRoundsModel
from tutelage.tasks.statistics.functions import Missing, Pixels
from tutelage.tasks.statistics.walk import Sum, Walk, opened, planned
from tutelage.teachers.statistics import Rows

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
STUDENT = "private student"
LABELLER = "linear model in noisy rounds"
NOISE = "control: as many images of noise, with soft labels"
REAL = "control: as many random private images"
_KEPT = "tutelage.distilled-fit/1"
_AT_ONCE = 250


@final
@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Describe how a set is made. `sums` and `labels` are shares of the budget's μ²: for images, and for soft labels.

    `soft` is the weight of the labeller's answer in a label; the rest is the class that the image stands for.
    """

    ipc: int = 10
    formation: int | None = None  # None: 2, or 1 where images are smaller than 16 pixels
    embedding: Embedding = field(default_factory=lambda: Embedding(networks=16, width=16))
    matching: ReleasedMatching = field(default_factory=lambda: ReleasedMatching(steps=400))
    labeller: LinearRounds = field(default_factory=LinearRounds)
    sums: float = 0.7
    labels: float = 0.3
    soft: float = 0.5
    lesson: Lesson = field(default_factory=lambda: Lesson(steps=500, batch=64, rate=0.03))
    student_width: int = 32
    random_state: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.ipc, bool) or not isinstance(self.ipc, int) or self.ipc < 1:
            raise RecipeError(f"`ipc` must be a whole number ≥ 1. Got {self.ipc!r} instead.")
        if not 0 <= self.soft <= 1:
            raise RecipeError(f"`soft` must lie in [0, 1]. Got {self.soft!r} instead.")
        if self.soft and not self.labels:
            raise RecipeError("`soft` must be 0 where `labels` has no share of the budget. Got a weight without it instead.")

    def shares(self) -> dict[str, float]:
        """Give the shares of μ² that are above 0."""
        return {name: share for name, share in (("sums", self.sums), ("labels", self.labels)) if share}

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data."""
        return dict(json.loads(json.dumps(asdict(self))))

    def sized(self, shape: tuple[int, ...]) -> Distillation:
        """Settle what follows from the shape of an image."""
        return replace(self, formation=(2 if min(shape[1:]) >= 16 else 1) if self.formation is None else self.formation)

    def network(self, shape: tuple[int, int, int], classes: int) -> NormedConvNet:
        """Give the network that learns from the set."""
        return NormedConvNet(shape=shape, classes=classes, width=self.student_width, depth=stages_for(shape))

    def lesson_for(self, mirror: bool) -> Lesson:
        """Give the lesson; without an augmentation of its own, with the Siamese ones that keep a label."""
        kinds = ("colour", "crop", "cutout", *(("flip",) if mirror else ()), "scale", "rotate")
        return self.lesson if self.lesson.augmentation else replace(self.lesson, augmentation=Siamese(kinds))


@final
class EmbeddingSums:
    """Give an embedding and one constant, together of length at most 1: by class, their sums are means and a count."""

    def __init__(self, embedding: Embedding, pixels: Pixels, *, counted: float = 0.2, device: str = "cpu") -> None:
        self.embedding, self.pixels, self.counted, self.device = embedding, pixels, counted, device
        self.parts = embedding.built(pixels.shape, device=device)

    @property
    def key(self) -> str:
        """Describe the function."""
        return json.dumps({**self.embedding.plain(), **self.pixels.plain(), "counted": self.counted}, sort_keys=True)

    @property
    def width(self) -> int:
        """Count the coordinates of one class."""
        return self.embedding.networks * self.embedding.one(self.pixels.shape) + 1

    def prepare(self, inputs: Array) -> Array:
        """Keep the images, as bytes: features of all networks would fill the memory."""
        return np.rint(self.pixels(inputs) * 255).astype(np.uint8)

    def __call__(self, query: Query, prepared: Array, labels: Array) -> Rows:
        """Give features (n, width)."""
        shown = torch.as_tensor(prepared, device=self.device).float() / 255
        found = joined(self.parts, shown, size=_AT_ONCE) * math.sqrt(1 - self.counted**2)
        return Rows(torch.nn.functional.pad(found, (0, 1), value=self.counted).cpu().numpy())

    def means(self, sums: Array) -> list[Tensor]:
        """Turn noisy sums (classes, width) into one mean (classes, features) a network.

        The constant counts a class. One of which nothing stands out of the noise goes on, as a twentieth of an even share.
        """
        counts = sums[:, -1] / self.counted
        counts = np.maximum(counts, max(1.0, np.maximum(counts, 0).sum() / len(counts) / 20))
        scale = math.sqrt((1 - self.counted**2) / self.embedding.networks)
        whole = (sums[:, :-1] / scale / counts[:, None]).astype(np.float32)
        return [torch.as_tensor(part, device=self.device) for part in np.split(whole, self.embedding.networks, axis=1)]


@final
@dataclass(frozen=True)
class Distilled:
    """Hold what `distill` gave: a set that may be published, a network that learned from it, and the price."""

    set: DistilledSet
    student: Model
    labeller: LinearRoundsModel | None
    folder: RunFolder
    guarantee: dict[str, Any]
    scores: dict[str, float]


def distill(
    private: Private,
    *,
    classes: Sequence[str] | int,
    budget: Budget,
    out: str | Path,
    ipc: int | None = None,
    values: tuple[float, float] = (0.0, 1.0),
    how: Distillation | None = None,
    init: str | Array = "noise",
    test: Public | None = None,
    controls: bool = True,
    ledger: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
    device: str = "auto",
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
) -> Distilled:
    """Release class sums of random networks' features over all private images once, and match a few images a class to them.

    `classes` and `values` (the range of a pixel) are declared, never read off the data. `init` is "noise", public or generated
    images (classes, ipc, channels, height, width), or "private": then images begin as private records, as in the papers; that
    is a look, the ledger says so, and there is no guarantee. `test` are public images with labels, for scores alone; with
    `controls` a set of random private images is judged beside, under private/.
    Formal guarantee: everything under `out`/release is (ε, δ)-DP for the budget and unit, unless `init` is "private".
    """
    how, say = how or Distillation(), progress or _silent
    how = how if ipc is None else replace(how, ipc=ipc)
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(map(str, classes))
    pixels = Pixels(_shape(private), *map(float, values))
    place, how = str(pick_device(device)), how.sized(pixels.shape)
    start = _start(init, how, len(names), pixels)  # a bad plan fails before anything is written
    mus = planned(budget, how.shares())
    function = EmbeddingSums(how.embedding, pixels, device=place)
    private = private.labelled(len(names))
    begun = "given" if not isinstance(init, str) else init
    plan = {"task": "distilled", "how": how.plain(), "init": begun, "classes": list(names), **pixels.plain()}
    given = {"ledger": ledger, "resume": resume, "seed": seed, "tuned_on": tuned_on, "data": data}
    with opened(private, task="distilled", out=out, budget=budget, plan=plan, **given) as walk:
        means = _released(walk, how, function, len(names), say)
        labeller = _labeller(walk, how, names, pixels, mus["labels"], place, say) if how.labels else None
        images = _matched(walk, how, function, means, start, pixels, place, say)
        made = DistilledSet(images.flatten(0, 1).cpu().numpy(), _labels(images, how, labeller), how.formation or 1)
        student, scores = _learned(made, how, labeller, test, pixels, place, say)
        _write(walk.folder, made, student, labeller, names, budget, how)
        document = walk.publish(scores, pages)
        if controls and test is not None and test.targets is not None:
            _control(walk.folder, private, made, how, labeller, test, pixels, place, say)
    return Distilled(made, student, labeller, walk.folder, document, scores)


def _start(init: str | Array, how: Distillation, classes: int, pixels: Pixels) -> Tensor | None:
    """Give the first images, or nothing where they are private."""
    assert how.formation is not None
    check_formation(how.formation, pixels.shape)
    if isinstance(init, str):
        if init not in ("noise", "private"):
            raise RecipeError(f"`init` must be 'noise', 'private' or an array of images. Got {init!r} instead.")
        return noise(classes, how.ipc, pixels.shape, seed=how.random_state) if init == "noise" else None
    images, wanted = np.asarray(init, np.float32), (classes, how.ipc, *pixels.shape)
    if images.shape != wanted:
        raise DataError(f"`init` must be images of shape {wanted}. Got {images.shape} instead.")
    return torch.as_tensor(images)


def _released(walk: Walk, how: Distillation, function: EmbeddingSums, classes: int, say: Progress) -> list[Tensor]:
    """Release class sums once. Give one mean (classes, features) a network."""
    what = Sum(how.sums, Form.GROUPED, function.width, groups=classes)
    query = Query.statistic(Form.GROUPED, {"asks": "class sums of an embedding", **how.embedding.plain()})
    sums = walk.once(function, what, query, progress=say)
    np.savez_compressed(walk.folder.release / "distilled-sums.npz", sums=sums.astype(np.float32))
    return function.means(sums)


def _matched(
    walk: Walk,
    how: Distillation,
    function: EmbeddingSums,
    means: list[Tensor],
    start: Tensor | None,
    pixels: Pixels,
    place: str,
    say: Progress,
) -> Tensor:
    """Match images to class means: (classes, ipc, c, h, w). A run that goes on has its images again."""
    kept = walk.folder.private / "distilled-fit.safetensors"
    if kept.exists():
        return read_tensors(kept, kind=_KEPT)[0]["images"].to(place)
    if start is None:  # after the releases: once somebody looked, nothing more is answered
        reason = "distilled images begin as private records"
        seen = walk.ledger.reveal(Sealed(np.asarray(walk.private.inputs)), reason=reason)
        start = chosen(pixels(seen), walk.private.targets, len(means[0]), how.ipc, seed=how.random_state)
    assert how.formation is not None
    matching = replace(how.matching, formation=how.formation, seed=how.random_state)
    images, _ = matching.fit(function.parts, means, start.to(place), progress=lambda done, of: say("matching images", done, of))
    write_tensors(kept, {"images": images}, {"kind": _KEPT}, private=True)
    return images


def _labeller(
    walk: Walk, how: Distillation, names: tuple[str, ...], pixels: Pixels, mu: float, place: str, say: Progress
) -> LinearRoundsModel:
    """Release a linear model in noisy rounds: the source of soft labels."""
    assert walk.private.places is not None
    student = how.labeller.student(units=walk.private.places, mu=mu, shape=pixels.shape, classes=names, device=place)
    what = Sum(how.labels, Form.OUTER, student.seen.width, norm=student.clip, right=len(names), rounds=student.rounds)
    walk.rounds(Missing(student.seen, pixels), what, student, progress=say)
    return student.result()


def _labels(images: Tensor, how: Distillation, labeller: LinearRoundsModel | None) -> Array:
    """Label what the set shows: its class, mixed with what the labeller says."""
    assert how.formation is not None
    shown = expand(images.flatten(0, 1), how.formation)
    hot = np.repeat(np.eye(len(images), dtype=np.float32), len(shown) // len(images), axis=0)
    if labeller is None or not how.soft:
        return hot
    said = labeller.predict_proba(shown.cpu().numpy()).astype(np.float32)
    return np.asarray((1 - how.soft) * hot + how.soft * said)


def _learned(
    made: DistilledSet,
    how: Distillation,
    labeller: LinearRoundsModel | None,
    test: Public | None,
    pixels: Pixels,
    place: str,
    say: Progress,
) -> tuple[Model, dict[str, float]]:
    """Train a network on the set, its last weights the student, and test it and a control on public images."""
    factory = how.network(pixels.shape, made.classes)
    images, labels = made.shown(device=torch.device(place))
    lesson, scores = how.lesson_for(how.embedding.mirror), {}
    say("training on the set", 0, 2)
    weights = learn(factory, images, labels, lesson=lesson, seeds=(how.random_state,))
    say("training on the set", 1, 2)
    if test is not None and test.targets is not None:
        real, truth = pixels(test.inputs), np.asarray(test.targets)
        scores[STUDENT] = accuracies(factory, weights, real, truth)[0]
        if labeller is not None:
            scores[LABELLER] = float(np.mean(labeller.predict(real) == truth))
            blank = noise(made.classes, made.ipc * made.formation**2, pixels.shape, seed=how.random_state + 1).flatten(0, 1)
            said = torch.as_tensor(labeller.predict_proba(blank.numpy()), dtype=torch.float32, device=place)
            other = learn(factory, blank.to(place), said, lesson=lesson, seeds=(how.random_state,))
            scores[NOISE] = accuracies(factory, other, real, truth)[0]
    say("training on the set", 2, 2)
    return Model(factory, one_of(weights, 0), device="auto"), scores


def _write(
    folder: RunFolder,
    made: DistilledSet,
    student: Model,
    labeller: LinearRoundsModel | None,
    names: tuple[str, ...],
    budget: Budget,
    how: Distillation,
) -> None:
    """Write what may leave."""
    made.save(folder.release)
    student.save(folder.release / "student")
    if labeller is not None:
        labeller.save(folder.release / "labeller")
    some = min(made.ipc, 10)
    images = made.images.reshape(made.classes, made.ipc, *made.images.shape[1:])[:, :some].reshape(-1, *made.images.shape[1:])
    np.savez_compressed(folder.samples, inputs=images, labels=np.repeat(np.asarray(names), some))
    (folder.release / "distilled.md").write_text(card(made, names, budget, how), encoding="utf-8")


def card(made: DistilledSet, names: tuple[str, ...], budget: Budget, how: Distillation) -> str:
    """Write what somebody must know who is given the set alone."""
    return (
        f"# A private distilled set\n\n{len(made)} stored images, {made.ipc} of each of the classes {', '.join(names)}; every "
        f"one shows {made.formation}×{made.formation} images, each with its soft label.\nThey were matched to noisy sums over "
        "private images: "
        f"(ε = {budget.epsilon:g}, δ = {budget.delta:g}), unit: {budget.unit.name}, {budget.adjacency}; guarantee.json says "
        "whether that holds.\n\nTraining on the set costs no privacy, however often. The images are not real and show no "
        f"record; networks of\nanother kind may learn less from them.\n\nSettings: {json.dumps(how.plain(), sort_keys=True)}\n\n"
        "```python\nfrom tutelage.distillation.sets import DistilledSet\n"
        'images, labels = DistilledSet.load("distilled.safetensors").shown()\n```\n'
    )


def _control(
    folder: RunFolder,
    private: Private,
    made: DistilledSet,
    how: Distillation,
    labeller: LinearRoundsModel | None,
    test: Public,
    pixels: Pixels,
    place: str,
    say: Progress,
) -> None:
    """Judge as many random private images, for the owner's eyes: a failure leaves no figure and ends no run."""

    def judge() -> None:
        say("scoring the control", 0, 1)
        picked = chosen(pixels(private.inputs), private.targets, made.classes, made.ipc, seed=how.random_state)
        factory = how.network(pixels.shape, made.classes)
        flat = picked.flatten(0, 1).to(place)
        hot = torch.eye(made.classes, device=place).repeat_interleave(made.ipc, dim=0)
        lesson, found = how.lesson_for(how.embedding.mirror), {}
        kinds = {REAL: hot}
        if labeller is not None:
            said = torch.as_tensor(labeller.predict_proba(flat.cpu().numpy()), dtype=torch.float32, device=place)
            kinds[f"{REAL}, with the same soft labels"] = (1 - how.soft) * hot + how.soft * said
        for name, labels in kinds.items():
            weights = learn(factory, flat, labels, lesson=lesson, seeds=(how.random_state,))
            found[name] = accuracies(factory, weights, pixels(test.inputs), np.asarray(test.targets))[0]
        folder.write_inside(folder.private / "distilled-controls.json", json.dumps(found, indent=2) + "\n")
        draw_grid(picked[:, :10].numpy(), folder.private / "random-real.png")
        (folder.private / "random-real.png").chmod(0o600)
        say("scoring the control", 1, 1)

    try:
        quietly("control", judge, ours=Error)
    except Error as error:
        folder.write_inside(folder.failed_controls, f"{error}\n")


def _shape(private: Private) -> tuple[int, int, int]:
    """Read the shape of an image off the array, which is public."""
    shape = np.shape(private.inputs)[1:]
    if len(shape) == 2:
        shape = (1, *shape)
    elif len(shape) == 3 and shape[0] not in (1, 3) and shape[2] in (1, 3):
        shape = (shape[2], *shape[:2])
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < 8:
        raise DataError(
            f"`private` must hold images of at least 8×8 pixels, grey or colour. Got records of shape {shape} instead."
        )
    return int(shape[0]), int(shape[1]), int(shape[2])


def _silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""
