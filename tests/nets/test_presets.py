"""The papers' U-Nets by name: MONAI builds them, without layers that mix a batch."""

import sys

import pytest
import torch

from tutelage.nets.networks import describe, refuse_batch_mixing, restore
from tutelage.nets.presets import PRESETS, Preset
from tutelage.nets.unet import free_parameters
from tutelage.privacy.errors import RecipeError

SHAPES = {"sisi-2d": (1, 64, 64), "brats-2d": (4, 32, 32), "brats-slices": (4, 32, 32, 3), "brats-3d": (4, 16, 16, 16)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_one_logit_per_pixel(name: str) -> None:
    pytest.importorskip("monai")
    network, shape = Preset(name)(), SHAPES[name]
    refuse_batch_mixing(network)
    with torch.no_grad():
        assert network.eval()(torch.rand(1, *shape)).shape == (1, 1, *shape[1:])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_its_description(name: str) -> None:
    assert restore(describe(Preset(name))) == Preset(name)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"`name` must be one of .* Did you mean 'brats-3d'\?"):
        Preset("brats3d")


def test_without_monai_it_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "monai", None)
    monkeypatch.setitem(sys.modules, "monai.networks.nets", None)
    with pytest.raises(RecipeError, match=r"tutelage\[medical\]"):
        Preset("sisi-2d")()


@pytest.mark.parametrize("name", PRESETS)
def test_its_last_layers_can_be_freed_alone(name: str) -> None:
    pytest.importorskip("monai")
    network = Preset(name)()
    parameters = dict(network.named_parameters())
    sizes = {
        which: sum(parameters[one].numel() for one in free_parameters(network, which))
        for which in ("head", "norms", "last", "all")
    }
    assert 0 < sizes["head"] < sizes["norms"] < sizes["last"] < sizes["all"]
    head = [one for one in free_parameters(network, "head") if one.endswith("weight")]
    assert len(head) == 1
    assert 1 in parameters[head[0]].shape[:2]  # one logit per pixel


def test_images_that_do_not_fit_are_refused_without_computing() -> None:
    pytest.importorskip("monai")
    Preset("brats-3d").check((4, 240, 240, 155))
    for name, shape in (
        ("sisi-2d", (3, 64, 64)),
        ("brats-3d", (4, 64, 64)),
        ("brats-slices", (4, 64, 64)),
        ("brats-slices", (4, 60, 64, 8)),
        ("sisi-2d", (1, 60, 60)),
        ("brats-3d", (4, 8, 8, 8)),
    ):
        with pytest.raises(RecipeError, match="`network` must"):
            Preset(name).check(shape)
