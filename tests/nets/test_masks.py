"""What a student of masks becomes: masks of any size, and one file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tutelage.nets import masks
from tutelage.nets.masks import MaskModel, windows
from tutelage.nets.unet import UNet
from tutelage.privacy.errors import DataError, RecipeError

RNG = np.random.default_rng(0)


def model(space: tuple[int, ...] = (12, 10), **told) -> MaskModel:
    factory = UNet(shape=(1, *space), widths=(4, 8), groups=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return MaskModel(factory, factory().state_dict(), device="cpu", **told)


@pytest.mark.parametrize("space", [(12, 10), (6, 8, 7)])
def test_shares_of_pixels_and_masks_of_them(space: tuple[int, ...]) -> None:
    one, images = model(space), RNG.normal(size=(5, 1, *space)).astype(np.float32)
    shares = one.probabilities(images)
    assert shares.shape == (5, *space)
    assert shares.dtype == np.float32
    assert 0 < shares.min() < shares.max() < 1
    middle = float(np.median(shares))
    painted = model(space, threshold=middle).predict(images)
    assert painted.dtype == np.uint8
    assert np.array_equal(painted, shares > middle)
    assert 0 < painted.mean() < 1
    assert one.probabilities(images[:0]).shape == (0, *space)


def test_an_image_s_mask_does_not_depend_on_its_company(monkeypatch: pytest.MonkeyPatch) -> None:
    images = RNG.normal(size=(5, 1, 12, 10)).astype(np.float32)
    together = model().probabilities(images)
    monkeypatch.setattr(masks, "PIXELS", 2 * 120)  # two at a time
    assert np.allclose(model().probabilities(images), together, atol=1e-6)
    assert np.allclose(model().probabilities(images[3:4]), together[3:4], atol=1e-6)


# ── windows ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("space", "window"), [((12,), (4,)), ((13, 9), (4, 5)), ((5, 30), (8, 8)), ((7, 6, 5), (4, 6, 1)), ((3,), (3,)), ((9,), (1,))]
)
def test_windows_have_one_size_stay_inside_and_leave_nothing_out(space: tuple[int, ...], window: tuple[int, ...]) -> None:
    seen = np.zeros(space, dtype=int)
    for place in windows(space, window):
        assert [part.stop - part.start for part in place] == [min(pair) for pair in zip(space, window, strict=True)]
        assert all(part.start >= 0 and part.stop <= size for part, size in zip(place, space, strict=True))
        seen[place] += 1
    assert seen.min() >= 1


def test_a_window_has_as_many_sides_as_the_space() -> None:
    for window in ((4,), (4, 4, 4)):
        with pytest.raises(RecipeError, match="`window` must have 2 sizes, one per side"):
            list(windows((12, 12), window))
        with pytest.raises(RecipeError, match="`window` must have 2 sizes, one per side"):
            model(window=window).probabilities(np.zeros((1, 1, 16, 20), np.float32))


def test_without_a_window_all_is_seen_at_once() -> None:
    assert list(windows((12, 9), None)) == [(slice(0, 12), slice(0, 9))]


def test_windows_overlap_by_half() -> None:
    assert [place[0].start for place in windows((12,), (4,))] == [0, 2, 4, 6, 8]
    assert [place[0].start for place in windows((9,), (4,))] == [0, 2, 4, 5]  # the last ends where the space ends


class Echo(nn.Module):
    """Says what it is shown, pixel by pixel: seen through any window, the same."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * x


def test_what_windows_say_is_put_together_where_they_looked() -> None:
    images = RNG.normal(size=(3, 1, 13, 9)).astype(np.float32)
    whole = MaskModel(Echo, Echo().state_dict(), device="cpu").probabilities(images)
    assert np.allclose(whole, 1 / (1 + np.exp(-images[:, 0])), atol=1e-6)
    for window in ((4, 4), (6, 20), (13, 9)):
        seen = MaskModel(Echo, Echo().state_dict(), window=window, device="cpu").probabilities(images)
        assert np.allclose(seen, whole, atol=1e-6)


def test_a_large_image_is_seen_through_windows_and_a_small_one_whole() -> None:
    images = RNG.normal(size=(2, 1, 20, 10)).astype(np.float32)
    through = model(window=(12, 10)).probabilities(images)
    assert np.allclose(through[:, :4], model().probabilities(images[:, :, :12])[:, :4], atol=1e-6)  # one window alone saw these
    assert np.abs(through - model().probabilities(images)).max() > 1e-4
    assert np.array_equal(model(window=(20, 10)).probabilities(images), model().probabilities(images))


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("window", [None, (8, 10)])
def test_a_file_holds_all_that_is_needed(tmp_path: Path, window: tuple[int, ...] | None) -> None:
    first = model(threshold=0.37, window=window)
    place = first.save(tmp_path / "student")
    assert place.name == "student.safetensors"
    again = MaskModel.load(place, device="cpu")
    assert (again.threshold, again.window, again.factory) == (0.37, window, first.factory)
    images = RNG.normal(size=(3, 1, 12, 10)).astype(np.float32)
    assert np.array_equal(again.probabilities(images), first.probabilities(images))
    assert repr(again) == repr(first)


def test_other_files_and_thresholds_are_refused(tmp_path: Path) -> None:
    from tutelage.nets.networks import describe
    from tutelage.nets.storage import write_tensors

    one = model()
    for number, told in enumerate(({}, {"threshold": "half"}, {"threshold": "0.5", "window": "a,b"})):
        place = tmp_path / f"{number}.safetensors"
        write_tensors(place, one.state, {"kind": masks.KIND, "network": describe(one.factory), **told}, private=False)
        with pytest.raises(DataError, match="`path` must name a model of masks"):
            MaskModel.load(place)
    for threshold in (0.0, 1.0, float("nan")):
        with pytest.raises(RecipeError, match=r"`threshold` must lie in \(0, 1\)"):
            model(threshold=threshold)


def test_a_model_remembers_what_it_began_as() -> None:
    first = model()
    second = MaskModel(first.factory, first.state, began=first, device="cpu")
    third = MaskModel(first.factory, first.state, began=second, device="cpu")
    assert first.beginning is first
    assert third.beginning is first


def test_weights_are_copied() -> None:
    factory = UNet(shape=(1, 8, 8), widths=(4, 8), groups=2)
    network = factory()
    one = MaskModel(factory, network.state_dict(), device="cpu")
    before = one.state["head.bias"].clone()
    with torch.no_grad():
        network.head.bias += 1
    assert torch.equal(one.state["head.bias"], before)
