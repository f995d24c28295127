"""The published theory of PCA under noise, measured; and a fit that reads its data once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs import pca
from tutelage.codecs.pca import PCA
from tutelage.codecs.spectrum import principal
from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError, RecipeError

SIZE = (16, 16)


@pytest.fixture(scope="module")
def train() -> Public:
    return Public.of(np.zeros((20_000, 1)), ellipses(20_000, SIZE, seed=1))


@pytest.fixture(scope="module")
def test() -> np.ndarray:
    return ellipses(10_000, SIZE, seed=2)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("components", "noise"), [(1, 0.5), (8, 0.3), (40, 0.1), (40, 1.0), (120, 0.05)])
def test_theorem_4_predicts_the_error(train: Public, test: np.ndarray, components: int, noise: float, centre: bool) -> None:
    # Fay et al. 2022, Theorem 4 and Eq. 13: E‖ȳ − ŷ‖² = L·σ² + the variance of what is left out.
    codec = PCA.fit(train, components=components, norm=100.0, centre=centre)
    error, left_out = measured(codec, test, noise)
    assert error == pytest.approx(components * noise**2 + left_out, rel=0.02)
    assert error == pytest.approx(codec.spectrum.predicted_error(components, noise), rel=0.02)


def measured(codec: PCA, masks: np.ndarray, noise: float) -> tuple[float, float]:
    """Squared error of noisy answers, and of answers without noise: the variance that these masks have outside the span."""
    codes = codec.encode(masks[None])[0]
    noisy = codec.decode(codes + np.random.default_rng(3).normal(0, noise, codes.shape), codes)
    clean = codec.decode(codes, codes)
    one, other = (float(((answers.astype(float) - masks) ** 2).sum(axis=(1, 2)).mean()) for answers in (noisy, clean))
    return one, other


def test_equation_13_needs_more_masks_than_theorem_4() -> None:
    # 6,000 masks of 400 pixels: the theorem holds on masks that were never seen, to a fraction of a percent. Eq. 13 takes the
    # variances from the masks the components were fitted to, and promises too little error; held-out variances do not.
    masks, fresh = Public.of(np.zeros((6000, 1)), ellipses(6000, (20, 20), seed=1)), ellipses(6000, (20, 20), seed=2)
    off = {}
    for folds in (0, 5):
        codec = PCA.fit(masks, components=40, norm=100.0, folds=folds)
        error, left_out = measured(codec, fresh, 0.1)
        assert error == pytest.approx(40 * 0.1**2 + left_out, rel=0.005)
        off[folds] = error / codec.spectrum.predicted_error(40, 0.1) - 1
    assert 0.015 < off[0] < 0.04
    assert abs(off[5]) < 0.01


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3, 1.0, 3.0])
def test_the_criterion_finds_what_exhaustive_search_finds(train: Public, test: np.ndarray, noise: float) -> None:
    # Fig. 1: the number of components by Eq. 14 against the best of all numbers, on other masks with other noise.
    codec = PCA.fit(train, noise=noise, norm=100.0, centre=False)
    full = PCA.fit(train, components=len(codec.spectrum.vectors), norm=100.0, centre=False)
    codes = full.encode(test[None])[0]
    drawn = np.random.default_rng(4).normal(0, noise, codes.shape)
    lost = (test.reshape(len(test), -1) ** 2).sum() - np.cumsum((codes**2).sum(axis=0))
    errors = (np.cumsum((drawn**2).sum(axis=0)) + lost) / len(test)  # of 1, 2, ... components, by orthogonality
    best = int(errors.argmin()) + 1
    assert errors[codec.components - 1] <= 1.005 * errors.min()
    assert abs(codec.components - best) <= max(1, 0.1 * best)
    few = codec.decode((codes + drawn)[:200, : codec.components], np.zeros(200))  # shrunk, so at least as good
    plain = PCA(SIZE, codec.spectrum, codec.components, 100.0)
    unshrunk = plain.decode((codes + drawn)[:200, : codec.components], np.zeros(200))
    direct = ((unshrunk - test[:200]) ** 2).sum(axis=(1, 2)).mean()
    assert direct == pytest.approx(errors[codec.components - 1], rel=0.1)
    assert ((few - test[:200]) ** 2).sum() <= ((unshrunk - test[:200]) ** 2).sum()


def test_shrinking_gains_what_wiener_says(train: Public, test: np.ndarray) -> None:
    noise, components = 0.8, 30
    codec = PCA.fit(train, components=components, noise=noise, norm=100.0)
    codes = codec.encode(test[None])[0]
    noisy = codes + np.random.default_rng(5).normal(0, noise, codes.shape)
    variances = codec.spectrum.variances[:components]
    left_out = codec.spectrum.total - variances.sum()
    expected = (variances * noise**2 / (variances + noise**2)).sum() + left_out
    error = ((codec.decode(noisy, noisy) - test) ** 2).sum(axis=(1, 2)).mean()
    assert error == pytest.approx(expected, rel=0.02)
    assert error < codec.spectrum.predicted_error(components, noise)


@pytest.mark.parametrize("centre", [False, True])
def test_a_streamed_fit_is_the_dense_one(centre: bool) -> None:
    rows = np.random.default_rng(6).normal(1, np.linspace(3, 0.1, 30), (1500, 30))
    middle = rows.mean(axis=0) if centre else 0.0
    covariance = (rows - middle).T @ (rows - middle) / (1499 if centre else 1500)
    expected = np.linalg.eigvalsh(covariance)[::-1]
    found = principal(np.array_split(rows, 7), 30, records=1500, centre=centre, rank=30)
    assert np.allclose(found.variances, expected)
    assert found.total == pytest.approx(np.trace(covariance))
    assert np.allclose(found.vectors @ found.vectors.T, np.eye(30), atol=1e-9)
    few = principal(np.array_split(rows[:900], 7), 30, records=900, centre=centre, rank=900)  # the other way of gathering
    middle = rows[:900].mean(axis=0) if centre else 0.0
    whole = np.linalg.eigvalsh((rows[:900] - middle).T @ (rows[:900] - middle) / (899 if centre else 900))[::-1]
    assert np.allclose(few.variances, whole)


@pytest.mark.parametrize("centre", [False, True])
def test_merging_keeps_the_leading_directions(centre: bool) -> None:
    masks = ellipses(800, (30, 30), seed=7).reshape(800, -1).astype(float)
    exact = principal([masks], 900, records=800, centre=centre, rank=800)
    merged = principal(np.array_split(masks, 16), 900, records=800, centre=centre, rank=60)  # eight merges of 60 rows and more
    assert np.allclose(merged.variances[:20], exact.variances[:20], rtol=0.02)
    assert merged.total == pytest.approx(exact.total)
    assert np.allclose(np.linalg.norm(merged.vectors[:10] @ exact.vectors[:10].T, axis=1), 1, atol=0.02)


def test_few_masks_flatter_their_own_components() -> None:
    # With 60 masks of 256 pixels Eq. 13 promises far less error than there is. Held-out variances do not.
    few, test = Public.of(np.zeros((60, 1)), ellipses(60, SIZE, seed=8)), ellipses(5000, SIZE, seed=9)
    noise, errors, chosen = 0.7, {}, {}
    for folds in (0, 5):
        codec = PCA.fit(few, noise=noise, norm=100.0, folds=folds)
        codes = codec.encode(test[None])[0]
        plain = PCA(SIZE, codec.spectrum, codec.components, 100.0)
        noisy = codes + np.random.default_rng(1).normal(0, noise, codes.shape)
        measured = ((plain.decode(noisy, noisy) - test) ** 2).sum(axis=(1, 2)).mean()
        errors[folds] = measured / codec.spectrum.predicted_error(codec.components, noise)
        chosen[folds] = codec.components
    assert errors[0] > 1.15
    assert 0.9 < errors[5] < 1.1
    assert chosen[5] < chosen[0]


def test_signs_do_not_hang_on_the_last_bit() -> None:
    # Masks and their mirror images: every odd direction has pairs of entries that differ in sign alone.
    masks = ellipses(40, (8, 8), seed=3).astype(float)
    rows = np.concatenate([masks, masks[:, :, ::-1]]).reshape(80, -1)
    one = principal([rows], 64, records=80, centre=True, rank=12)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(80)  # another order of summing
        other = principal([rows[order]], 64, records=80, centre=True, rank=12)
        assert np.allclose(one.vectors, other.vectors, atol=1e-6)


def test_masks_may_stay_on_disk(tmp_path) -> None:
    masks = ellipses(50, (12, 12))
    np.save(tmp_path / "masks.npy", masks)
    mapped = Public(np.zeros((50, 1)), np.load(tmp_path / "masks.npy", mmap_mode="r"))
    assert repr(PCA.fit(mapped, components=5)) == repr(PCA.fit(Public.of(np.zeros((50, 1)), masks), components=5))


def test_refusals(public: Public) -> None:
    with pytest.raises(RecipeError, match="`noise` must be given"):
        PCA.fit(public)
    for rank in (0, 2.5, True):
        with pytest.raises(RecipeError, match="`rank` must"):
            PCA.fit(public, components=3, rank=rank)  # type: ignore[arg-type]
    for folds in (1, -1, 201, 2.0, True):
        with pytest.raises(RecipeError, match="`folds` must"):
            PCA.fit(public, components=3, folds=folds)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`components` must be at most"):
        PCA.fit(public, components=193)
    with pytest.raises(RecipeError, match="`norm` must"):
        PCA.fit(public, components=3, norm=-1.0)
    with pytest.raises(DataError, match="at least 2"):
        PCA.fit(public[:1], components=1)
    with pytest.raises(DataError, match="masks as its targets"):
        PCA.fit(public.unlabelled(), components=1)
    with pytest.raises(DataError, match="must hold masks that differ"):
        PCA.fit(Public.of(np.zeros((5, 1)), np.ones((5, 4, 4))), components=1)
    codec = PCA.fit(public, components=3)
    with pytest.raises(DataError, match="`codes` must"):
        codec.decode(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(ValueError, match="read-only"):
        codec.spectrum.mean[0] = 1.0


@pytest.mark.parametrize("per_norm", [0.01, 0.05, 0.2])
def test_where_the_clip_hangs_on_the_components_the_least_predicted_error_is_found(train: Public, per_norm: float) -> None:
    chosen = PCA.priced(train, noise_per_norm=per_norm, rank=60)
    assert repr(chosen) == repr(PCA.fit(train, components=chosen.components, rank=60))  # the clip that this number has
    errors = []
    for count in range(1, 61):
        one = PCA.fit(train, components=count, rank=60) if abs(count - chosen.components) < 2 else None
        errors.append(np.inf if one is None else one.spectrum.predicted_error(count, per_norm * one.norm))
    assert int(np.argmin(errors)) + 1 == chosen.components
    variances = chosen.spectrum.variances
    assert variances[chosen.components - 1] > (per_norm * chosen.norm) ** 2  # a kept one has more variance than noise
    assert 1 <= chosen.components <= 60


def test_more_noise_keeps_fewer_components(train: Public) -> None:
    counts = [PCA.priced(train, noise_per_norm=per_norm, rank=60).components for per_norm in (0.01, 0.05, 0.2)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    with pytest.raises(RecipeError, match="`noise_per_norm` must be a finite number > 0"):
        PCA.priced(train, noise_per_norm=0.0)


def test_folds_that_leave_too_little_are_told_from_other_refusals() -> None:
    one, other = np.eye(4, dtype=np.uint8)[:2].reshape(2, 2, 2)
    two = Public.of(np.zeros((2, 1)), np.stack([one, other]))
    with pytest.raises(DataError, match=r"`folds` must leave 2 masks or more, whichever part is left out\. Got 2 in 2 parts"):
        PCA.fit(two, components=1, folds=2)
    alike = Public.of(np.zeros((4, 1)), np.stack([one, other, one, one]))  # the only other mask lies in the second part
    with pytest.raises(DataError, match="`folds` must leave masks that differ"):
        PCA.fit(alike, components=1, folds=4)


def test_an_error_of_another_kind_is_not_blamed_on_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = Public.of(np.zeros((6, 1)), np.random.default_rng(0).integers(0, 2, (6, 3, 3), dtype=np.uint8))
    whole, read = pca.principal, []

    def failing(*given: Any, **named: Any) -> Any:
        read.append(named["records"])
        if len(read) > 1:  # of a fold
            raise DataError("`file` must be readable. Got OSError instead.")
        return whole(*given, **named)

    monkeypatch.setattr(pca, "principal", failing)
    with pytest.raises(DataError, match="`file` must be readable"):
        PCA.fit(masks, components=1, folds=3)
