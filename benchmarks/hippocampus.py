"""The hippocampus frontier: patient level, δ = 1e-5, 200 private, 40 public unlabelled and 20 test volumes.

The 260 volumes are of 170 patients: 90 of them have both sides here (pairs.py). Patients are divided, never their volumes, and
every private patient is one teacher with one or two volumes: about 130 of them.

python benchmarks/hippocampus.py --data DIR --device cuda            every split in turn, then results/hippocampus.json
python benchmarks/hippocampus.py --data DIR --split 0 --rows FILE    one split, its rows as JSON lines
python benchmarks/hippocampus.py --data DIR --dpsgd --fedavg         the baselines alone: tried on split 0, then every split
python benchmarks/hippocampus.py --data DIR --run RUN                patients and teachers of `tutelage run hippocampus --out RUN`
python benchmarks/hippocampus.py --collect FILE ...                  rows of runs, or a result's, into the result; later ones win

Splits 8, 9 and 10 are the ones that the README quotes: no setting was chosen on them and nobody had looked at them.

DIR holds the Decathlon's imagesTr and labelsTr, or is the .npz that `--pack` made of them for a machine without nibabel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

import result
from tutelage.answers import Answers
from tutelage.codecs.autoencoder import Autoencoder
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regions import Regions
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Private, Public
from tutelage.features.alignment import aligned
from tutelage.metrics import dice, surface_dice
from tutelage.planning import Aggregation, Selection
from tutelage.privacy.bounds import Ball, Bound, Cube, OneHot
from tutelage.privacy.curator import Curator, Sighted
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Roster, Unit
from tutelage.runs import RunFolder
from tutelage.tasks.table import read_controls

SIZE = (32, 48, 32)
PUBLIC, TEST = 40, 20  # volumes
DELTA = 1e-5
NORM = 58.0  # √(3.4 cm³ at 1 mm): the volume that published studies give for an adult's hippocampus. No mask was looked at
FREQUENCIES = 1000
COMPONENTS = 32  # of codecs that are learned from public masks: 40 of them hold no more
BLOCK = (16, 16, 16)
SELECTED = "wavelet, chosen by teachers"
REGIONS = 64  # of neighbouring grey
VOTED = 14  # supervoxels, each about as large as those 3.4 cm³, of which a teacher votes for one: every scan holds a hippocampus
CHOSEN = {1.0: 100, 3.0: 30, 8.0: 100}  # wavelets that teachers choose, for each ε: what was best with true masks (sparse.py)
COPIES = 16  # bent copies of each public mask for a network, which would learn 40 masks by heart


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> Private:
    """Read all 260 volumes with their patients, from NIfTI files or from the packed file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as packed:
            shape = tuple(packed["shape"])
            masks = np.unpackbits(packed["targets"], count=int(np.prod(shape))).reshape(shape)
            told = {"units": packed["patients"], "unit": "patient", "source": "Decathlon hippocampus"}
            return Private.of(packed["inputs"].astype(np.float32), masks, **told)
    from tutelage.data.volumes import Volumes

    return Volumes.decathlon(path, size=SIZE).private()


def pack(source: Path, target: Path) -> None:
    """Write all patients to one file of half-precision images and bits."""
    everyone = read(source)
    bits, shape = np.packbits(everyone.targets.astype(bool)), everyone.targets.shape
    inputs = everyone.inputs.astype(np.float16)
    np.savez_compressed(target, inputs=inputs, targets=bits, shape=shape, patients=everyone.units)


def divided(everyone: Private, split: int) -> tuple[Private, Public, Public]:
    """Divide the patients by the split's number alone: whole ones, until test and public pool have their volumes."""
    names, sizes = np.unique(everyone.units, return_counts=True)
    room, part = {"test": TEST, "public": PUBLIC, "private": len(everyone)}, {}
    for place in np.random.default_rng(split).permutation(len(names)):
        part[names[place]] = next(name for name, left in room.items() if left >= sizes[place])
        room[part[names[place]]] -= sizes[place]
    homes = np.array([part[patient] for patient in everyone.units])
    public, test = (
        Public.of(everyone.inputs[homes == name], everyone.targets[homes == name], source=everyone.source)
        for name in ("public", "test")
    )
    assert (len(public), len(test)) == (PUBLIC, TEST)
    # The set is published, with its list of files: who is private in a split is public, and their contents alone are not.
    private = Roster.of([name for name in names if part[name] == "private"])
    return replace(everyone[homes == "private"], roster=private), public, test


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Remembered:
    """Give ballots that were cast and encoded before: three draws of noise for three budgets need not do so nine times.

    It stands on both sides of the curator, as teachers and as their codec. What is let out is clipped, noised and charged as
    ever: nothing of that happens here.
    """

    votes: Sealed  # (teachers, queries, *space), or encoded (teachers, queries, dimension)
    places: dict[bytes, int]
    codec: Any = None

    @property
    def key(self) -> str:
        """Describe this to the ledger's names of questions: a sealed value has no other description."""
        return f"Remembered({self.codec!r})"

    @classmethod
    def of(cls, teachers: Any, inputs: np.ndarray) -> Remembered:
        """Let the teachers vote once."""
        return cls(teachers.vote(inputs), {row.tobytes(): place for place, row in enumerate(inputs)})

    def through(self, codec: Any, inputs: np.ndarray, threads: int) -> Remembered:
        """Encode all votes about a pool once, some teachers in each thread; a codec that must see it is shown it first."""
        codec = codec.seeing(inputs) if isinstance(codec, Sighted) else codec

        def encoded(opened: np.ndarray) -> np.ndarray:
            with ThreadPoolExecutor(max_workers=threads) as pool:
                parts = np.array_split(opened, min(threads, len(opened)))
                return np.concatenate(list(pool.map(codec.encode, parts)))

        places = {row.tobytes(): place for place, row in enumerate(inputs)}
        return Remembered(self.vote(inputs).map(encoded), places, codec)

    def vote(self, inputs: np.ndarray) -> Sealed:
        """Give the votes about these inputs."""
        rows = [self.places[row.tobytes()] for row in inputs]
        return self.votes.map(lambda opened: opened[:, rows])

    @property
    def bound(self) -> Bound:
        """The codec's."""
        return self.codec.bound

    def encode(self, ballots: np.ndarray) -> np.ndarray:
        """Leave them as they are."""
        return ballots

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """As the codec does."""
        return np.asarray(self.codec.decode(codes, inputs))

    def __repr__(self) -> str:
        return repr(self.codec)


Made = Callable[[float], Any]  # from ε to a codec; most do not ask for it


def codecs(public: Public, names: Sequence[str], count: int, how: argparse.Namespace) -> Iterator[tuple[str, Made, str]]:
    """Build the codecs, each with what it needs to know of the public."""
    nothing = np.zeros(int(np.prod(SIZE)), dtype=bool)

    def orthant(frequencies: int) -> tuple[Made, str]:
        return lambda _: Flips(DCT(SIZE, frequencies, 1.0), nothing, NORM), "no mask"

    shapes = bent(public, how.device) if any(name.startswith("autoencoder") for name in names) else public

    # Networks are trained under the noise that codes will meet, so every budget has its own. It hangs on numbers alone.
    def learned(activation: Literal["ball", "clip", "tanh"]) -> tuple[Made, str]:
        bound = Cube(COMPONENTS) if activation == "tanh" else Ball(COMPONENTS, 1.0)
        given = {"dim": COMPONENTS, "activation": activation, "steps": how.codec_steps, "batch": 16, "device": how.device}

        def fit(epsilon: float) -> Autoencoder:
            return Autoencoder.fit(shapes, noise=built(epsilon, len(public), count, bound).sigma / count, **given)

        return fit, "public masks"

    def guided(epsilon: float) -> Any:
        from tutelage.codecs.guided import Guided

        inner = PCA.fit(public, components=COMPONENTS, folds=5)
        noise = built(epsilon, len(public), count, inner.bound).sigma / count
        return Guided.fit(inner, public, noise=noise, steps=how.codec_steps, batch=8, device=how.device)

    table: dict[str, tuple[Made, str]] = {
        "orthant": orthant(FREQUENCIES),
        "orthant, 300 frequencies": orthant(300),
        "orthant, 3000 frequencies": orthant(3000),
        "dct": (lambda _: DCT(SIZE, FREQUENCIES, NORM), "no mask"),
        "pixels": (lambda _: Pixels(SIZE), "no mask"),
        "pixels, orthant": (lambda _: Pixels(SIZE, NORM, "orthant"), "no mask"),
        "wavelet": (lambda _: wavelets(FREQUENCIES), "no mask"),
        SELECTED: (lambda _: wavelets(int(np.prod(SIZE))), "true masks, for its threshold"),
        "regions": (lambda _: Regions(SIZE, REGIONS, NORM, "levels"), "no mask"),
        "supervoxels": (lambda _: Regions(SIZE, REGIONS, NORM), "no mask"),
        "region votes": (lambda _: RegionVotes(SIZE, VOTED, "superpixels", share=0.01), "no mask"),
        "rescaled": (lambda _: Rescaled.fit(DCT(SIZE, FREQUENCIES, NORM), public), "public masks"),
        "blocks": (lambda _: Blocks.fit(public, block=BLOCK, components=COMPONENTS), "public masks"),
        "pca": (lambda _: PCA.fit(public, components=COMPONENTS, folds=5), "public masks"),
        "majority": (lambda _: Flips.fit(DCT(SIZE, FREQUENCIES, 1.0), public), "public masks"),
        "autoencoder": learned("ball"),
        "autoencoder, clip": learned("clip"),
        "autoencoder, tanh": learned("tanh"),
        "guided": (guided, "public masks"),
    }
    for name in names:
        yield name, *table[name]


def wavelets(coarsest: int) -> Wavelet:
    """Give the codec of this many wavelets, of which nobody had to look at a mask to choose them."""
    return Wavelet(SIZE, np.arange(coarsest), NORM, levels=3)


def selection(codec: Wavelet, masks: Any, kept: int) -> Selection:
    """Let teachers choose so many wavelets of each mask: those of a size that true masks tell, a gift to the technique."""
    sizes = np.abs(codec.encode(np.asarray(masks, dtype=np.float32)[None])[0])  # (questions, coefficients)
    return Selection(float(np.partition(sizes, -kept, axis=1)[:, -kept].mean()), kept)


def bent(public: Public, device: str) -> Public:
    """Give the public masks and bent copies of them: only masks that are public anyway are looked at."""
    import torch

    from tutelage.nets.inputs import pick_device
    from tutelage.nets.warps import VOLUMES

    masks = torch.from_numpy(np.repeat(np.asarray(public.targets, dtype=np.float32), COPIES, axis=0))
    draws = VOLUMES.draw(len(masks), generator=torch.Generator().manual_seed(0))
    place, parts = pick_device(device), zip(masks.split(64), draws.split(64), strict=True)
    copies = np.concatenate([VOLUMES.masks(some.to(place), drawn.to(place)).cpu().numpy() for some, drawn in parts])
    shapes = np.concatenate([np.asarray(public.targets, dtype=bool), copies > 0.5]).astype(np.uint8)
    return Public.of(np.zeros((len(shapes), 1), np.float32), shapes, source=public.source)  # no image: none is needed


def built(epsilon: float, queries: int, count: int, bound: Bound) -> Any:
    """Give the noisy mean that this many answers of this many teachers may have."""
    return Aggregation("mean").built(Budget(epsilon, DELTA, Unit("patient")), queries, count, bound)[0]


def asked(ballots: Remembered, public: Public, epsilon: float, count: int, chosen: Selection | None = None) -> Answers:
    """Ask all questions of one budget through the door, with a book of its own."""
    budget, votes = Budget(epsilon, DELTA, Unit("patient")), isinstance(ballots.bound, OneHot)
    how = Aggregation("gnmax" if votes else "mean", selection=chosen)
    mechanism, _ = how.built(budget, len(public), count, ballots.bound)
    first = how.selecting(budget, len(public), mechanism)
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
        curator = Curator(ballots, ballots, mechanism, ledger, selection=first)
        codes = curator.codes(public.inputs)
        assert ledger.spent().epsilon <= epsilon * (1 + 1e-9)
        values = curator.decode(codes, public.inputs)
    if votes or chosen is not None:
        return Answers(np.arange(len(public)), values)  # votes are no codes, and what was not chosen was not measured
    return Answers(np.arange(len(public)), values, codes, mechanism.sigma / count, ballots.codec)


# ── one split ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Book:
    """Write rows as they come: a run that is stopped keeps what it had."""

    path: Path
    split: int | str
    begin: float
    seed: int = 0  # of students
    setting: dict[str, Any] = field(default_factory=dict)

    def row(self, **facts: Any) -> None:
        """Write a row, and say it."""
        facts = {"split": self.split, "seconds": round(time.perf_counter() - self.begin, 1), **facts, **self.setting}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
        print(json.dumps(facts), flush=True)

    def scored(self, what: str, masks: Any, truth: np.ndarray, **facts: Any) -> None:
        """Score masks on the test patients."""
        found = dice(masks, truth)
        self.row(what=what, dice=round(float(found.mean()), 4), **facts)


@dataclass
class Study:
    """Three parts of the patients, and the teachers of the private ones."""

    name: int | str  # the split's number, or "recipe"
    seed: int
    private: Private
    public: Public
    test: Public
    teachers: Any


def split_study(everyone: Private, split: int, how: argparse.Namespace) -> Study:
    """Divide the patients, and train a teacher for each private one."""
    from tutelage.nets.unet import UNet
    from tutelage.nets.warps import VOLUMES
    from tutelage.teachers.segmenter import Segmenter

    private, public, test = divided(everyone, split)
    teachers = Segmenter(
        UNet(shape=(1, *SIZE)),
        training=training(how.teacher_steps, 3e-3, batch=2, augmentation=None if how.plain_teachers else VOLUMES),
        device=how.device,
        engine=how.engine,
        chunk=how.chunk,
        seed=split,
        checkpoint=how.keep and how.keep / "private" / f"split-{split}",
    )
    count = how.teachers or private.places
    return Study(split, split, private, public, test, teachers.fit(private, private.split(count, seed=split)))


def run_study(data: Path, run: Path, how: argparse.Namespace) -> Study:
    """Take up patients and teachers of a finished run of the recipe; had it others, its teachers would be refused here."""
    from tutelage.recipes.run import embedded, gathered
    from tutelage.recipes.segmenters import teachers

    kept, recipe = run / "private" / "teachers", embedded("segmentation/hippocampus")
    if not (kept / "teachers.safetensors").exists():
        raise SystemExit(f"`--run` must be a finished run of the recipe. Got {run.name!r}, without its teachers, instead.")
    private, public, test, _ = gathered(recipe, data, public_data=True)
    made = teachers(recipe, private.inputs, device=how.device, engine=how.engine, checkpoint=kept)
    shards = private.split(recipe.teachers.shards, seed=recipe.seed)
    return Study("recipe", recipe.seed, private, public, test, made.fit(private, shards))


def run_rows(run: Path, book: Book) -> None:
    """Take over what the run itself found: its student, controls and stages. The set is public, so that nothing is let out."""
    folder = RunFolder(run)
    guarantee = json.loads(folder.guarantee.read_text(encoding="utf-8"))
    found = {**json.loads(folder.scores.read_text(encoding="utf-8")), **read_controls(folder)}
    for name, dice_ in found.items():
        if not name.startswith(("surface Dice", "cross-entropy", "squared error")):
            book.row(what=f"the run's own: {name}", dice=round(dice_, 4), epsilon=guarantee["epsilon"], aligned=True)


def studies(how: argparse.Namespace) -> Iterator[Study]:
    """Take up a run's teachers, or train those of every split."""
    if how.run:
        yield run_study(how.data, how.run, how)
        return
    everyone = read(how.data)
    for split in how.split:
        yield split_study(everyone, split, how)


def study_rows(study: Study, how: argparse.Namespace) -> None:
    """Score one division: every codec, budget and draw."""
    from tutelage.nets.unet import UNet
    from tutelage.students.masks import MaskStudent

    book = Book(how.rows, study.name, time.perf_counter(), study.seed)
    private, public, test = study.private, study.public, study.test
    assert test.targets is not None
    assert public.targets is not None
    network, patients, count = UNet(shape=(1, *SIZE)), private.places, len(study.teachers)
    book.setting = {
        "teachers": how.teachers or "every patient",
        "plain_teachers": how.plain_teachers,
        "latent_steps": how.latent_steps,
        **({"division": study.name} if isinstance(study.name, str) else {}),
    }
    book.row(what="teachers trained", patients=patients)
    if how.run:
        run_rows(how.run, book)
    names = [*how.codecs, *(how.also if study.name == how.split[0] else ())]
    if not (names or how.aligned):
        return
    laid, shown = public, [public.inputs, test.inputs]
    if how.aligned:
        laid = aligned(public, device=how.device)
        shown.append(laid.inputs)
        book.row(what="aligned")
    votes = Remembered.of(study.teachers, np.concatenate(shown))
    truth, pool = np.concatenate([public.targets, test.targets]), len(public)

    def stages(opened: np.ndarray) -> np.ndarray:
        alone = np.mean([dice(mask[pool : len(truth)], test.targets) for mask in opened[:: max(1, len(opened) // 40)]])
        mean = opened[:, : len(truth)].mean(axis=0, dtype=np.float32)
        return np.asarray([alone, dice(mean[pool:], truth[pool:]).mean(), dice(mean[:pool], truth[:pool]).mean()])

    teacher, ensemble, asked_of = Opened.look(votes.votes.map(stages))
    book.row(what="teacher", dice=round(teacher, 4))
    book.row(what="ensemble, no noise", dice=round(ensemble, 4), pool=round(asked_of, 4))
    if not how.no_controls:
        plain = MaskStudent(network, training=learning(how), device=how.device, seed=book.seed)
        everything = Public(private.inputs, source="private, for the control alone")
        book.scored("non-private", plain.fit(everything, Answers.exact(private.targets)).predict(test.inputs), test.targets)
        helped = plain.fit(public.unlabelled(), Answers.exact(public.targets))  # for codecs that need these masks
        book.scored("public masks alone", helped.predict(test.inputs), test.targets)
    for asked_about, some, facts in ((laid, how.aligned, {"aligned": True}), (public, names, {})):
        for number, one in enumerate(codecs(asked_about, some, count, how)):
            draws = how.draws if number == 0 else how.other_draws
            codec_rows(book, votes, asked_about, test, one, facts, draws=draws, count=count, how=how)


def codec_rows(
    book: Book,
    votes: Remembered,
    public: Public,
    test: Public,
    coded: tuple[str, Made, str],
    facts: dict[str, Any],
    *,
    draws: int,
    count: int,
    how: argparse.Namespace,
) -> None:
    """Ask about a pool through one codec, for every budget and draw, and train the students."""
    from tutelage.nets.inputs import pick_device
    from tutelage.nets.unet import UNet
    from tutelage.nets.warps import VOLUMES
    from tutelage.students.latent import Latent, LatentStudent, freedom, measured, patience, told_shape
    from tutelage.students.masks import MaskStudent

    assert public.targets is not None
    assert test.targets is not None
    name, made, needs = coded
    network, plainly = UNet(shape=(1, *SIZE)), learning(how)
    pairs = [(epsilon, draw) for epsilon in how.epsilons for draw in range(draws)]
    sets = list(answered(name, made, votes, public, pairs, count, how))
    book.row(what="asked", codec=name, **facts)
    told = [{"codec": name, "needs": needs, **facts, "epsilon": epsilon, "draw": draw} for epsilon, draw in pairs]
    for answers, fact in zip(sets, told, strict=True):
        book.row(what="answers", dice=round(float(dice(answers.values, public.targets).mean()), 4), **fact)
        constant = np.broadcast_to(answers.mean, public.targets.shape)
        book.scored("mean shape, constant, on the pool", constant, public.targets, **fact)
        if not facts:  # a test volume lies where it lies: a constant that was made of others, laid over each other, misses it
            book.scored("mean shape, constant", np.broadcast_to(answers.mean, test.targets.shape), test.targets, **fact)
    linear = hasattr(sets[0].codec, "measured")  # only then can a student learn from codes
    if how.decoded or not linear:
        plain = MaskStudent(network, training=plainly, device=how.device, seed=book.seed)
        for model, fact in zip(plain.fit_all(public.unlabelled(), sets), told, strict=True):
            book.scored("student of decoded answers", model.predict(test.inputs), test.targets, **fact)
    if not linear:
        return
    numbers = sets[0].measured().values.size
    again = training(how.student_steps, 1e-3, batch=4, augmentation=VOLUMES)
    for free in how.free:
        begin = replace(plainly, steps=how.begin_steps or plainly.steps)
        given = {"begin": begin, "faint": how.faint, "again": again}
        settings = Latent(**given, free=free, steps=how.latent_steps, rate=how.latent_rate)
        student = LatentStudent(network, settings=settings, device=how.device, seed=book.seed)
        found = measured(sets)
        shapes = [told_shape(answers, one, pick_device(how.device)) for answers, one in zip(sets, found, strict=True)]
        freed = [
            freedom(network(), answers, shape, numbers, stretch=one.stretch) if free == "auto" else free
            for answers, shape, one in zip(sets, shapes, found, strict=True)
        ]
        began = [patience(*pair, settings) for pair in zip(sets, found, strict=True)]
        models = student.fit_all(public.unlabelled(), sets)
        for fact, model, group, length in zip(told, models, freed, began, strict=True):
            stages_of = (("student of the mean shape", model.beginning), ("latent", model.began), ("latent, again", model))
            for what, one in stages_of:
                own = one.probabilities(public.inputs)
                known = round(float(dice(own, public.targets).mean()), 4)
                masks = one.predict(test.inputs)
                close = round(float(surface_dice(masks, test.targets).mean()), 4)
                book.scored(what, masks, test.targets, pool=known, surface=close, free=free, freed=group, began=length, **fact)


def learning(how: argparse.Namespace) -> Any:
    """Say how students learn that look at masks, and those of the controls."""
    from tutelage.nets.warps import VOLUMES

    return training(how.student_steps, 2e-3, batch=4, augmentation=VOLUMES)


def training(steps: int, rate: float, *, batch: int, augmentation: Any) -> Any:
    """Say how a network learns: in bfloat16 wherever the machine can, as a GPU does of itself."""
    from tutelage.nets.training import Training

    return Training(steps=steps, batch=batch, rate=rate, augmentation=augmentation, precision="bfloat16")


def answered(
    name: str,
    made: Made,
    votes: Remembered,
    public: Public,
    pairs: Sequence[tuple[float, int]],
    count: int,
    how: argparse.Namespace,
) -> Iterator[Answers]:
    """Ask for every budget and draw; a codec that is the same for several budgets encodes once."""
    ballots: dict[str, Remembered] = {}
    of: dict[float, Remembered] = {}
    for epsilon in how.epsilons:
        codec = made(epsilon)
        if repr(codec) not in ballots:
            ballots[repr(codec)] = votes.through(codec, public.inputs, how.threads)
        of[epsilon] = ballots[repr(codec)]
    few = {epsilon: selection(of[epsilon].codec, public.targets, CHOSEN[epsilon]) for epsilon in how.epsilons if name == SELECTED}
    with ThreadPoolExecutor(max_workers=how.threads) as pool:
        yield from pool.map(lambda pair: asked(of[pair[0]], public, pair[0], count, few.get(pair[0])), pairs)


def baseline_rows(everyone: Private, how: argparse.Namespace) -> None:
    """Train the baselines at the same (ε, δ) and unit, without teachers; parts/direct.py says how settings are chosen."""
    from parts import direct

    bench = direct.Bench(DELTA, how.device, how.chunk)
    splits = {split: divided(everyone, split) for split in how.split}
    descents = [one for one in direct.DESCENTS if how.optimizer in (None, one.get("optimizer", "adam"))]
    kinds = {
        "DP-SGD": (how.dpsgd, bench.descent, descents),
        "FedAvg": (how.fedavg, bench.federation, direct.FEDERATIONS),
    }
    begin = time.perf_counter()
    for name, (wanted, planned, settings) in kinds.items():
        if not wanted:
            continue
        found = direct.rows(name, planned, settings, splits, bench=bench, epsilons=how.epsilons, minutes=how.minutes)
        for split, what, facts, masks in found:
            book = Book(how.rows, split, begin)
            if masks is None:
                book.row(what=what, **facts)
            else:
                truth = splits[split][2].targets
                assert truth is not None
                book.scored(what, masks, truth, **facts)


PLACES = ("rows", "keep", "device", "engine", "chunk", "threads", "gpu", "name")  # where and how fast, not what


def begin_rows(how: argparse.Namespace) -> None:
    """Begin the file of rows. With --keep those of a run that was told the same stay, until the same is scored again."""
    told = {name: value for name, value in vars(how).items() if name not in PLACES}
    told = json.loads(json.dumps({"what": "told", "told": told}, default=str))
    before = kept(how.rows) if how.keep and how.rows.exists() else []
    rows = before if before[:1] == [told] else [told]
    half = how.rows.with_suffix(".half")
    half.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    half.replace(how.rows)


class Opened:
    """Look at figures of a data set that is public anyway, which a benchmark may."""

    @staticmethod
    def look(sealed: Sealed) -> list[float]:
        """Write the figures under private/ and read them back, as a run's owner would."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "private"
            path.mkdir()
            sealed.store(path / "figures.npy")
            return [float(value) for value in np.load(path / "figures.npy")]


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────


KEYS = (
    "what", "codec", "needs", "aligned", "free", "began", "epsilon", "division", "teachers", "plain_teachers", "latent_steps",
    "widths", "steps", "optimizer", "momentum", "learning_rate", "rounds", "local_steps", "local_rate", "clip", "plain",
)  # fmt: skip


def kept(path: Path) -> list[dict[str, Any]]:
    """Read rows of a run, or those of a result; a run that was killed while it wrote leaves half a line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)["figures"]["rows"]
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let a later row stand for an earlier one of the same kind, split and draw: what was run again is not counted twice."""
    names = (*KEYS, "split", "draw")
    return list({tuple(row.get(name) for name in names): row for row in rows if {"dice", "pool"} & row.keys()}.values())


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give mean and deviation over splits and draws of every kind of row."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if "dice" in row:
            kinds.setdefault(tuple(row.get(key) for key in KEYS), []).append(row)
    found = []
    for kind, some in kinds.items():
        scores = [row["dice"] for row in some]
        facts = {key: value for key, value in zip(KEYS, kind, strict=True) if value is not None}
        spread = round(float(np.std(scores, ddof=1)), 4) if len(scores) > 1 else None
        found.append({**facts, "dice": round(float(np.mean(scores)), 4), "deviation": spread, "runs": len(scores)})
    return found


def main() -> None:
    """Run splits, or collect them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pack", type=Path, help="write the packed file and stop")
    parser.add_argument("--collect", type=Path, nargs="+")
    parser.add_argument("--gpu", default="this machine", help="with --collect: the device that the splits ran on")
    parser.add_argument("--name", default="hippocampus", help="of the result's file; other splits have one of their own")
    parser.add_argument(
        "--rows",
        type=Path,
        default=Path("hippocampus.jsonl"),
        help="written anew, but by a run with --keep that is told the same",
    )
    parser.add_argument("--run", type=Path, help="in place of splits: a finished run of the recipe, whose teachers are asked")
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder for splits' teachers: a run that was stopped, or another, takes them up. It belongs to one way of training: "
        "other --data, --teachers, --teacher-steps or --plain-teachers are refused",
    )
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--other-draws", type=int, default=1, help="for every codec but the first of either pool")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--codecs", nargs="*", default=["orthant"])
    parser.add_argument(
        "--aligned",
        nargs="*",
        default=["orthant, 3000 frequencies"],
        help="codecs on the pool whose volumes were laid over each other",
    )
    parser.add_argument("--also", nargs="+", default=[], help="further codecs, on the first of the splits alone")
    parser.add_argument("--free", nargs="+", default=["auto"])
    parser.add_argument("--teachers", type=int, help="fewer than one for every patient")
    parser.add_argument("--teacher-steps", type=int, default=300)
    parser.add_argument("--student-steps", type=int, default=400)
    parser.add_argument("--begin-steps", type=int, help="on the mean shape, in place of --student-steps")
    parser.add_argument("--faint", type=float, default=0.5, help="share of these where the shape is fainter than its noise")
    parser.add_argument("--latent-steps", type=int, default=300)
    parser.add_argument("--latent-rate", type=float, default=1e-2)
    parser.add_argument("--decoded", action="store_true", help="also a student of decoded answers, for every codec")
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--plain-teachers", action="store_true", help="teachers that see their patient as it is")
    parser.add_argument("--codec-steps", type=int, default=1000, help="of an autoencoder's training")
    parser.add_argument("--dpsgd", action="store_true", help="this baseline alone, without teachers")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], help="of DP-SGD: try its settings alone")
    parser.add_argument("--fedavg", action="store_true", help="likewise")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each baseline; fewer settings are tried in less")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--threads", type=int, default=3)
    how = parser.parse_args()
    if how.pack:
        return pack(how.data, how.pack)
    if how.run and (how.teachers or how.plain_teachers or how.also or how.keep or how.dpsgd or how.fedavg):
        parser.error(
            "--run has its own teachers: --teachers, --plain-teachers, --also, --keep, --dpsgd and --fedavg go with splits"
        )
    if how.keep and (how.dpsgd or how.fedavg or how.collect):
        parser.error("--keep is for splits' teachers: --dpsgd, --fedavg and --collect train none")
    if not how.collect and (how.dpsgd or how.fedavg):
        everyone = read(how.data)
        begin_rows(how)
        baseline_rows(everyone, how)
    elif not how.collect:
        for number, study in enumerate(studies(how)):
            if number == 0:  # not before there are teachers: those of another training are refused
                begin_rows(how)
            study_rows(study, how)
    rows = merged([row for path in how.collect or [how.rows] for row in kept(path)])
    figures = {"table": table(rows), "rows": rows}
    result.write(how.name, {"trained on": how.gpu, **figures})
    for row in figures["table"]:
        print(row)


if __name__ == "__main__":
    main()
