"""Small runs with fixed noise: released answers, student and scores must stay what they were when this file was written.

The fixture was recorded by `python -m tests.walk.test_golden` at the commit that the tag `golden-1` names. Record it anew only
where a change of behaviour is meant, and say so in the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.students.blobs import blobs
from tests.walk.tiny import clouds, tiny_run
from tests.walk.tiny_masks import Painters

import tutelage as tt
from tutelage.codecs.corrections import Corrections
from tutelage.codecs.dct import DCT
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.privacy import mechanisms
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.students.heir import Heir
from tutelage.students.linear import LinearStudent
from tutelage.students.questions import Uncertain
from tutelage.tasks.table import read_controls
from tutelage.teachers.records import RecordTeachers

KEPT = Path(__file__).parents[1] / "fixtures" / "golden.npz"
PROMISED = ("task", "epsilon", "delta", "mu", "quotes", "adaptive", "data_independent_epsilon", "events", "labels")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # other processors add floats up in another order
DIGITS = """
name = "golden digits"
[data]
set = "digits"
[privacy]
epsilon = 8.0
delta = 1e-5
[teachers]
kind = "kernel"
shards = 40
[aggregation]
method = "gnmax"
queries = 60
[student]
learner = "supervised"
kind = "forest"
"""


@contextmanager
def fixed_noise() -> Iterator[None]:
    """Draw the mechanisms' noise from seeded generators, one per kind and size, so that their order does not matter."""
    streams: dict[tuple[str, float], np.random.Generator] = {}

    def stream(kind: str, scale: float) -> np.random.Generator:
        key = (kind, float(f"{scale:.6g}"))
        return streams.setdefault(key, np.random.default_rng(len(kind) + int(1000 * np.log2(scale))))

    def gaussian(sigma: float, shape: Any) -> np.ndarray:
        return np.rint(stream("gaussian", sigma).standard_normal(shape) * sigma).astype(np.int64)

    def laplace(scale: float, shape: Any) -> np.ndarray:
        return np.rint(stream("laplace", scale).laplace(size=shape) * scale).astype(np.int64)

    with mock.patch.object(mechanisms, "rounded_gaussian", gaussian), mock.patch.object(mechanisms, "rounded_laplace", laplace):
        yield


class Shape:
    """A student of masks without torch: an image, seen through the mean of the released masks."""

    def __init__(self) -> None:
        self.mean = np.zeros(0)

    def fit(self, public: Any, answers: Any) -> Shape:
        made = Shape()
        made.mean = np.asarray(answers.mean)
        return made

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs[:, 0] * np.clip(self.mean, 0, 1) > 0.35).astype(np.uint8)

    def save(self, path: Path) -> Path:
        np.savez(path.with_suffix(".npz"), mean=self.mean)
        return path.with_suffix(".npz")


def digits(out: Path) -> Any:
    return run(parse(DIGITS), out)


def interactive(out: Path) -> Any:
    how = tt.Aggregation("interactive-gnmax", rounds=3, threshold=0.5, answers=25, sure=0.7)
    return tiny_run(out, aggregation=how, questions=Uncertain(components=2), budget=tt.Budget(20.0, 1e-5))


def shares(out: Path) -> Any:
    return tiny_run(out, aggregation=tt.Aggregation("mean"), student=lambda: tt.SupervisedStudent("linear"))


def corrections(out: Path) -> Any:
    (inputs, targets), (pool, truth), (rest, answers) = clouds(400, 0), clouds(90, 1), clouds(60, 2)
    public = tt.Public.of(pool, truth)
    sight = Sight.learn(public, Seeing(axes=8, bins=6), seed=0, device="cpu")

    def student() -> Heir:
        return Heir(LinearStudent(sight, classes=3, rounds=12), lambda: tt.SupervisedStudent("kernel"), sure=0.5)

    return tt.transfer(
        tt.Private.of(inputs, targets), public, teachers=RecordTeachers(sight), student=student, shards=400, queries=12,
        codec=Corrections(sight.width, 3, clip=0.5), budget=tt.Budget(8.0, 1e-5), out=out, test=tt.Public.of(rest, answers),
        purpose="golden corrections",
    )  # fmt: skip


def masks(out: Path, codec: Any = None) -> Any:
    (inputs, targets), (pool, truth), (rest, answers) = blobs(30, 0), blobs(24, 1), blobs(9, 2)
    return tt.transfer(
        tt.Private.of(inputs, targets), tt.Public.of(pool, truth), teachers=Painters(), student=Shape, shards=5, queries=20,
        codec=codec or DCT((16, 16), 30, 12.0), budget=tt.Budget(200.0, 1e-5), out=out, test=tt.Public.of(rest, answers),
        purpose="golden masks",
    )  # fmt: skip


def regions(out: Path) -> Any:
    return masks(out, RegionVotes((16, 16), 6, "superpixels", share=0.2))


RUNS: dict[str, Callable[[Path], Any]] = {
    one.__name__: one for one in (digits, interactive, shares, corrections, masks, regions)
}  # fmt: skip


def taken(name: str, out: Path) -> dict[str, np.ndarray]:
    """Make a run with fixed noise, and gather what it released and what its student says."""
    with fixed_noise():
        outcome = RUNS[name](out)
    found = {"answers": np.asarray(outcome.answers.values), "reinforced": outcome.reinforced}
    for more in ("shares", "codes", "chosen"):
        if getattr(outcome.answers, more, None) is not None:
            found[more] = np.asarray(getattr(outcome.answers, more))
    asked = blobs(9, 2)[0] if name in ("masks", "regions") else digits_test() if name == "digits" else clouds(60, 2)[0]
    found["student"] = np.asarray(outcome.model.predict(asked))
    promised = {field: outcome.guarantee[field] for field in PROMISED}
    found["document"] = np.asarray(
        json.dumps(rounded({"scores": outcome.scores, **promised}), sort_keys=True, ensure_ascii=False)
    )
    found["controls"] = np.asarray(json.dumps(rounded(read_controls(outcome.folder)), ensure_ascii=False))
    return found


def digits_test() -> np.ndarray:
    from tutelage.data.digits import digits as parts

    return np.asarray(parts(seed=0)[2].inputs)


def rounded(document: Any) -> Any:
    """Cut floats to six digits, in lists and objects, too."""
    if isinstance(document, dict):
        return {key: rounded(value) for key, value in document.items()}
    if isinstance(document, list):
        return [rounded(value) for value in document]
    return float(f"{document:.6g}") if isinstance(document, float) else document


@pytest.mark.parametrize("name", RUNS)
def test_a_run_releases_what_it_did(name: str, tmp_path: Path) -> None:
    found = taken(name, tmp_path / "run")
    with np.load(KEPT, allow_pickle=False) as file:
        kept = {key.split("/")[1]: file[key] for key in file.files if key.startswith(f"{name}/")}
    assert set(found) == set(kept)
    for key, value in found.items():
        if value.dtype.kind == "U" and key in ("document", "controls"):
            assert_close(json.loads(str(value)), json.loads(str(kept[key])))
        elif value.dtype.kind == "f":
            np.testing.assert_allclose(value, kept[key], **CLOSE, err_msg=key)
        else:
            np.testing.assert_array_equal(value, kept[key], err_msg=key)


def assert_close(found: Any, kept: Any) -> None:
    """Compare documents, floats within five digits."""
    if isinstance(kept, dict):
        assert set(found) == set(kept)
        for key, value in kept.items():
            assert_close(found[key], value)
    elif isinstance(kept, list):
        assert len(found) == len(kept)
        for one, other in zip(found, kept, strict=True):
            assert_close(one, other)
    elif isinstance(kept, float):
        assert found == pytest.approx(kept, rel=1e-4, abs=1e-4)
    else:
        assert found == kept


def test_other_noise_is_noticed(tmp_path: Path) -> None:
    """A run with noise of its own differs: the comparison above is not blind."""
    answers = np.asarray(shares(tmp_path / "run").answers.shares)
    with np.load(KEPT, allow_pickle=False) as file:
        assert not np.allclose(answers, file["shares/shares"], **CLOSE, equal_nan=True)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        kept = {f"{name}/{key}": value for name in RUNS for key, value in taken(name, Path(place) / name).items()}
    small = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in kept.items()}
    np.savez_compressed(KEPT, **small)
