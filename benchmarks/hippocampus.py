"""The hippocampus frontier: patient level, δ = 1e-5, 200 private, 40 public unlabelled and 20 test patients.

python benchmarks/hippocampus.py --data DIR --device cuda            every split in turn, then results/hippocampus.json
python benchmarks/hippocampus.py --data DIR --split 0 --rows FILE    one split, its rows as JSON lines
python benchmarks/hippocampus.py --collect FILE ...                  rows of splits that ran elsewhere, into the result

DIR holds the Decathlon's imagesTr and labelsTr, or is the .npz that `--pack` made of them for a machine without nibabel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import result
from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.data.dataset import Private, Public
from tutelage.metrics import dice, surface_dice
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit

SIZE = (32, 48, 32)
PRIVATE, PUBLIC, TEST = 200, 40, 20
DELTA = 1e-5
NORM = 58.0  # √(3.4 cm³ at 1 mm): the volume that published studies give for an adult's hippocampus. No mask was looked at
FREQUENCIES = 1000


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> Public:
    """Read all 260 patients, from NIfTI files or from the packed file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as packed:
            shape = tuple(packed["shape"])
            masks = np.unpackbits(packed["targets"], count=int(np.prod(shape))).reshape(shape)
            return Public.of(packed["inputs"].astype(np.float32), masks, source="Decathlon hippocampus")
    from tutelage.data.volumes import Volumes

    return Volumes.decathlon(path, size=SIZE).public()


def pack(source: Path, target: Path) -> None:
    """Write all patients to one file of half-precision images and bits."""
    everyone = read(source)
    assert everyone.targets is not None
    bits = np.packbits(everyone.targets.astype(bool))
    np.savez_compressed(target, inputs=everyone.inputs.astype(np.float16), targets=bits, shape=everyone.targets.shape)


def divided(everyone: Public, split: int) -> tuple[Private, Public, Public]:
    """Divide the patients by the split's number alone."""
    order = np.random.default_rng(split).permutation(len(everyone))
    private, public, test = np.split(order[: PRIVATE + PUBLIC + TEST], [PRIVATE, PRIVATE + PUBLIC])
    assert everyone.targets is not None
    patients = Private.of(everyone.inputs[private], everyone.targets[private], unit="patient", source=everyone.source)
    return patients, everyone[public], everyone[test]


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Remembered:
    """Give votes that were cast before: three draws of noise for three budgets need not ask the networks nine times."""

    votes: Sealed  # (teachers, queries, *space)
    places: dict[bytes, int]

    @classmethod
    def of(cls, teachers: Any, inputs: np.ndarray) -> Remembered:
        """Let the teachers vote once."""
        return cls(teachers.vote(inputs), {row.tobytes(): place for place, row in enumerate(inputs)})

    def vote(self, inputs: np.ndarray) -> Sealed:
        """Give the votes about these inputs."""
        rows = [self.places[row.tobytes()] for row in inputs]
        return self.votes.map(lambda opened: opened[:, rows])


def codecs(public: Public, names: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Build the codecs, each with what it needs to know of the public."""
    nothing = np.zeros(int(np.prod(SIZE)), dtype=bool)

    def orthant(frequencies: int) -> tuple[Callable[[], Any], str]:
        return lambda: Flips(DCT(SIZE, frequencies, 1.0), nothing, NORM), "no mask"

    table: dict[str, tuple[Callable[[], Any], str]] = {
        "orthant": orthant(FREQUENCIES),
        "orthant, 300 frequencies": orthant(300),
        "orthant, 3000 frequencies": orthant(3000),
        "dct": (lambda: DCT(SIZE, FREQUENCIES, NORM), "no mask"),
        "pixels": (lambda: Pixels(SIZE), "no mask"),
        "pca": (lambda: PCA.fit(public, components=32, folds=5), "public masks"),
    }
    for name in names:
        make, needs = table[name]
        yield name, make(), needs


def asked(codec: Any, teachers: Remembered, public: Public, epsilon: float, count: int) -> Answers:
    """Ask all questions of one budget through the door, with a book of its own."""
    budget = Budget(epsilon, DELTA, Unit("patient"))
    mechanism, _ = Aggregation("mean").built(budget, len(public), count, codec.bound)
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
        curator = Curator(teachers, codec, mechanism, ledger)
        codes = curator.codes(public.inputs)
        assert ledger.spent().epsilon <= epsilon * (1 + 1e-9)
        values = curator.decode(codes, public.inputs)
    return Answers(np.arange(len(public)), values, codes, mechanism.sigma / count, codec)  # type: ignore[attr-defined]


# ── one split ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Book:
    """Write rows as they come: a run that is stopped keeps what it had."""

    path: Path
    split: int
    begin: float
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


def split_rows(everyone: Public, split: int, how: argparse.Namespace) -> None:
    """Run one split: teachers once, then every codec, budget and draw."""
    from tutelage.nets.training import Training
    from tutelage.nets.unet import UNet
    from tutelage.nets.warps import VOLUMES
    from tutelage.students.latent import Latent, LatentStudent, freedom
    from tutelage.students.masks import MaskStudent
    from tutelage.teachers.segmenter import Segmenter

    book = Book(how.rows, split, time.perf_counter())
    private, public, test = divided(everyone, split)
    assert test.targets is not None
    assert public.targets is not None
    if how.dpsgd:
        return descent_rows(private, public, test, book, how)
    network = UNet(shape=(1, *SIZE))
    book.setting = {"teachers": how.teachers, "plain_teachers": how.plain_teachers, "latent_steps": how.latent_steps}
    teachers = Segmenter(
        network,
        training=Training(steps=how.teacher_steps, batch=2, rate=3e-3, augmentation=None if how.plain_teachers else VOLUMES),
        device=how.device,
        engine=how.engine,
        chunk=how.chunk,
        seed=split,
    ).fit(private, private.split(how.teachers, seed=split))
    book.row(what="teachers trained")
    both = np.concatenate([public.inputs, test.inputs])
    votes = Remembered.of(teachers, both)
    truth = np.concatenate([public.targets, test.targets])

    def stages(opened: np.ndarray) -> np.ndarray:
        alone = np.mean([dice(mask[PUBLIC:], test.targets) for mask in opened[:: max(1, len(opened) // 40)]])
        mean = opened.mean(axis=0, dtype=np.float32)
        return np.asarray([alone, dice(mean[PUBLIC:], truth[PUBLIC:]).mean(), dice(mean[:PUBLIC], truth[:PUBLIC]).mean()])

    teacher, ensemble, pool = Opened.look(votes.votes.map(stages))
    book.row(what="teacher", dice=round(teacher, 4))
    book.row(what="ensemble, no noise", dice=round(ensemble, 4), pool=round(pool, 4))
    training = Training(steps=how.student_steps, batch=4, rate=2e-3, augmentation=VOLUMES)
    if not how.no_controls:
        plain = MaskStudent(network, training=training, device=how.device, seed=split)
        everything = Public.of(private.inputs, source="private, for the control alone")
        book.scored("non-private", plain.fit(everything, Answers.exact(private.targets)).predict(test.inputs), test.targets)
    for name, codec, needs in codecs(public, how.codecs):
        first = name == how.codecs[0]
        draws = how.draws if first else how.other_draws
        pairs = [(epsilon, draw) for epsilon in how.epsilons for draw in range(draws)]
        with ThreadPoolExecutor(max_workers=how.threads) as pool_:
            sets = list(pool_.map(lambda pair: asked(codec, votes, public, pair[0], how.teachers), pairs))  # noqa: B023
        book.row(what="asked", codec=name)
        facts = [{"codec": name, "needs": needs, "epsilon": epsilon, "draw": draw} for epsilon, draw in pairs]
        for answers, fact in zip(sets, facts, strict=True):
            book.row(what="answers", dice=round(float(dice(answers.values, public.targets).mean()), 4), **fact)
            constant = np.broadcast_to(answers.mean, test.targets.shape)
            book.scored("mean shape, constant", constant, test.targets, **fact)
        if how.decoded and (first or not hasattr(codec, "measured")):
            plain = MaskStudent(network, training=training, device=how.device, seed=split)
            for model, fact in zip(plain.fit_all(public.unlabelled(), sets), facts, strict=True):
                book.scored("student of decoded answers", model.predict(test.inputs), test.targets, **fact)
        if not hasattr(codec, "measured"):
            continue
        again = Training(steps=how.student_steps, batch=4, rate=1e-3, augmentation=VOLUMES)
        for free in how.free:
            settings = Latent(begin=training, free=free, steps=how.latent_steps, rate=how.latent_rate, again=again)
            student = LatentStudent(network, settings=settings, device=how.device, seed=split)
            freed = [freedom(network(), answers) if free == "auto" else free for answers in sets]
            for fact, model, group in zip(facts, student.fit_all(public.unlabelled(), sets), freed, strict=True):
                stages_of = (("student of the mean shape", model.beginning), ("latent", model.began), ("latent, again", model))
                for what, one in stages_of:
                    own = one.probabilities(public.inputs)
                    known = round(float(dice(own, public.targets).mean()), 4)
                    masks = one.predict(test.inputs)
                    close = round(float(surface_dice(masks, test.targets).mean()), 4)
                    book.scored(what, masks, test.targets, pool=known, surface=close, free=free, freed=group, **fact)


def descent_rows(private: Private, public: Public, test: Public, book: Book, how: argparse.Namespace) -> None:
    """Train by DP-SGD at the same (ε, δ) and unit: every patient in every step, a smaller network, averaged weights."""
    from tutelage.baselines.dpsgd import DPSGD
    from tutelage.nets.unet import UNet
    from tutelage.nets.warps import VOLUMES

    assert test.targets is not None
    for epsilon in how.epsilons:
        plan = DPSGD(
            UNet(shape=(1, *SIZE), widths=(8, 16, 32)), epsilon=epsilon, delta=DELTA, steps=how.descent_steps, clip=0.5,
            learning_rate=how.descent_rate, averaging=0.9, augmentation=VOLUMES, multiplicity=1, chunk=20, device=how.device,
        )  # fmt: skip
        budget = Budget(epsilon, DELTA, Unit("patient"))
        with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
            model = plan.fit(private, ledger=ledger)
        assert public.targets is not None
        known = round(float(dice(model.probabilities(public.inputs), public.targets).mean()), 4)
        rate = {"steps": how.descent_steps, "learning_rate": how.descent_rate}
        book.scored("DP-SGD", model.predict(test.inputs), test.targets, epsilon=epsilon, pool=known, **rate)


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


KEYS = ("what", "codec", "needs", "free", "epsilon", "teachers", "plain_teachers", "latent_steps", "steps", "learning_rate")


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
    parser.add_argument("--rows", type=Path, default=Path("hippocampus.jsonl"))
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--other-draws", type=int, default=1, help="for every codec but the first")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--codecs", nargs="+", default=["orthant"])
    parser.add_argument("--free", nargs="+", default=["auto"])
    parser.add_argument("--teachers", type=int, default=PRIVATE)
    parser.add_argument("--teacher-steps", type=int, default=300)
    parser.add_argument("--student-steps", type=int, default=400)
    parser.add_argument("--latent-steps", type=int, default=300)
    parser.add_argument("--latent-rate", type=float, default=1e-2)
    parser.add_argument("--decoded", action="store_true", help="also a student of decoded answers")
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--plain-teachers", action="store_true", help="teachers that see their patient as it is")
    parser.add_argument("--dpsgd", action="store_true", help="the baseline alone, without teachers")
    parser.add_argument("--descent-steps", type=int, default=60)
    parser.add_argument("--descent-rate", type=float, default=3e-3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--threads", type=int, default=3)
    how = parser.parse_args()
    if how.pack:
        return pack(how.data, how.pack)
    if not how.collect:
        how.rows.unlink(missing_ok=True)
        for split in how.split:
            split_rows(read(how.data), split, how)
    lines = [line for path in how.collect or [how.rows] for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [json.loads(line) for line in lines]
    figures = {"table": table(rows), "rows": [row for row in rows if "dice" in row]}
    result.write("hippocampus", {"trained on": how.gpu, **figures})
    for row in figures["table"]:
        print(row)


if __name__ == "__main__":
    main()
