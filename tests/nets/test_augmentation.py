"""Distortion keeps shapes, does what it says, and leaves images alone when told nothing."""

import pytest
import torch

from tutelage.nets.augmentation import DIGITS, LATTICE, SINGLE, Augmentation, splines
from tutelage.privacy.errors import RecipeError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 5, 2, 12, 12, generator=generator())  # (teachers, batch, channels, height, width)


def test_nothing_asked_is_nothing_done(images: torch.Tensor) -> None:
    assert torch.equal(Augmentation()(images, generator=generator()), images)


def test_every_setting_keeps_the_shape_of_a_stacked_batch(images: torch.Tensor) -> None:
    every = Augmentation(rotation=20, scale=0.2, shear=10, shift=2, elastic=1, cutout=4, flip=True, brightness=0.3)
    out = every(images, generator=generator())
    assert out.shape == images.shape
    assert out.dtype == images.dtype
    assert not torch.equal(out, images)
    assert 0 <= out.min() <= out.max() <= 1


def test_one_generator_one_result(images: torch.Tensor) -> None:
    assert torch.equal(DIGITS(images, generator=generator(3)), DIGITS(images, generator=generator(3)))
    assert not torch.equal(DIGITS(images, generator=generator(3)), DIGITS(images, generator=generator(4)))


def test_images_do_not_reach_each_other(images: torch.Tensor) -> None:
    draws = DIGITS.draw(15, generator=generator()).unflatten(0, (3, 5))
    whole = DIGITS.apply(images, draws)
    assert torch.allclose(whole[1], DIGITS.apply(images[1], draws[1]), atol=1e-6)


def test_flip_mirrors_some_and_only_some(images: torch.Tensor) -> None:
    flat = images.flatten(0, 1)
    out = Augmentation(flip=True)(flat, generator=generator())
    mirrored = torch.tensor([torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(out, flat, strict=True)])
    kept = torch.tensor([torch.allclose(a, b, atol=1e-5) for a, b in zip(out, flat, strict=True)])
    assert (mirrored ^ kept).all()
    assert mirrored.any()
    assert kept.any()


def test_shift_moves_by_at_most_the_pixels_it_names() -> None:
    dot = torch.zeros(200, 1, 21, 21)
    dot[:, 0, 10, 10] = 1
    out = Augmentation(shift=3)(dot, generator=generator())
    mass = out.sum(dim=(1, 2, 3), keepdim=True)
    place = torch.arange(21.0)
    rows = (out * place[:, None] / mass).sum(dim=(1, 2, 3)) - 10
    columns = (out * place / mass).sum(dim=(1, 2, 3)) - 10
    assert rows.abs().max() <= 3.001
    assert columns.abs().max() <= 3.001
    assert rows.abs().max() > 2.5
    assert rows.mean().abs() < 0.5


def test_rotation_turns_by_at_most_the_degrees_it_names() -> None:
    bar = torch.zeros(100, 1, 41, 41)
    bar[:, 0, 20, 5:36] = 1
    out = Augmentation(rotation=30)(bar, generator=generator())[:, 0]
    y, x = torch.meshgrid(torch.arange(41.0) - 20, torch.arange(41.0) - 20, indexing="ij")
    moments = [(out * value).sum(dim=(1, 2)) for value in (x * x, y * y, x * y)]
    degrees = torch.rad2deg(0.5 * torch.atan2(2 * moments[2], moments[0] - moments[1])).abs()
    assert degrees.max() <= 31
    assert degrees.max() > 25


def test_elastic_displaces_by_the_root_mean_square_it_names() -> None:
    bend = Augmentation(elastic=1.5)
    draws = bend.draw(2000, generator=generator())
    field = bend._field(2 * draws[:, SINGLE:] - 1, 28, 28) * 14  # in pixels
    assert field.square().mean().sqrt().item() == pytest.approx(1.5, rel=0.03)
    assert field.diff(dim=1).abs().max() < 1.5  # neighbours go together


def test_splines_sum_to_one() -> None:
    weights = splines(28, device=torch.device("cpu"))
    assert weights.shape == (28, LATTICE + 2)
    assert torch.allclose(weights.sum(dim=1), torch.ones(28))


def test_a_share_is_left_alone() -> None:
    images = torch.rand(400, 1, 12, 12, generator=generator())
    out = Augmentation(rotation=30, shift=2, cutout=4, keep=0.25)(images, generator=generator(1))
    share = (out == images).flatten(1).all(dim=1).float().mean().item()
    assert share == pytest.approx(0.25, abs=0.07)


def test_cutout_blanks_one_square() -> None:
    out = Augmentation(cutout=6)(torch.ones(50, 1, 28, 28), generator=generator())
    blank = (out == 0).sum(dim=(1, 2, 3))
    assert blank.max() == 36
    assert blank.min() >= 9  # a corner keeps a quarter


@pytest.mark.parametrize(
    ("name", "value"), [("rotation", -1), ("scale", 1), ("keep", 1), ("elastic", float("nan")), ("padding", "wrap")]
)
def test_impossible_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(RecipeError, match=f"`{name}` must be"):
        Augmentation(**{name: value})
