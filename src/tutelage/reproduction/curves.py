"""Two curves about the price: a student's Dice over the number of answers (000 Fig. 3), and ε over the teachers (003 Fig. 4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tutelage.answers import Answers
from tutelage.codecs.autoencoder import Autoencoder
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import VOLUMES
from tutelage.planning import MeanPlan
from tutelage.privacy import accounting
from tutelage.report import plots
from tutelage.reproduction import drawing
from tutelage.reproduction.compression import behind
from tutelage.reproduction.findings import Finding, Table
from tutelage.reproduction.pools import Bench
from tutelage.reproduction.studies import LEVELS
from tutelage.students.masks import MaskStudent

TEACHERS = 100  # the paper does not say how many its noise was calibrated for
DELTA = 1e-5
EPSILONS = (2.0, 8.0, math.inf)
NO_NOISE = "no noise"
FEWEST = 8  # answers that a curve begins with, at least


def students(bench: Bench) -> Finding:
    """Train students on N true masks behind an autoencoder and calibrated noise: no teachers, as in the paper."""
    every = {name: _curves(bench, name) for name in bench.sets}
    labels = {"xscale": "log", "xlabel": "answers N", "ylabel": "Dice of the student"}
    groups = [(found["curves"], {**labels, "xticks": found["counts"], "title": name}) for name, found in every.items()]
    drawing.save(drawing.curves(groups), bench.out / "students" / "students.svg")
    return Finding(
        name="students",
        title="000 Fig. 3: a student's Dice over the number of answers",
        settings="",
        tables=tuple(_table(name, found) for name, found in every.items()),
        pictures=("students.svg",),
        numbers=every,
        remarks=(
            f"True masks stand in for teachers, as in the paper, which does not say for how many its noise was: here {TEACHERS}. "
            "Scenes are those with the animal, as every scan of the paper holds a tumour. "
            + " ".join(_shown(name, found) for name, found in every.items()),
        ),
    )


def _curves(bench: Bench, name: str) -> dict[str, Any]:
    """Measure all students of one set."""
    most = (128 if bench.small else 2048) if name == "scenes" else 10**9
    pool, test, shapes = bench.lessons(name, most)
    counts = _counts(len(pool))
    sigmas = {_title(epsilon): [_sigma(epsilon, count) for count in counts] for epsilon in EPSILONS}
    coders: dict[float, Autoencoder] = {}
    scores: dict[str, list[float]] = {title: [] for title in sigmas}
    for place, count in enumerate(counts):
        noises = [noise[place] for noise in sigmas.values()]
        for sigma in noises:
            coders[sigma] = coders.get(sigma) or _coder(bench, shapes, sigma)
        found = _students(bench, [(coders[sigma], sigma) for sigma in noises], pool[:count], test)
        for title, score in zip(scores, found, strict=True):
            scores[title].append(score)
        bench.say(f"{name}: students", place + 1, len(counts) + 1)
    [exact] = _students(bench, [(None, 0.0)], pool, test)
    bench.say(f"{name}: students", len(counts) + 1, len(counts) + 1)
    curves: drawing.Curves = {title: (counts, found) for title, found in scores.items()}
    curves["true masks"] = (counts[-1:], [exact])
    return {"counts": counts, "curves": curves, "sigmas": sigmas, "true masks": exact}


def _title(epsilon: float) -> str:
    return NO_NOISE if math.isinf(epsilon) else f"ε = {epsilon:g}"


def _sigma(epsilon: float, count: int) -> float:
    """Calibrate the noise for all answers together."""
    if math.isinf(epsilon):
        return 0.0
    return MeanPlan(TEACHERS, count, None, epsilon, DELTA, "ball", 16).solved().sigma or 0.0


def _counts(most: int) -> list[int]:
    """List numbers of answers: all there are, and a quarter of them, and so on, while there is something to learn from."""
    counts = [most]
    while len(counts) < 4 and counts[0] >= 4 * FEWEST:
        counts.insert(0, counts[0] // 4)
    return counts


def _table(name: str, found: dict[str, Any]) -> Table:
    rows = []
    for title, noises in found["sigmas"].items():
        cells = zip(found["curves"][title][1], noises, strict=True)
        rows.append((title, *(f"{score:.3f} (σ {sigma:.2f})" for score, sigma in cells)))
    headings = ("", *(f"N = {count}" for count in found["counts"]))
    return Table(f"{name}: Dice; K = {TEACHERS}, δ = {DELTA:g}, noise exact for all N answers", headings, tuple(rows))


def _shown(name: str, found: dict[str, Any]) -> str:
    """Say plainly what the curves of a set show: what the codec takes off, what the noise does, and which N is best."""
    counts, most = found["counts"], found["counts"][-1]
    clean, exact = found["curves"][NO_NOISE][1][-1], found["true masks"]
    told = [f"{name}: {most:,} true masks without a codec give {exact:.3f}, behind it without noise {clean:.3f}"]
    for title in found["sigmas"]:
        scores = found["curves"][title][1]
        best = max(range(len(counts)), key=scores.__getitem__)
        if title != NO_NOISE:
            told.append(f"at {title} the best is {scores[best]:.3f}, with N = {counts[best]:,}")
    return "; ".join(told) + ". More answers are more to learn from and, at one ε, more noise on each."


def _coder(bench: Bench, public: Public, sigma: float) -> Autoencoder:
    """Train the codec under the noise that it will meet (Eq. 15)."""
    assert public.targets is not None
    flat = public.targets.ndim == 3
    steps, batch = bench.count(200, 3000 if flat else 1000), 64 if flat else 16
    return Autoencoder.fit(
        public, dim=16, activation="clip", noise=sigma, steps=steps, batch=min(batch, len(public)), device=bench.device
    )


def _students(bench: Bench, coded: list[tuple[Autoencoder | None, float]], pool: Public, test: Public) -> list[float]:
    """Train a student behind each codec and noise on the same images, all of them side by side, and score them."""
    masks, truth = pool.targets, test.targets
    assert masks is not None
    assert truth is not None
    values = [masks if coder is None else behind(coder, masks, sigma, 24) for coder, sigma in coded]
    shape = tuple(pool.inputs.shape[1:])
    network = UNet(shape=shape, widths=(8, 16) if bench.small else (16, 32, 64))
    student = MaskStudent(network, training=_training(bench, len(shape) == 3), device=bench.device)
    models = student.fit_all(pool.unlabelled(), [Answers(np.arange(len(pool)), np.asarray(one)) for one in values])
    return [float(dice(model.predict(test.inputs), truth).mean()) for model in models]


def _training(bench: Bench, flat: bool) -> Training:
    if bench.small:
        return Training(steps=bench.count(150, 0), batch=8, rate=1e-2, augmentation=None)
    if flat:
        return Training(steps=bench.count(0, 4000), batch=32, rate=2e-3, augmentation=LEVELS)
    return Training(steps=bench.count(0, 400), batch=4, rate=2e-3, augmentation=VOLUMES)


def teachers(bench: Bench) -> Finding:
    """Draw ε over the number of teachers at the paper's σ = 0.075, N = 62, δ = 1e-2, for every reading of "neighbour"."""
    plan = MeanPlan(None, 62, 0.075, 10.0, 1e-2)
    numbers = np.arange(8, 151)
    drawing.save(plots.epsilon_against_teachers(plan, numbers), bench.out / "teachers" / "teachers.svg")
    rows = []
    for count in (8, 16, 37, 74, 100):
        mu = math.sqrt(62) / (0.075 * count)
        rows.append((f"{count}", *(f"{accounting.mu_epsilon(reach * mu, 1e-2):.2f}" for reach in (1, 2))))
    return Finding(
        name="teachers",
        title="003 Fig. 4: ε over the number of teachers",
        settings="",
        tables=(Table("ε at δ = 1e-2, N = 62, σ = 0.075", ("K", "sensitivity 1/K, as published", "2/K, as it is"), tuple(rows)),),
        pictures=("teachers.svg",),
        remarks=(
            "Published: ε = 125.94 for K = 8 (a looser conversion) and single digits from K = 37. One record can turn its "
            "teacher's code into its opposite: K = 74 it is. And δ = 1e-2 for 248 patients is no guarantee.",
        ),
    )
