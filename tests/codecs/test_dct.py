from __future__ import annotations

import math

import numpy as np
import pytest

from tutelage.codecs.dct import DCT
from tutelage.codecs.pixels import Pixels
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Binary, Orthant
from tutelage.privacy.errors import RecipeError


@pytest.mark.parametrize("shape", [(5,), (6, 4), (5, 4, 3)])
def test_all_frequencies_are_a_rotation(shape: tuple[int, ...]) -> None:
    codec = DCT(shape, math.prod(shape), 1e3)
    rows = np.random.default_rng(0).normal(size=(7, math.prod(shape)))
    codes = codec.forward(rows)
    assert np.allclose(codes @ codes.T, rows @ rows.T)
    assert np.allclose(codec.backward(codes), rows)


def test_the_lowest_come_first() -> None:
    assert DCT((4, 4), 1, 1.0).positions.tolist() == [0]
    assert DCT((4, 4), 3, 1.0).positions.tolist() == [0, 1, 4]
    assert DCT((4, 4), 2, 1.0).positions.tolist() == [0, 1]  # among equals the first, on every machine
    assert DCT((8, 2), 4, 1.0).positions.tolist() == [0, 2, 4, 6]  # the long axis keeps more
    assert sorted(DCT((5, 3), 15, 1.0).positions.tolist()) == list(range(15))


def test_smooth_shapes_need_few(public: Public) -> None:
    errors = []
    for kept in (5, 20, 80, 192):
        codec = DCT.fit(public, kept=kept, quantile=1.0)
        codes = codec.encode(public.targets[None])[0]
        errors.append(((codec.decode(codes, codes) - public.targets) ** 2).mean())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-10
    assert errors[1] < 0.4 * errors[0]


def test_the_clip_is_a_public_quantile(public: Public) -> None:
    norms = np.sqrt(public.targets.reshape(200, -1).sum(axis=1))
    assert Pixels.fit(public, quantile=0.5).norm == pytest.approx(np.quantile(norms, 0.5))
    assert DCT.fit(public, kept=192, quantile=0.5).norm == pytest.approx(np.quantile(norms, 0.5))


def test_pixels_vote_or_speak() -> None:
    masks = np.array([[[[0.2, 0.6], [1.0, 0.0]]]])
    assert Pixels((2, 2)).encode(masks).tolist() == [[[0, 1, 1, 0]]]
    assert isinstance(Pixels((2, 2)).bound, Binary)
    soft = Pixels((2, 2), 0.5, "orthant")
    assert isinstance(soft.bound, Orthant)
    assert np.linalg.norm(soft.encode(masks)) == pytest.approx(0.5)
    assert np.allclose(soft.decode(soft.encode(masks)[0], masks[0]), masks[0] / np.linalg.norm(masks) * 0.5)


def test_refusals() -> None:
    with pytest.raises(RecipeError, match="`kept` must be at most"):
        DCT((2, 2), 5, 1.0)
    with pytest.raises(RecipeError, match="`shape` must"):
        DCT((2, 0), 1, 1.0)
    with pytest.raises(RecipeError, match="`shape` must be a tuple"):
        DCT(4, 1, 1.0)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`norm` must be a finite"):
        DCT((2, 2), 1, math.inf)
    for norm, kind in ((None, "orthant"), (1.0, "binary")):
        with pytest.raises(RecipeError, match="`norm` must be given"):
            Pixels((2, 2), norm, kind)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`kind` must"):
        Pixels((2, 2), None, "cube")  # type: ignore[arg-type]
