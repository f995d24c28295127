"""A decoder that sees the public image: better answers out of the very same release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.codecs.conftest import ellipses

from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.guided import Guided
from tutelage.codecs.guiding import heard
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Private, Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.nets import pieces
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import DataError, RecipeError

SHAPE = (16, 16)
CODEC = DCT(SHAPE, 24, 6.0)
NOISE = 1.5  # on every coordinate: the inner answers are hard to read


def pairs(count: int, seed: int) -> Public:
    """Images with two boxes that look alike, and one of them as the mask: neither image nor noisy code tells it alone."""
    rng = np.random.default_rng(seed)
    images, masks = rng.normal(0, 0.1, (count, 1, *SHAPE)), np.zeros((count, *SHAPE), np.uint8)
    for image, mask, chosen in zip(images, masks, rng.integers(2, size=count), strict=True):
        for side in range(2):
            down, right = rng.integers(1, 9), 8 * side + rng.integers(0, 3)
            place = (slice(down, down + rng.integers(4, 7)), slice(right, right + rng.integers(4, 6)))
            image[0][place] += 1.0
            if side == chosen:
                mask[place] = 1
    return Public.of(images.astype(np.float32), masks, source="pairs of boxes")


def quick(public: Public, codec: Any = CODEC, **told: Any) -> Guided:
    return Guided.fit(codec, public, **{"widths": (8,), "steps": 2, "batch": 4, "noise": NOISE, "device": "cpu", **told})


@pytest.fixture(scope="module")
def trained() -> Guided:
    return Guided.fit(CODEC, pairs(400, 0), noise=NOISE, widths=(8, 16), steps=200, batch=16, rate=5e-3, device="cpu")


def test_under_noise_it_draws_far_better_masks_of_new_images(trained: Guided) -> None:
    new = pairs(100, 1)
    codes = CODEC.encode(new.targets[None])[0]
    codes = codes + np.random.default_rng(2).normal(0, NOISE, codes.shape)
    before, after = (float(dice(one.decode(codes, new.inputs), new.targets).mean()) for one in (CODEC, trained))
    assert before < 0.5
    assert after > before + 0.25
    empty = np.random.default_rng(3).normal(0, NOISE, codes.shape)  # the image alone
    assert after > float(dice(trained.decode(empty, new.inputs), new.targets).mean()) + 0.2


def test_bound_and_codes_are_the_inner_codec_s(trained: Guided) -> None:
    masks = np.random.default_rng(0).random((3, 5, *SHAPE))
    assert trained.bound == CODEC.bound
    assert np.array_equal(trained.encode(masks), CODEC.encode(masks))
    assert not hasattr(trained, "measured")  # a student that never decodes has no use for a decoder


def test_the_same_seed_learns_the_same_and_another_does_not() -> None:
    public = pairs(12, 0)
    assert repr(quick(public)) == repr(quick(public))
    assert repr(quick(public)) != repr(quick(public, seed=1))
    state = torch.random.get_rng_state()
    quick(public, augmentation=Warp(shift=1.0))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_pool_larger_than_memory_is_read_and_teaches_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    held = quick(pairs(12, 0))
    monkeypatch.setattr(pieces, "HELD", 0)
    monkeypatch.setattr(pieces, "as_inputs", lambda _: pytest.fail("copied"))
    assert repr(quick(pairs(12, 0))) == repr(held)


def test_its_words_say_what_it_saw_and_around_which_codec() -> None:
    public = pairs(12, 0)
    made = quick(public)
    assert made.provenance is not None
    assert (made.provenance.source, made.provenance.records) == ("pairs of boxes", 12)
    assert "steps=2" in made.provenance.how
    assert repr(made).startswith(f"Guided({CODEC!r}, channels=1, widths=(8,), noise=1.5")
    other = Public.of(public.inputs + 1, public.targets, source="pairs of boxes")  # images count as well
    found = quick(other).provenance
    assert found is not None
    assert found.sha256 != made.provenance.sha256


def test_it_is_the_same_after_a_pause(tmp_path: Path) -> None:
    public = pairs(12, 0)
    made = quick(public)
    path = made.save(tmp_path / "decoder")
    again = Guided.load(path, codec=CODEC, device="cpu")
    codes = heard_codes(public)
    assert repr(again) == repr(made)
    assert np.array_equal(again.decode(codes, public.inputs), made.decode(codes, public.inputs))
    with pytest.raises(DataError, match="`codec` must be the one that the decoder was trained with"):
        Guided.load(path, codec=DCT(SHAPE, 24, 7.0), device="cpu")


def heard_codes(public: Public) -> np.ndarray:
    assert public.targets is not None
    return CODEC.encode(public.targets[None])[0]


def test_volumes_bytes_and_other_inner_codecs() -> None:
    masks = ellipses(6, (8, 8, 6))
    volumes = Public.of(np.stack([masks, 1 - masks], axis=1).astype(np.float32), masks, source="two channels")
    inner = Flips(DCT((8, 8, 6), 10, 1.0), np.zeros(masks[0].size), 9.0)
    made = quick(volumes, inner)
    assert made.decode(inner.encode(masks[None])[0], volumes.inputs).shape == masks.shape
    drawn = Scenes(size=16).public(6, seed=0)
    bytes_ = Public.of((drawn.inputs[:, 0] * 255).astype(np.uint8), drawn.targets, source="bytes")
    assert quick(bytes_).decode(heard_codes(bytes_), bytes_.inputs).shape == (6, 16, 16)


def test_noise_is_added_to_codes_once() -> None:
    public, rng = pairs(200, 0), np.random.default_rng(0)
    plain = CODEC.decode(heard_codes(public), public.inputs)
    noisy = heard(CODEC, np.asarray(public.targets), public.inputs, noise=0.5, rng=rng)
    per_mask = np.square(noisy - plain).sum(axis=(1, 2)).mean()
    assert per_mask == pytest.approx(24 * 0.25, rel=0.1)


def test_what_is_refused() -> None:
    public = pairs(6, 0)
    for wrong in (Private.of(public.inputs, public.targets), None):
        with pytest.raises(DataError, match="`public` must be Public"):
            quick(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`public` must hold masks"):
        quick(Public.of(public.inputs))
    with pytest.raises(RecipeError, match="`codec` must let out noisy means"):
        quick(public, RegionVotes(SHAPE, 4))
    with pytest.raises(DataError, match="`public` must hold images"):
        quick(Public.of(np.zeros((6, 1)), public.targets))
    made = quick(public)
    with pytest.raises(DataError, match="`inputs` must be 6 images of shape"):
        made.decode(heard_codes(public), public.inputs[:5])
    with pytest.raises(DataError, match="`weights` must be those"):
        Guided(codec=CODEC, shape=SHAPE, channels=2, weights=made.weights, widths=(8,))
