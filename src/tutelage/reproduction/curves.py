"""Two curves about the price: a student's Dice over the number of answers (000 Fig. 3), and ε over the teachers (003 Fig. 4)."""

from __future__ import annotations

import math

import numpy as np

from tutelage.answers import Answers
from tutelage.codecs.autoencoder import Autoencoder
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.planning import MeanPlan
from tutelage.privacy import accounting
from tutelage.report import plots
from tutelage.reproduction import drawing
from tutelage.reproduction.compression import behind
from tutelage.reproduction.findings import Finding, Table
from tutelage.reproduction.pools import Bench
from tutelage.students.masks import MaskStudent

TEACHERS = 100  # the paper does not say how many its noise was calibrated for
DELTA = 1e-5


def students(bench: Bench) -> Finding:
    """Train students on N true masks behind an autoencoder and calibrated noise: no teachers, as in the paper."""
    counts = [16, 64, 128] if bench.small else [32, 128, 512, 2048]
    epsilons = [2.0, 8.0, math.inf]
    pool, test = bench.images(max(counts), seed=21), bench.images(bench.count(300, 2048), seed=22)
    shapes = bench.masks(bench.count(4000, 16_384), seed=23)
    public = Public.of(np.zeros((len(shapes), 1)), shapes)
    curves: drawing.Curves = {}
    sigmas: dict[str, list[float]] = {}
    coders: dict[float, Autoencoder] = {}
    for epsilon in epsilons:
        name = "no noise" if math.isinf(epsilon) else f"ε = {epsilon:g}"
        found = []
        for count in counts:
            sigma = 0.0
            if math.isfinite(epsilon):
                sigma = MeanPlan(TEACHERS, count, None, epsilon, DELTA, "ball", 16).solved().sigma or 0.0
            sigmas.setdefault(name, []).append(sigma)
            coders[sigma] = coders.get(sigma) or _coder(bench, public, sigma)
            found.append(_student(bench, coders[sigma], pool[:count], test, sigma))
            bench.say("students", len(found), len(counts))
        curves[name] = (counts, found)
    exact = _student(bench, None, pool, test, 0.0)
    curves["true masks"] = (counts[-1:], [exact])
    labels = {"xscale": "log", "xlabel": "answers N", "ylabel": "Dice of the student", "xticks": counts}
    drawing.save(drawing.curves([(curves, labels)]), bench.out / "students" / "students.svg")
    rows = []
    for name, noises in sigmas.items():
        cells = zip(curves[name][1], noises, strict=True)
        rows.append((name, *(f"{score:.3f} (σ {sigma:.2f})" for score, sigma in cells)))
    headings = ("", *(f"N = {count}" for count in counts))
    return Finding(
        name="students",
        title="000 Fig. 3: a student's Dice over the number of answers",
        settings="",
        tables=(Table(f"Dice; K = {TEACHERS}, δ = {DELTA:g}, noise exact for all N answers", headings, tuple(rows)),),
        pictures=("students.svg",),
        numbers={"curves": curves, "sigmas": sigmas, "true masks": exact},
        remarks=(
            f"True masks stand in for teachers, as in the paper; {counts[-1]} of them without a codec give {exact:.3f}. "
            f"The paper does not say for how many teachers its noise was: here {TEACHERS}.",
        ),
    )


def _coder(bench: Bench, public: Public, sigma: float) -> Autoencoder:
    """Train the codec under the noise that it will meet (Eq. 15)."""
    steps = bench.count(200, 3000)
    return Autoencoder.fit(public, dim=16, activation="clip", noise=sigma, steps=steps, device=bench.device)


def _student(bench: Bench, coder: Autoencoder | None, pool: Public, test: Public, sigma: float) -> float:
    assert pool.targets is not None
    assert test.targets is not None
    values = pool.targets if coder is None else behind(coder, pool.targets, sigma, 24)
    widths = (8, 16) if bench.small else (16, 32, 64)
    training = Training(steps=bench.count(150, 2000), batch=8, rate=1e-2 if bench.small else 2e-3, augmentation=None)
    student = MaskStudent(UNet(shape=(1, bench.size, bench.size), widths=widths), training=training, device=bench.device)
    model = student.fit(pool.unlabelled(), Answers(np.arange(len(pool)), np.asarray(values)))
    return float(dice(model.predict(test.inputs), test.targets).mean())


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
