"""Dice from a teacher to the student (002 Table 4.1, 003 Table 1): published, at the papers' noise, and at an honest one."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tutelage.codecs.autoencoder import Autoencoder
from tutelage.codecs.dct import DCT
from tutelage.codecs.fitting import provenance, public_norm
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Public
from tutelage.nets.inputs import pick_device
from tutelage.planning import Aggregation, MeanPlan
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit
from tutelage.recipes.laid import laid
from tutelage.reproduction import direct, drawing, studies
from tutelage.reproduction.direct import BASELINES
from tutelage.reproduction.findings import Finding, Table
from tutelage.reproduction.pools import Bench
from tutelage.reproduction.studies import Column, Study
from tutelage.rounding import rounded_up
from tutelage.runs import RunFolder
from tutelage.students.latent import Latent, LatentStudent
from tutelage.students.masks import MaskStudent
from tutelage.students.regions import RegionStudent
from tutelage.tasks.scores import Score
from tutelage.tasks.table import read_controls, sealed_scores
from tutelage.teachers.regions import RegionTeachers
from tutelage.teachers.segmenter import Segmenter
from tutelage.transfer import transfer

ROWS = (
    ("teacher", Score.TEACHER),
    ("encoded teacher", Score.ENCODED_TEACHER),
    ("ensemble", Score.ENSEMBLE),
    ("ensemble + noise", Score.RELEASED_MASKS),
    ("student", Score.STUDENT),
    ("non-private", Score.ALL_MASKS),
    ("public only: an empty mask", Score.PUBLIC_ONLY),
    ("public masks alone, where a codec saw them", Score.PUBLIC_MASKS),
    ("mean shape, as the student's label", Score.MEAN_SHAPE_LABEL),
    ("mean shape itself", Score.MEAN_SHAPE),
)
STUDENT = "student"
BESIDE = (
    (STUDENT, Score.STUDENT),
    ("public masks alone", Score.PUBLIC_MASKS),
    ("the student of the mean shape", Score.MEAN_SHAPE_LABEL),
    ("an empty mask", Score.PUBLIC_ONLY),
    *((name, name) for name in BASELINES),
)
BEHIND = tuple(sealed_scores())  # without noise: shown only where the images are public
UNTOLD, APART, UNASKED = "under private/", "—", "not run"
DRAWN = "Stages before the noise are not private: they are shown because every image here is drawn."
SAID = (
    "Stages before the noise are not private: they are shown because whoever ran this said that the folder holds published "
    "data sets alone (--public-data)."
)
KEPT = (
    "Stages before the noise are not private, and a folder may hold anything: those figures and masks are "
    "under private/ of each run alone (--public-data shows them)."
)
TUNED = (
    "public or drawn images; how scans are aligned, how smooth a mean shape is, how long it is learned and how many frequencies "
    "are let out: true masks of published hippocampi, which may be of any of these patients; that more of them were looked at: "
    "after test patients of published hippocampi had scored better with them"
)
FREQUENCIES = 3000  # of masks that are released as they are; benchmarks/chosen.py
HELD = 2**29  # numbers of a matrix that a latent student measures with: 2 GiB
TOGETHER = 500  # networks of regions in one stack: some 30 GB
ROOM = 1 + 1e-9  # a budget's, over the ε that its noise was solved for; no part of what a table tells
PRICED = "«ε true» is priced exactly for all N answers, replace-one, from each run's own book."
WINS = "Where a control or a baseline wins: {}."
FACTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("ε true", "epsilon", lambda epsilon: f"**{rounded_up(epsilon / ROOM, 4)}**"),
    ("δ", "delta", lambda delta: rounded_up(delta, 6)),
    ("σ on the mean", "sigma", "{:.3g}".format),
    ("K", "teachers", "{:,}".format),
    ("N", "queries", "{:,}".format),
    ("unit of ε", "unit", str),
)


def thesis(bench: Bench) -> Finding:
    """Make 002 Table 4.1, and Fig. 4.3 from its first run."""
    return _made(bench, studies.thesis(bench), shown=bench.shows)


def tumours(bench: Bench) -> Finding:
    """Make 003 Table 1."""
    return _made(bench, studies.tumours(bench), shown=bench.shows)


def _made(bench: Bench, study: Study, *, shown: bool) -> Finding:
    """Run every column, and set the runs beside what was published; figures without noise only where they may be shown."""
    columns = []
    for column in study.columns:
        runs = [_run(bench, study, column, seed, shown=shown) for seed in range(bench.seeds)]
        if column.epsilon is not None and shown:  # on a stranger's data a baseline would be one more release, for a comparison
            runs = [{**run, **_direct(bench, study, column, seed)} for seed, run in enumerate(runs)]
        columns.append({key: [run[key] for run in runs if key in run] for key in {key for run in runs for key in run}})
    rows = [(name, study.published.get(name, ""), *(_cell(column, key, shown=shown) for column in columns)) for name, key in ROWS]
    for name in BASELINES:
        cells = (_beside(column, found, name, shown=shown) for column, found in zip(study.columns, columns, strict=True))
        rows.append((name, study.published.get(name, ""), *cells))
    rows.append(("ε claimed", study.published["ε claimed"], *("—" for _ in columns)))
    for name, key, write in FACTS:
        rows.append((name, study.published.get(name, ""), *(write(found[key][0]) for found in columns)))
    first, _ = _folder(bench, study, study.columns[0], 0)
    pictures = _strip(first, bench, study, shown=shown)
    beaten = _beaten(study, columns)
    return Finding(
        name=study.name,
        title=study.title,
        settings="",
        tables=(Table("Dice at every stage", ("stage", "published", *(column.title for column in study.columns)), tuple(rows)),),
        pictures=pictures,
        remarks=(
            *study.remarks,
            *((study.told,) if shown else ()),
            *((WINS.format(beaten),) if beaten else ()),
            f"{KEPT if not shown else DRAWN if bench.small else SAID} {PRICED}",
        ),
        numbers={column.name: found for column, found in zip(study.columns, columns, strict=True)},
    )


def _cell(column: dict[str, list[float]], key: str, *, shown: bool) -> str:
    """Print a mean over seeds, or where it is kept."""
    if key in BEHIND and not shown:
        return UNTOLD
    values = column.get(key, [])
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.3f}"


def _beside(column: Column, found: dict[str, list[float]], name: str, *, shown: bool) -> str:
    """Print a baseline, or why there is none: at a paper's own noise there is no honest (ε, δ) to train it at."""
    if column.epsilon is None:
        return APART
    return (_cell(found, name, shown=shown) if shown else "") or UNASKED


def _beaten(study: Study, columns: list[dict[str, list[float]]]) -> str:
    """Name the columns whose student something beside it beats, and all that do, the best first."""
    told = []
    for column, found in zip(study.columns, columns, strict=True):
        scores = {name: statistics.fmean(found[key]) for name, key in BESIDE if found.get(key)}
        own = scores.pop(STUDENT, math.inf)
        better = sorted((name for name in scores if scores[name] > own), key=scores.__getitem__, reverse=True)
        if better:
            named = ", ".join(f"{name} ({scores[name]:.3f})" for name in better)
            told.append(f"{named} over the student's {own:.3f} in «{column.title}»")
    return "; ".join(told)


def _direct(bench: Bench, study: Study, column: Column, seed: int) -> dict[str, float]:
    """Train the baselines at a column's (ε, δ, unit); columns of one price share them."""
    assert column.epsilon is not None
    return direct.trained(
        study.direct,
        study.private,
        study.test,
        Budget(column.epsilon * ROOM, column.delta, Unit(study.private.unit)),
        kept=bench.out / study.name / "baselines" / f"{column.epsilon:g}-{column.delta:g}-seed-{seed}.json",
        purpose=_digest(study.direct, column.epsilon, column.delta, seed, study.private, study.test, study.form),
        device=bench.device,
        seed=seed,
        say=bench.say,
    )


def _run(bench: Bench, study: Study, column: Column, seed: int, *, shown: bool) -> dict[str, Any]:
    """Carry out one whole transfer, or read it where it is finished."""
    folder, purpose = _folder(bench, study, column, seed)
    unit = Unit(study.private.unit)
    epsilon, sigma = column.epsilon, column.sigma
    plan = MeanPlan(column.teachers, column.queries, sigma, epsilon, column.delta, study.bound, study.variables, unit=unit)
    if column.codec == "autoencoder":
        solved = plan.solved()
        epsilon, sigma = solved.epsilon, solved.sigma
    assert epsilon is not None
    if not _finished(folder, purpose):
        codec, public = _codec(bench, study, column, sigma or 0.0, folder), study.public
        if column.aligned:
            public, _ = laid(public, {}, folder.create(resume=True), device=bench.device, progress=bench.progress)
        transfer(
            study.private,
            public,
            teachers=_teachers(bench, study, column, seed),
            student=_student(bench, study, column, seed),
            codec=codec,
            budget=Budget(epsilon * ROOM, column.delta, unit),
            shards=column.teachers,
            queries=column.queries,
            out=folder.root,
            aggregation=_aggregation(column),
            test=study.test,
            seed=seed,
            purpose=purpose,
            tuned_on=TUNED if column.aligned else "nothing but public or drawn images",
            benchmark=shown,
            resume=True,
            progress=bench.progress,
        )
    return _read(folder, column, shown=shown)


def _folder(bench: Bench, study: Study, column: Column, seed: int) -> tuple[RunFolder, str]:
    """Name a run by all that makes it, and give its book's purpose: what is run otherwise begins beside what was there."""
    learned = (study.private, study.public, study.teaching, study.crowded, study.learning)
    purpose = _digest(column, seed, *learned, len(study.shapes), study.factory(column), study.norm, study.form)
    return RunFolder(bench.out / study.name / column.name / f"seed-{seed}-{purpose[:8]}"), purpose


def _digest(*parts: Any) -> str:
    return hashlib.sha256(" ".join(map(repr, parts)).encode()).hexdigest()


def _finished(folder: RunFolder, purpose: str) -> bool:
    if not folder.finished:
        return False
    return bool(json.loads(folder.guarantee.read_text(encoding="utf-8"))["run"] == purpose)


def _aggregation(column: Column) -> Aggregation:
    if column.codec == "regions":
        return Aggregation("gnmax")
    return Aggregation("mean", sigma=None if column.sigma is None else column.sigma * column.teachers)


def _codec(bench: Bench, study: Study, column: Column, sigma: float, folder: RunFolder) -> Any:
    """Fit the paper's autoencoder under the noise it will meet, once: another fit would be another codec."""
    assert study.public.targets is not None
    shape = tuple(study.public.targets.shape[1:])
    if column.codec == "regions":
        return _regions(study)
    if column.codec == "flips":
        norm = study.norm or public_norm(np.asarray(study.shapes.targets))
        pixels, looked = math.prod(shape), None if study.norm else provenance(study.shapes)
        kept = min(FREQUENCIES, pixels // 4, HELD // pixels)
        return Flips(DCT(shape, kept, 1.0), np.zeros(pixels, dtype=bool), norm, provenance=looked)
    if column.codec == "pca":
        return _components(study, column)
    flat = len(shape) == 2
    settings: dict[str, Any] = {
        "dim": study.variables, "activation": study.activation, "noise": sigma, "seed": 0,
        "steps": bench.count(350, 4000 if flat else 1500), "batch": 64 if flat else 8,
    }  # fmt: skip
    path = folder.root.parent / f"codec-{_name(study.shapes, settings)}.safetensors"
    if path.exists():
        return Autoencoder.load(path, device=bench.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    coder = Autoencoder.fit(
        study.shapes, **settings, device=bench.device, progress=lambda done, total: bench.say("autoencoder", done, total)
    )
    coder.save(path)
    return coder


def _name(shapes: Public, settings: dict[str, Any]) -> str:
    """Name a codec by all that it is learned from: one of other noise or other masks must not be taken for it."""
    masks = np.ascontiguousarray(shapes.targets)
    state = hashlib.sha256(f"{sorted(settings.items())!r} {masks.dtype} {masks.shape}".encode())
    state.update(masks.data)
    return state.hexdigest()[:16]


def _components(study: Study, column: Column) -> PCA:
    """Keep the components of public masks whose variance exceeds the noise (000, Eq. 14), about their mean, and shrink."""
    norm = PCA.fit(study.shapes, components=64).norm
    unit, price = Unit(study.private.unit), (column.epsilon, column.delta)
    plan = MeanPlan(column.teachers, column.queries, None, *price, "ball", 64, norm, unit).solved()
    return PCA.fit(study.shapes, noise=plan.sigma or 0.0, norm=norm)


def _teachers(bench: Bench, study: Study, column: Column, seed: int) -> Segmenter | RegionTeachers:
    """Train teachers, or take up those of another column with as many: they never saw a codec."""
    kind = "papers" if column.codec == "autoencoder" else "own"  # each has networks of its own
    training = study.crowded if column.teachers > study.columns[0].teachers else study.teaching
    learned = _digest(training, study.private, study.public, study.factory(column), study.form)[:8]
    kept = bench.out / study.name / "private" / f"teachers-{kind}-{column.teachers}-{seed}-{learned}"
    given: dict[str, Any] = {"training": training, "device": bench.device, "seed": seed, "checkpoint": kept}
    if column.codec == "regions":  # stacked on a GPU, where they take all of its memory if nobody says how many at a time
        if bench.small:
            return RegionTeachers(_regions(study), engine="sequential", **given)
        return RegionTeachers(_regions(study), chunk=TOGETHER, **given)
    return Segmenter(study.factory(column), engine=_engine(bench), **given)


def _regions(study: Study) -> RegionVotes:
    """Cut a scene by its grey levels: a background and three animals."""
    return RegionVotes(tuple(study.private.inputs.shape[2:]), 4)


def _engine(bench: Bench) -> Literal["auto", "sequential", "recorded"]:
    """Search for the fastest only where that is worth its time; on a GPU a recording needs no compiler and little memory."""
    if bench.small:
        return "sequential"
    return "recorded" if pick_device(bench.device).type == "cuda" else "auto"


def _student(bench: Bench, study: Study, column: Column, seed: int) -> Callable[[], Any]:
    network = study.factory(column)
    if column.codec == "regions":
        training = replace(study.crowded, steps=max(2, 5 * study.crowded.steps // 3))  # one learns from more than each of many
        return lambda: RegionStudent(_regions(study), training=training, device=bench.device, seed=seed)
    if column.codec != "flips":
        return lambda: MaskStudent(network, training=study.learning, device=bench.device, seed=seed)
    steps = max(2, study.learning.steps)
    latent = Latent(begin=study.learning, steps=steps, again=replace(study.learning, rate=study.learning.rate / 2))
    return lambda: LatentStudent(network, settings=latent, device=bench.device, seed=seed)


def _read(folder: RunFolder, column: Column, *, shown: bool) -> dict[str, Any]:
    """Read what a finished run says: its scores, and what stands in its guarantee. What it keeps to itself only to be shown."""
    told = json.loads(folder.guarantee.read_text(encoding="utf-8"))
    scores = json.loads(folder.scores.read_text(encoding="utf-8"))
    event = told["events"][0]
    found = {**read_controls(folder), **scores} if shown else {key: scores[key] for key in scores if key not in BEHIND}
    return {
        **found,
        "epsilon": float(told["epsilon"]),
        "delta": float(told["delta"]),
        "sigma": float(event.get("sigma", event.get("scale"))) / column.teachers,  # of votes: on their shares
        "unit": told["unit"],
        "teachers": column.teachers,
        "queries": column.queries,
    }


def _strip(folder: RunFolder, bench: Bench, study: Study, *, shown: bool) -> tuple[str, ...]:
    """Draw some public images at every stage of the papers' own run that may be shown; a volume is cut through its middle."""
    with np.load(folder.samples, allow_pickle=False) as found:
        samples = {name: np.asarray(found[name], dtype=np.float32) for name in found.files}
    columns = [("image", samples["inputs"][:, 0]), ("truth", samples["truth"])]
    if shown:
        behind = np.load(folder.pictures, allow_pickle=False).astype(np.float32)  # (3, images, *space)
        columns += zip(("one teacher", "encoded", "ensemble"), behind, strict=True)
    columns += [("+ noise", samples["answers"]), ("student", samples["student"])]
    if study.public.inputs.ndim == 5:
        columns = [(title, masks[..., masks.shape[-1] // 2]) for title, masks in columns]
    drawing.save(drawing.strip(columns), bench.out / study.name / "strip.svg")
    return ("strip.svg",)
