"""A model of regions: what it paints, and that it is the same after a pause."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.scenes import Scenes
from tutelage.nets.crops import Crops
from tutelage.nets.networks import ConvNet
from tutelage.nets.regions import KIND, RegionModel
from tutelage.nets.storage import write_tensors
from tutelage.privacy.errors import DataError, RecipeError

CUT = RegionVotes((16, 16), 4, "greys", 0.4)
FACTORY = ConvNet(shape=(2, 8, 8), classes=2, widths=(8,), hidden=8)
IMAGES = Scenes(size=16).draw(30, seed=0)[0]


def model(members: int = 2, **told) -> RegionModel:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        states = [FACTORY().state_dict() for _ in range(members)]
    state = {name: torch.stack([one[name] for one in states]) for name in states[0]}
    return RegionModel(CUT, FACTORY, state, side=8, device="cpu", **told)


def test_masks_are_the_surest_region_or_nothing() -> None:
    one, seen = model(threshold=0.5), CUT.seeing(IMAGES)
    crops = Crops.of(seen.labels, 4, side=8, device="cpu")
    alone = [RegionModel(CUT, FACTORY, {k: v[m : m + 1] for k, v in one.state.items()}, side=8, device="cpu") for m in (0, 1)]
    sure = np.mean([member.judge(crops.pictures) for member in alone], axis=0)
    assert np.allclose(one.judge(crops.pictures), sure, atol=1e-6)
    for image, mask in enumerate(one.predict(IMAGES)):
        mine = crops.owners == image
        likely = sure[mine].max(initial=0)
        wanted = seen.labels[image] == crops.places[mine][sure[mine].argmax()] if likely >= 0.5 else np.zeros((16, 16))
        assert np.array_equal(mask, wanted)
    assert one.predict(IMAGES).any()
    assert not model(threshold=0.99).predict(IMAGES).any()
    assert one.predict(IMAGES[:0]).shape == (0, 16, 16)


def test_an_image_is_judged_whatever_its_company() -> None:
    one = model()
    assert one.threshold == 0.4  # the cut's own share
    assert np.array_equal(one.predict(IMAGES)[7:9], one.predict(IMAGES[7:9]))


def test_a_model_comes_back_whole(tmp_path: Path) -> None:
    one = model(threshold=0.47)
    place = one.save(tmp_path / "student")
    again = RegionModel.load(place, RegionVotes, device="cpu")
    assert (again.cut, again.factory, again.side, again.threshold, len(again)) == (CUT, FACTORY, 8, 0.47, 2)
    assert np.array_equal(again.predict(IMAGES), one.predict(IMAGES))
    assert repr(again) == repr(one)
    with pytest.raises(RecipeError, match="`cut` must be RegionVotes, which this model was trained with"):
        RegionModel.load(place, Crops)  # type: ignore[arg-type]
    for told in ({}, {"cut": json.dumps({}), "side": "8", "threshold": "0.5"}, {"cut": "x", "side": "8", "threshold": "0.5"}):
        write_tensors(tmp_path / "other.safetensors", one.state, {"kind": KIND, **told}, private=False)
        with pytest.raises(DataError, match="`path` must name a model of regions"):
            RegionModel.load(tmp_path / "other.safetensors", RegionVotes)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(RecipeError, match="`threshold` must lie in"):
        model(threshold=1.0)
    state = {**model().state}
    state[next(iter(state))] = state[next(iter(state))][:1]
    with pytest.raises(DataError, match="`state` must hold stacked tensors"):
        RegionModel(CUT, FACTORY, state, side=8)
