from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tutelage.data import silhouettes
from tutelage.data.scenes import GREYS, Scenes
from tutelage.privacy.errors import DataError, RecipeError


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    return Scenes().draw(2000, seed=1)


def test_scenes_are_what_they_say(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    images, masks = drawn
    assert images.shape == (2000, 1, 64, 64)
    assert masks.shape == (2000, 64, 64)
    assert images.dtype == np.float32
    assert set(np.unique(masks)) == {0, 1}
    assert set(np.unique(np.rint(images * 255).astype(int))) == set(GREYS)
    for image, mask in zip(images[:300, 0], masks[:300], strict=True):
        inside = np.unique(image[mask == 1])
        assert len(inside) <= 1  # the object has one grey level, and nothing else has it
        assert not np.isin(image[mask == 0], inside).any()
    empty = masks.sum(axis=(1, 2)) == 0
    assert 0.45 < empty.mean() < 0.55
    blank = np.ptp(images.reshape(2000, -1), axis=1) == 0
    assert 0.1 < blank.mean() < 0.15
    assert 200 < masks[~empty].sum(axis=(1, 2)).mean() < 900


def test_brightness_does_not_tell_the_kind(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    images, masks = drawn
    greys = [float(image[0][mask == 1][0]) for image, mask in zip(images, masks, strict=True) if mask.any()]
    shares = np.unique(np.rint(np.array(greys) * 255), return_counts=True)[1] / len(greys)
    assert np.allclose(shares, 1 / 7, atol=0.04)


def test_a_seed_says_it_all() -> None:
    one, again, other = (Scenes(size=32).draw(300, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one[0], again[0])
    assert np.array_equal(one[1], again[1])
    assert not np.array_equal(one[0], other[0])


def test_another_target_and_noise() -> None:
    plain, cats = Scenes(size=32).draw(200, seed=3), Scenes(size=32, target="cat").draw(200, seed=3)
    assert np.array_equal(plain[0], cats[0])
    assert not (plain[1] & cats[1]).any()
    rough, _ = Scenes(size=32, noise=10).draw(200, seed=3)
    assert 0 <= rough.min() <= rough.max() <= 1
    assert rough[0].std() > 0


def test_private_and_public(tmp_path: Path) -> None:
    scenes = Scenes(size=16)
    private, public = scenes.private(20, seed=1), scenes.public(10, seed=2)
    assert private.unit == "record"
    assert len(np.unique(private.units)) == 20
    assert public.targets is not None
    assert public.targets.shape == (10, 16, 16)
    assert public.source == "scenes (drawn, size=16, target=dog, noise=0), 10 of seed 2"
    others = (Scenes(size=32), Scenes(size=16, target="cat"), Scenes(size=16, noise=3))
    assert len({public.source, *(other.public(10, seed=2).source for other in others)}) == 4


def test_silhouettes_differ_and_stay_in_the_frame() -> None:
    found = silhouettes.drawn(64)
    assert set(found) == set(silhouettes.KINDS)
    for shapes in found.values():
        assert shapes.shape[1:] == (64, 64)
        assert len(np.unique(shapes.reshape(len(shapes), -1), axis=0)) == len(shapes)
        areas = shapes.mean(axis=(1, 2))
        assert 0.08 < areas.min() <= areas.max() < 0.5
        assert not shapes[:, [0, -1]].any()
        assert not shapes[:, :, [0, -1]].any()


def write_templates(root: Path) -> Path:
    """Dark boxes on white, and one that stands on nothing (alpha)."""
    for number, kind in enumerate(silhouettes.KINDS):
        (root / kind).mkdir(parents=True)
        page = np.full((40, 40), 255, np.uint8)
        page[10:30, 10 : 20 + 5 * number] = 0
        Image.fromarray(page).save(root / kind / "a.png")
        clear = np.zeros((40, 40, 4), np.uint8)
        clear[5:15, 5:15, 3] = 255
        Image.fromarray(clear).save(root / kind / "b.png")
        (root / kind / "urls.txt").write_text("not an image", encoding="utf-8")
    return root


def test_templates_from_files(tmp_path: Path) -> None:
    write_templates(tmp_path / "raw_images")
    for folder in (tmp_path, tmp_path / "raw_images"):
        found = silhouettes.read(folder, 40)
        assert found["bird"][0].sum() == 20 * 10
        assert found["dog"][0].sum() == 20 * 20
        assert found["cat"][1].sum() == 10 * 10
    scenes = Scenes(templates=tmp_path)
    masks = scenes.draw(50, seed=0)[1]
    assert masks.any()
    assert "templates" in scenes.public(2, seed=0).source


def test_refusals(tmp_path: Path) -> None:
    for size in (4, 8.0, True):
        with pytest.raises(RecipeError, match="`size` must"):
            Scenes(size=size)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`target` must"):
        Scenes(target="fish")
    with pytest.raises(RecipeError, match="`noise` must"):
        Scenes(noise=-1)
    with pytest.raises(RecipeError, match="`count` must"):
        Scenes().draw(0, seed=1)
    with pytest.raises(DataError, match="`templates` must hold images in bird/"):
        Scenes(templates=tmp_path).draw(1, seed=1)
    write_templates(tmp_path)
    (tmp_path / "cat" / "a.png").write_bytes(b"broken")
    with pytest.raises(DataError, match="must be a readable image"):
        Scenes(templates=tmp_path).draw(1, seed=1)


def test_templates_from_one_file(tmp_path: Path) -> None:
    shapes, file = silhouettes.drawn(16), tmp_path / "kept.npz"
    np.savez_compressed(file, **shapes)
    drawn, read = (Scenes(size=16, templates=templates).draw(20, seed=3) for templates in (None, file))
    assert all(np.array_equal(one, other) for one, other in zip(drawn, read, strict=True))
    with pytest.raises(DataError, match=r"`templates` must hold bools of shape \(silhouettes, 32, 32\)"):
        Scenes(size=32, templates=file).draw(1, seed=1)
    for wrong in (tmp_path / "nothing.npz", tmp_path / "other.npz", tmp_path / "text.npz"):
        np.savez(tmp_path / "other.npz", bird=np.zeros((1, 16, 16), bool))
        (tmp_path / "text.npz").write_text("no archive", encoding="utf-8")
        with pytest.raises(DataError, match=r"`templates` must be an \.npz of bird, cat, dog"):
            Scenes(size=16, templates=wrong).draw(1, seed=1)
