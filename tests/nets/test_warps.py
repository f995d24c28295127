"""A warp bends an image and its mask alike, does what it says, and leaves both alone when told nothing."""

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform

from tutelage.data.scenes import GREYS, Scenes
from tutelage.nets.warps import (
    BRIGHTNESS,
    CONTRAST,
    GAMMA,
    MIRROR,
    NOISE,
    SCALE,
    SCENES,
    SHIFT,
    SINGLE,
    TURN,
    VOLUMES,
    Warp,
    grains,
)
from tutelage.privacy.errors import RecipeError

SPACES = [(14, 12), (10, 14, 12)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def smooth(space: tuple[int, ...], count: int = 1) -> torch.Tensor:
    """Draw blobs: what interpolation can follow."""
    lines = [torch.linspace(-1, 1, size) for size in space]
    places = torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1)
    centres = torch.rand(count, len(space), generator=generator(5)) - 0.5
    distance = (places - centres.reshape(count, *(1,) * len(space), -1)).square().sum(-1)
    return torch.exp(-4 * distance)  # (count, *space)


def still(count: int = 1) -> torch.Tensor:
    """Draws in the middle: every setting at rest but the mirrors, which rest above."""
    draws = torch.full((count, SINGLE), 0.5)
    draws[:, MIRROR : MIRROR + 3] = 0.9
    return draws


@pytest.mark.parametrize("space", SPACES)
def test_nothing_asked_is_nothing_done(space: tuple[int, ...]) -> None:
    x, m = torch.rand(2, 3, 1, *space), torch.rand(2, 3, *space) > 0.5
    warp = Warp()
    images, masks = warp.both(x, m, warp.draw(6, generator=generator()).unflatten(0, (2, 3)))
    assert torch.equal(images, x)
    assert torch.equal(masks, m.float())


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("nearest", [False, True])
def test_a_mask_goes_where_its_image_goes(space: tuple[int, ...], nearest: bool) -> None:
    warp = Warp(rotation=20, scale=0.2, shift=2, elastic=1, flips=(0, -1), keep=0.3, nearest=nearest)
    m, draws = (smooth(space, 8) > 0.5).to(torch.uint8), warp.draw(8, generator=generator())
    masks = warp.masks(m, draws)
    assert torch.allclose(warp.images(m[:, None].float(), draws)[:, 0], masks, atol=1e-6)
    assert masks.dtype == torch.float32
    assert 0 <= masks.min() <= masks.max() <= 1
    assert not torch.equal(masks, m.float())
    assert set(masks.unique().tolist()) == {0.0, 1.0} or not nearest


@pytest.mark.parametrize(("warp", "space"), [(SCENES, (16, 16)), (VOLUMES, (8, 12, 10))])
def test_both_is_images_and_masks_whatever_leads(warp: Warp, space: tuple[int, ...]) -> None:
    x, m = torch.rand(3, 2, 2, *space), torch.rand(3, 2, *space)
    draws = warp.draw(6, generator=generator()).unflatten(0, (3, 2))
    images, masks = warp.both(x, m, draws)
    assert (images.shape, masks.shape) == (x.shape, m.shape)
    assert torch.allclose(images, warp.images(x, draws), atol=1e-6)
    assert torch.allclose(masks, warp.masks(m, draws), atol=1e-6)
    flat, drawn = warp.both(x.flatten(0, 1), m.flatten(0, 1), draws.flatten(0, 1))
    assert torch.equal(flat.unflatten(0, (3, 2)), images)
    assert torch.equal(drawn.unflatten(0, (3, 2)), masks)
    assert torch.allclose(warp.images(x[1], draws[1]), images[1], atol=1e-5)  # nobody reaches anybody else


def test_an_image_turns_as_scipy_turns_it() -> None:
    image, draws = smooth((21, 31)), still()
    draws[:, TURN] = 0.75  # half of the 30° that are allowed
    turned = Warp(rotation=30).masks(image, draws)[0].numpy()
    angle, middle = np.deg2rad(15), np.array([10, 15])
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    expected = affine_transform(image[0].numpy(), matrix, offset=middle - matrix @ middle, order=1)
    assert np.abs(turned - expected)[3:-3, 3:-3].max() < 1e-4


def test_a_volume_turns_scales_and_moves_as_scipy_does_it() -> None:
    volume, draws = smooth((15, 21, 17)), still()
    draws[:, TURN : TURN + 3] = torch.tensor([0.75, 0.3, 0.6])
    draws[:, SCALE : SCALE + 3] = torch.tensor([0.9, 0.5, 0.2])
    draws[:, SHIFT : SHIFT + 3] = torch.tensor([1.0, 0.5, 0.25])
    moved = Warp(rotation=20, scale=0.2, shift=2).masks(volume, draws)[0].numpy()
    matrix = np.eye(3)
    for (i, j), draw in zip(((1, 2), (0, 2), (0, 1)), (0.75, 0.3, 0.6), strict=True):
        angle, turn = np.deg2rad(20 * (2 * draw - 1)), np.eye(3)
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
        matrix = matrix @ turn
    matrix = np.diag(1 / (1 + 0.2 * (2 * np.array([0.9, 0.5, 0.2]) - 1))) @ matrix
    middle = np.array([7, 10, 8])
    expected = affine_transform(volume[0].numpy(), matrix, offset=middle + np.array([2, 0, -1]) - matrix @ middle, order=1)
    assert np.abs(moved - expected)[4:-4, 4:-4, 4:-4].max() < 1e-4


@pytest.mark.parametrize("space", SPACES)
def test_mirrors_touch_only_the_axes_they_are_given(space: tuple[int, ...]) -> None:
    m = torch.rand(1, *space)
    draws = still()
    draws[:, MIRROR : MIRROR + 3] = 0.1
    assert torch.allclose(Warp(flips=(-1,)).masks(m, draws), m.flip(-1), atol=1e-5)
    assert torch.allclose(Warp(flips=(0, -1)).masks(m, draws), m.flip(1, -1), atol=1e-5)
    assert torch.allclose(Warp(flips=(-1,)).masks(m, still()), m, atol=1e-5)


@pytest.mark.parametrize("space", [(28, 28), (16, 24, 16)])
def test_elastic_displaces_by_the_root_mean_square_it_names(space: tuple[int, ...]) -> None:
    bend = Warp(elastic=1.5)
    field = bend._field(2 * bend.draw(400, generator=generator())[:, SINGLE:] - 1, torch.Size(space))
    assert field.shape == (400, *space, len(space))
    assert field.square().mean().sqrt().item() == pytest.approx(1.5, rel=0.05)
    assert field.diff(dim=1).abs().max() < 3  # neighbours go together


def test_greys_are_dealt_anew_and_keep_the_partition() -> None:
    images, _ = Scenes(size=32).draw(20, seed=3)
    deal = Warp(greys=GREYS)
    dealt = deal.images(torch.from_numpy(images), deal.draw(20, generator=generator())).numpy()
    levels = (np.rint(images * 255).astype(int), np.rint(dealt * 255).astype(int))
    changed = 0
    for before, after in zip(*levels, strict=True):
        pairs = {(a, b) for a, b in zip(before.ravel(), after.ravel(), strict=True)}
        assert len(pairs) == len(np.unique(before)) == len(np.unique(after))  # one level to one level
        assert {b for _, b in pairs} <= set(GREYS)
        changed += any(a != b for a, b in pairs)
    assert changed > 10


def test_shades_follow_their_draws_and_leave_masks_alone() -> None:
    x, m = smooth((12, 12), 1)[:, None] * 2 - 1, torch.rand(1, 12, 12)
    for setting, place, expected in (
        ("brightness", BRIGHTNESS, x + 0.3),
        ("contrast", CONTRAST, (x - x.mean()) * 1.3 + x.mean()),
        ("gamma", GAMMA, ((x - x.min()) / (x.max() - x.min())) ** 1.3 * (x.max() - x.min()) + x.min()),
    ):
        draws = still()
        draws[:, place] = 1.0
        images, masks = Warp(**{setting: 0.3}).both(x, m, draws)
        assert torch.allclose(images, expected, atol=1e-5)
        assert torch.equal(masks, m)


def test_noise_is_normal_its_own_in_every_image_and_the_same_again() -> None:
    draws = still(64)
    draws[:, NOISE] = 1.0
    draws[:, NOISE + 1 : NOISE + 3] = torch.rand(64, 2, generator=generator())
    grain = Warp(noise=0.1).images(torch.zeros(64, 1, 32, 32), draws).flatten(1) / 0.1
    assert grain.mean().item() == pytest.approx(0, abs=0.02)
    assert grain.std().item() == pytest.approx(1, abs=0.02)
    assert grain.pow(4).mean().item() == pytest.approx(3, abs=0.15)
    assert torch.corrcoef(grain).fill_diagonal_(0).abs().max() < 0.2
    assert (grain[:, 1:] * grain[:, :-1]).mean().abs() < 0.02
    assert torch.equal(grains(draws[:2, -2:], 50), grains(draws[:2, -2:], 50))


def test_a_share_is_left_alone_with_its_mask() -> None:
    warp = Warp(rotation=30, noise=0.1, brightness=0.1, keep=0.25)
    x, m = torch.rand(400, 1, 8, 8), torch.rand(400, 8, 8)
    images, masks = warp.both(x, m, warp.draw(400, generator=generator()))
    alone = (images == x).flatten(1).all(dim=1)
    assert alone.float().mean().item() == pytest.approx(0.25, abs=0.07)
    assert torch.equal(alone, (masks == m).flatten(1).all(dim=1))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rotation", -1), ("scale", 1), ("keep", 1), ("noise", float("nan")), ("padding", "wrap"), ("flips", (3,)), ("greys", (7,))],
)
def test_impossible_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(RecipeError, match=f"`{name}` must be|`{name}` must name"):
        Warp(**{name: value})
    with pytest.raises(RecipeError, match="`draws` must have"):
        VOLUMES.images(torch.rand(2, 1, 8, 8, 8), VOLUMES.draw(3, generator=generator()))
