"""The codec suites over every codec of masks, in two and three dimensions, and over broken twins, which they must refuse."""

from __future__ import annotations

import ast
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance.suites import check_codec, check_fit, check_masks

from tutelage.codecs import passes
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.directions import Directions
from tutelage.codecs.fitting import Provenance
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regions import Regions
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball

SHAPES = [(16, 12), (9, 8, 7)]


def made(shape: tuple[int, ...], count: int = 40, seed: int = 0) -> Public:
    """Images (1, *shape) with one bright box each, and the box as the mask."""
    rng = np.random.default_rng(seed)
    targets = np.zeros((count, *shape), np.uint8)
    for mask in targets:
        low = [rng.integers(0, size // 2) for size in shape]
        mask[tuple(slice(start, start + rng.integers(2, size // 2 + 1)) for start, size in zip(low, shape, strict=True))] = 1
    noise = rng.normal(0, 0.05, (count, 1, *shape))
    return Public.of((0.2 + 0.6 * targets[:, None] + noise).astype(np.float32), targets, source="boxes")


def block(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (5, 4, 3)[: len(shape)]


def guided(codec: Any, public: Any) -> Any:
    """A decoder that sees the image, after two steps of training."""
    module = pytest.importorskip("tutelage.codecs.guided")
    return module.Guided.fit(codec, public, noise=0.3, widths=(8,), steps=2, batch=4, device="cpu")


FITS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "pixels": lambda public, shape: Pixels.fit(public),
    "dct": lambda public, shape: DCT.fit(public, kept=20),
    "flips of dct": lambda public, shape: Flips.fit(DCT.fit(public, kept=20), public),
    "pca": lambda public, shape: PCA.fit(public, components=6),
    "pca, paper": lambda public, shape: PCA.fit(public, noise=0.4, centre=False),
    "flips of pca": lambda public, shape: Flips.fit(PCA.fit(public, noise=0.4), public, reference="nothing"),
    "blocks": lambda public, shape: Blocks.fit(public, block=block(shape), noise=0.3),
    "blocks, paper": lambda public, shape: Blocks.fit(public, block=block(shape), components=3, centre=False, clip="block"),
    "flips of blocks": lambda public, shape: Flips.fit(Blocks.fit(public, block=block(shape), components=3), public),
    "wavelet": lambda public, shape: Wavelet.fit(public, kept=20, wavelet="db2", levels=1),
    "flips of wavelet": lambda public, shape: Flips.fit(Wavelet.fit(public, kept=20), public),
    "rescaled flips": lambda public, shape: Rescaled.fit(Flips.fit(DCT.fit(public, kept=20), public), public, noise=0.1),
    "rescaled pca": lambda public, shape: Rescaled.fit(PCA.fit(public, components=6), public, noise=0.1),
    "rescaled dct": lambda public, shape: Rescaled.fit(DCT.fit(public, kept=20), public),
    "rescaled pixels": lambda public, shape: Rescaled.fit(Pixels.fit(public), public),
    "regions": lambda public, shape: Regions.fit(public, regions=8),
    "regions, levels": lambda public, shape: Regions.fit(public, regions=8, method="levels"),
    "guided dct": lambda public, shape: guided(DCT(shape, 20, 5.0), public),
    "guided regions": lambda public, shape: guided(Regions(shape, 8, 5.0), public),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FITS)
def test_fitted_codecs(name: str, shape: tuple[int, ...]) -> None:
    public, rng = made(shape), np.random.default_rng(1)
    codec = FITS[name](public, shape)
    queries = 5
    predictions = np.clip(public.targets[:queries] + rng.normal(0, 0.3, (4, queries, *shape)), 0, 1).astype(np.float32)
    released = codec.encode(predictions).mean(axis=0)
    check_codec(codec, predictions, public.inputs[:queries], released)
    check_masks(codec, shape, queries=queries)
    other = made(shape, seed=1)
    faint = Public.of(other.inputs, 0.9 * other.targets, source="faint boxes")  # other norms, too
    check_fit(lambda data: FITS[name](data, shape), public, faint)
    assert codec.decode(released, public.inputs[:queries]).shape == (queries, *shape)


def test_directions_of_several_rows() -> None:
    codec, rng = Directions((4, 3), 0.5, rows=6), np.random.default_rng(2)
    predictions = rng.normal(0, 0.01, (5, 2, 6, 4, 3))
    released = codec.encode(predictions).mean(axis=0)
    check_codec(codec, predictions, np.zeros((2, 1)), released)
    assert np.allclose(codec.decode(released, np.zeros((2, 1))), predictions.mean(axis=0))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codecs_that_are_not_fitted(shape: tuple[int, ...]) -> None:
    public = made(shape, 3)
    for codec in (
        Pixels(shape),
        Pixels(shape, 2.0, "orthant"),
        DCT(shape, 5, 1.0),
        Wavelet(shape, np.arange(9), 1.0),
        Regions(shape, 4, 1.0),
        Flips(DCT(shape, 5, 1.0), np.zeros(shape), 2.0),
    ):
        codes = codec.encode(public.targets[None])
        check_codec(codec, np.repeat(public.targets[None], 2, axis=0), public.inputs, codes[0])
        check_masks(codec, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", ["greys", "levels", "superpixels"])
def test_votes_for_regions(method: Any, shape: tuple[int, ...]) -> None:
    public, rng = made(shape, 5), np.random.default_rng(1)
    codec = RegionVotes(shape, 6, method)
    predictions = np.clip(public.targets + rng.normal(0, 0.3, (4, 5, *shape)), 0, 1).astype(np.float32)
    seen = codec.seeing(public.inputs)
    check_codec(seen, predictions, public.inputs, seen.encode(predictions)[0].argmax(axis=-1))
    check_masks(seen, shape, queries=5)
    assert repr(codec.seeing(public.inputs)) == repr(seen)


def test_every_codec_goes_through_the_suite() -> None:
    """One that is added must be named in a file that calls it."""
    root = Path(__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("test_*.py")]
    called = " ".join(text for text in texts if "check_codec(" in text or "check_sighted(" in text)
    found = []
    for path in sorted((root / "src/tutelage/codecs").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and {"bound", "encode", "decode"} <= {
                getattr(inside, "name", "") for inside in node.body
            }:
                found.append(node.name)
    assert len(found) > 10
    assert [name for name in found if name not in called] == []


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def beyond(work: Callable[[], np.ndarray]) -> int:
    """Say how much is held at the worst moment beside what comes out, in bytes."""
    work()  # what is computed once is there
    tracemalloc.start()
    found = work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most - found.nbytes


def growth(codec: Any, shape: tuple[int, ...]) -> tuple[float, float]:
    """Say how much more of that there is with more teachers and questions, when encoding and decoding, in masks of doubles."""
    held: list[tuple[int, int]] = []
    for teachers, queries in ((3, 3), (12, 9)):
        public = made(shape, queries, seed=2)
        masks = np.repeat(public.targets[None], teachers, axis=0)
        codes = codec.encode(masks[:1])[0]
        held.append((beyond(lambda m=masks: codec.encode(m)), beyond(lambda c=codes, p=public: codec.decode(c, p.inputs))))
    one = 8 * math.prod(shape)
    return (held[1][0] - held[0][0]) / one, (held[1][1] - held[0][1]) / one


@pytest.mark.parametrize("name", [name for name in FITS if not name.startswith("guided")])
def test_however_many_teachers_answer_no_more_masks_are_held_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (64, 48)
    codec = FITS[name](made(shape, 12), shape)
    monkeypatch.setattr(passes, "_VALUES", 1)
    assert max(growth(codec, shape)) < 1


def test_a_codec_that_holds_every_teacher_s_masks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hoarder:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def encode(self, predictions: np.ndarray) -> np.ndarray:
            return self.inner.encode(predictions.astype(np.float64))

        def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
            return self.inner.decode(codes, inputs).astype(np.float64).astype(np.float32)

    shape = (64, 48)
    monkeypatch.setattr(passes, "_VALUES", 1)
    assert min(growth(Hoarder(Pixels(shape)), shape)) > 5


# ── what the suites refuse ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Twin:
    """A codec that can be broken in one place."""

    norm: float = 1.0
    fault: str = ""
    shape: tuple[int, ...] = (4, 4)
    provenance: Provenance | None = None

    @property
    def bound(self) -> Ball:
        return Ball(16, self.norm)

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        from tutelage.codecs.passes import encoded

        if self.fault == "shapeless":
            return self.bound.clip(
                np.asarray(predictions, float).reshape(*np.shape(predictions)[:2], np.prod(np.shape(predictions)[2:]))[..., :16]
            )
        if self.fault == "not total":
            return np.asarray(predictions, float).reshape(*np.shape(predictions)[:2], 16)
        if self.fault == "by type":
            predictions = np.asarray(predictions) + (np.asarray(predictions).dtype == np.uint8)
        return encoded(predictions, self.shape, 16, self.bound.clip)

    def __repr__(self) -> str:
        return "Twin()" if self.fault == "one name" else f"Twin({self.norm})"


def twin(fault: str) -> Callable[[Any], Twin]:
    def fit(public: Any) -> Twin:
        from tutelage.codecs.fitting import provenance, public_norm

        if fault == "takes anything":
            targets = getattr(public, "targets", None)
            return Twin(public_norm(np.asarray([[1.0]] if targets is None else targets)), fault)
        record = provenance(public)
        return Twin(public_norm(public.targets), fault, provenance=None if fault == "forgets" else record)

    return fit


def test_the_suites_let_the_whole_twin_pass() -> None:
    check_masks(Twin(), (4, 4))
    check_fit(twin(""), made((4, 4)), made((6, 6), seed=2))


@pytest.mark.parametrize("fault", ["shapeless", "not total", "by type"])
def test_the_mask_suite_refuses(fault: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_masks(Twin(fault=fault), (4, 4))


@pytest.mark.parametrize("fault", ["takes anything", "forgets", "one name"])
def test_the_fit_suite_refuses(fault: str) -> None:
    with pytest.raises((AssertionError, AttributeError, pytest.fail.Exception)):
        check_fit(twin(fault), made((4, 4)), made((6, 6), seed=2))
