"""Make a generator of labelled images from private ones: a few noisy sums, then as much computing as one likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.features.random_networks import RandomNetworks
from tutelage.features.scattering import Scattering
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.queries import Form, Query
from tutelage.runs import RunFolder
from tutelage.students.linear_rounds import LinearRounds, LinearRoundsModel
from tutelage.students.matching import Matching
from tutelage.tasks.statistics.functions import Missing, NetworkSums, Pixels, image_shape
from tutelage.tasks.statistics.walk import Sum, Walk, opened, planned

if TYPE_CHECKING:  # a description needs no torch
    from tutelage.nets.generators import Drawing, Generator

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
LABELLER = "control: linear model in noisy rounds, on real test images"


@final
@dataclass(frozen=True)
class OneShot:
    """Describe a generator that is fitted to sums which are released once.

    `sums`, `moments` and `labels` are shares of the budget's μ²: class sums of random networks' features, for the images; second
    moments by class in features learned on these images, for better ones; and a linear model in noisy rounds, for labels. Without
    a share for labels, images have the class that they were drawn for.
    """

    networks: RandomNetworks = field(default_factory=lambda: RandomNetworks(20, 8))
    matching: Matching = field(default_factory=lambda: Matching(steps=400, per=16, drawn=3, learning_rate=3e-3))
    labeller: LinearRounds = field(default_factory=LinearRounds)
    improving: Matching = field(default_factory=lambda: Matching(steps=300, per=32, drawn=2, learning_rate=6e-4))
    sums: float = 0.4
    moments: float = 0.0
    labels: float = 0.6
    middle: int = 64  # axes of each kind of features in the second moments
    latent: int = 64
    width: int = 8
    judged: int = 1200  # steps of the network that judges
    of_class: float = 0.0  # how much of an image's label is the class that it was drawn for, where there is a labeller
    random_state: int = 0

    def shares(self) -> dict[str, float]:
        """Give the shares of μ² that are above 0."""
        return {name: share for name, share in (("sums", self.sums), ("moments", self.moments), ("labels", self.labels)) if share}

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data."""
        return json.loads(json.dumps(asdict(self)))


@final
@dataclass(frozen=True)
class Generated:
    """Hold what `generate` gave: a generator that may be published, a labeller if one was released, and the price."""

    generator: Generator
    labeller: LinearRoundsModel | None
    folder: RunFolder
    guarantee: dict[str, Any]
    scores: dict[str, float]

    def sample(self, n: int, label: str | int | None = None, *, random_state: int = 0) -> tuple[Array, Array]:
        """Draw labelled images. Nothing is spent."""
        return self.generator.sample(n, label, random_state=random_state)

    def labelled(self, n: int, *, random_state: int = 0, blended: float = 0.5) -> tuple[Array, Array]:
        """Draw images, warp and blend some of them, and give each the labeller's shares (n, classes)."""
        return labelled(self.generator, self.labeller, n, random_state=random_state, blended=blended)

    def soft_labels(self, images: Array) -> Array:
        """Give the labeller's shares (n, classes) for drawn images."""
        if self.labeller is None:
            raise RecipeError("`labels` must have had a share of the budget. Got a run without a labeller instead.")
        return self.labeller.predict_proba(images)


def generate(
    private: Private,
    *,
    classes: Sequence[str] | int,
    budget: Budget,
    out: str | Path,
    values: tuple[float, float] = (0.0, 1.0),
    how: OneShot | None = None,
    test: Public | None = None,
    ledger: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
    purpose: str = "",
    recipe: str = "",
    device: str = "auto",
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
) -> Generated:
    """Release noisy sums over private images and fit a generator to them.

    `classes` are the names of the classes, or how many there are, and `values` the range of a pixel: both are declared, never
    read off the data. A class without records goes on like any other. `test` are public images with labels, for scores alone.
    Formal guarantee: everything under `out`/release is (ε, δ)-DP for the budget and unit.
    """
    from tutelage.nets.generators import Drawing
    from tutelage.nets.inputs import pick_device

    how, say = how or OneShot(), progress or _silent
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(map(str, classes))
    pixels = Pixels(image_shape(private), *map(float, values))
    place = str(pick_device(device))
    drawing = Drawing(pixels.shape, names, how.latent, how.width)  # a bad plan fails before anything is written
    mus = planned(budget, how.shares())
    private = private.labelled(len(names))
    plan = {"task": "images", "how": how.plain(), "classes": list(names), **pixels.plain()}
    given = {"ledger": ledger, "resume": resume, "seed": seed, "tuned_on": tuned_on, "data": data, "purpose": purpose}
    with opened(private, task="images", out=out, budget=budget, plan=plan, recipe=recipe, **given) as walk:
        generator = _generator(walk, how, drawing, pixels, place, say)
        labeller = _labeller(walk, how, names, pixels, mus["labels"], place, say) if how.labels else None
        generator.save(walk.folder.release / "generator")
        if labeller is not None:
            labeller.save(walk.folder.release / "student")
        shown, labels = generator.sample(10 * len(names), random_state=1)
        order = np.argsort(labels, kind="stable")
        np.savez_compressed(walk.folder.samples, inputs=shown[order], labels=labels[order])
        scores = _scores(generator, labeller, test, pixels, place, how, say)
        (walk.folder.release / "generator.md").write_text(card(drawing, budget, how), encoding="utf-8")
        document = walk.publish(scores, pages)
    return Generated(generator, labeller, walk.folder, document, scores)


def labelled(
    generator: Generator,
    labeller: LinearRoundsModel | None,
    n: int,
    *,
    random_state: int = 0,
    blended: float = 0.5,
    of_class: float = 0.0,
) -> tuple[Array, Array]:
    """Draw a training set: images, slightly warped and some blended with others, and shares (n, classes).

    A labeller is asked about every image as it is, so that whoever learns from the set learns the labeller's whole answer.
    """
    import torch

    from tutelage.nets import judges
    from tutelage.nets.mixing import mixed

    images, classes = generator.sample(n, random_state=random_state)
    shares = np.eye(len(generator.classes), dtype=np.float32)[classes]
    if labeller is None:
        return images, shares
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random_state)
        some, hot = mixed(judges.warped(torch.as_tensor(images), 0.7), torch.as_tensor(shares), blended)
    images = some.numpy()
    return images, np.asarray((1 - of_class) * labeller.predict_proba(images) + of_class * hot.numpy(), dtype=np.float32)


def card(drawing: Drawing, budget: Budget, how: OneShot) -> str:
    """Write what somebody must know who is given the generator alone."""
    channels, side, _ = drawing.shape
    return (
        f"# A private image generator\n\nDraws images of {side}×{side} pixels in {channels} channel(s), in 0…1, of\n"
        f"the classes {', '.join(drawing.classes)}. No public image was used. It was fitted to noisy sums over private images: "
        f"(ε = {budget.epsilon:g}, δ = {budget.delta:g}), unit: {budget.unit.name},\n"
        f"{budget.adjacency}; guarantee.json says more.\n\n"
        "Drawing images costs no privacy, however many. They are not real: build and test with them, and test on real data what\n"
        "was trained on them. Rare things inside a class are missing, and a class with few records may be nothing but noise.\n\n"
        f"Settings: {json.dumps(how.plain(), sort_keys=True)}\n\n"
        "```python\nfrom tutelage.nets.generators import Generator\n"
        'images, labels = Generator.load("generator.safetensors").sample(1000, random_state=0)\n```\n'
    )


def _generator(walk: Walk, how: OneShot, drawing: Drawing, pixels: Pixels, place: str, say: Progress) -> Generator:
    """Release class sums, and fit a generator to them."""
    import torch

    from tutelage.students.moments import Moments

    networks = how.networks
    function = NetworkSums(networks, pixels, device=place)
    what = Sum(how.sums, Form.GROUPED, function.width, groups=len(drawing.classes), nonnegative=True)
    query = Query.statistic(Form.GROUPED, {"asks": "class sums of random features", **networks.plain()})
    sums = walk.once(function, what, query, progress=say)
    np.savez_compressed(walk.folder.release / "statistics.npz", sums=sums.astype(np.float32))
    means, _ = function.means(sums)
    built = networks.built(pixels.shape, device=place)
    many = [Moments(network, torch.as_tensor(mean, device=place)) for network, mean in zip(built, means, strict=True)]
    matching = replace(how.matching, random_state=how.random_state)
    kept = walk.folder.private / "generator-fit.safetensors"
    first = matching.fit(
        drawing, many, device=place, checkpoint=kept, progress=lambda done, of: say("fitting the generator", done, of)
    )
    if not how.moments:
        return first
    from tutelage.tasks.statistics.second import MiddleFeatures, released_moments

    kept_at = walk.folder.private / "middle.safetensors"
    if not kept_at.exists():
        MiddleFeatures.learned(first, how.middle, how.judged, place, how.random_state).save(kept_at)
    features = MiddleFeatures.load(kept_at, first, place)  # as a run that goes on would: to the same bit
    moments = released_moments(walk, how.moments, features, pixels, len(drawing.classes), place, say)
    return replace(how.improving, random_state=how.random_state).fit(
        drawing,
        many,
        [moments],
        begin=first,
        device=place,
        checkpoint=walk.folder.private / "generator-improved.safetensors",
        progress=lambda done, of: say("improving the generator", done, of),
    )


def _labeller(
    walk: Walk, how: OneShot, names: tuple[str, ...], pixels: Pixels, mu: float, place: str, say: Progress
) -> LinearRoundsModel:
    """Release a linear model in noisy rounds."""
    assert walk.private.places is not None
    student = how.labeller.student(units=walk.private.places, mu=mu, shape=pixels.shape, classes=names, device=place)
    what = Sum(how.labels, Form.OUTER, student.seen.width, norm=student.clip, right=len(names), rounds=student.rounds)
    walk.rounds(Missing(student.seen, pixels), what, student, progress=say)
    return student.result()


def _scores(
    generator: Generator,
    labeller: LinearRoundsModel | None,
    test: Public | None,
    pixels: Pixels,
    place: str,
    how: OneShot,
    say: Progress,
) -> dict[str, float]:
    """Train judges on generated images, and test them and the labeller on public ones."""
    import torch

    from tutelage.nets import judges

    if test is None or test.targets is None:
        return {}
    real, labels = pixels(test.inputs), np.asarray(test.targets)
    scores = {"private student": 0.0}
    count = min(6000, 600 * len(generator.classes))
    images, drawn_for = generator.sample(count, random_state=how.random_state + 7)
    say("judging", 0, 2)
    scores["linear judge on scattering, classes as labels"] = linear_judge(
        images, drawn_for, real, labels, len(generator.classes)
    )
    say("judging", 1, 2)
    images, wanted = labelled(generator, labeller, 2 * count, random_state=how.random_state + 8, of_class=how.of_class)
    network = judges.train_judge(
        judges.small_cnn(pixels.shape, len(generator.classes)),
        torch.as_tensor(images, device=place),
        torch.as_tensor(wanted, dtype=torch.float32, device=place),
        steps=how.judged,
        batch=128,
        warp=0.3,
        random_state=how.random_state,
    )
    found = judges.accuracy(network, torch.as_tensor(real, device=place), torch.as_tensor(labels, device=place))
    scores["private student"] = found
    say("judging", 2, 2)
    if labeller is not None:
        scores[LABELLER] = float(np.mean(labeller.predict(real) == labels))
    return scores


def linear_judge(images: Array, labels: Array, real: Array, truth: Array, classes: int) -> float:
    """Fit a ridge classifier to the scattering of generated images, and give its accuracy on real ones."""
    features = Scattering()
    found = features(images).astype(np.float32)
    gram = found @ found.T
    gram[np.diag_indices_from(gram)] += 1e-2 * np.trace(gram) / len(gram)
    wanted = np.eye(classes, dtype=np.float32)[labels] - 1 / classes
    weights = found.T @ np.linalg.solve(gram, wanted)
    return float(np.mean((features(real).astype(np.float32) @ weights).argmax(axis=1) == truth))


def _silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""
