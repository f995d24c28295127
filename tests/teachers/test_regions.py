"""Teachers that look at one region at a time choose one under seal, and their votes are the codec's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Private
from tutelage.data.scenes import Scenes
from tutelage.nets.crops import crops_of
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.privacy.errors import DataError, Unsealed
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.ensemble import Ensemble
from tutelage.teachers.regions import RegionTeachers

CUT = RegionVotes((16, 16), 4)
FACTORY = ConvNet(shape=(2, 8, 8), classes=2, widths=(8,), hidden=8)
HOW = Training(steps=6, batch=4, augmentation=None)
SCENES = Scenes(size=16, target="cat")
PUBLIC = SCENES.draw(40, seed=1)[0]


def opened(sealed: Sealed, place: Path) -> np.ndarray:
    """Look as the owner would, at a file under private/."""
    (place / "private").mkdir(exist_ok=True)
    sealed.store(place / "private" / "values.npy")
    return np.load(place / "private" / "values.npy")


def made(**told) -> RegionTeachers:
    return RegionTeachers(CUT, FACTORY, side=8, training=HOW, engine="sequential", device="cpu", **told)


@pytest.fixture(scope="module")
def teachers() -> RegionTeachers:
    private = SCENES.private(60, seed=0)
    return made(seed=4).fit(private, private.split(5))


def test_votes_are_what_the_codec_makes_of_painted_masks(teachers: RegionTeachers, tmp_path: Path) -> None:
    votes, masks = (opened(ask(PUBLIC), tmp_path) for ask in (teachers.vote, teachers.paint))
    assert (votes.shape, masks.shape, masks.dtype) == ((5, 40), (5, 40, 16, 16), bool)
    seen = CUT.seeing(PUBLIC)
    assert np.array_equal(seen.encode(masks), seen.encode(votes))
    assert np.array_equal(seen.encode(votes).argmax(axis=-1), votes)
    assert len(np.unique(votes)) >= 3  # regions, and none
    crops, _ = crops_of(CUT, PUBLIC, side=8, device="cpu")
    sure = teachers.ensemble.shares(crops.pictures, label=1)
    likely = np.zeros((5, 40, 4))
    likely[:, crops.owners, crops.places] = sure
    drawn = likely.max(axis=-1)[..., None, None] * (seen.labels[None] == likely.argmax(axis=-1)[..., None, None])
    assert np.array_equal(seen.encode(drawn).argmax(axis=-1), votes)  # also of masks that say how sure a teacher is
    with pytest.raises(Unsealed):
        print(teachers.vote(PUBLIC))


def test_a_teacher_learns_from_its_own_shard_alone() -> None:
    private = SCENES.private(60, seed=0)
    shards = private.split(5)
    inputs, targets = private.inputs.copy(), private.targets.copy()
    inputs[shards[2]], targets[shards[2]] = SCENES.draw(len(shards[2]), seed=9)
    one, two = (made().fit(data, shards) for data in (private, Private.of(inputs, targets)))
    for name, tensor in one.ensemble.state.items():
        same = [torch.equal(tensor[k], two.ensemble.state[name][k]) for k in range(5)]
        assert same[:2] + same[3:] == [True] * 4
    assert not all(torch.equal(tensor[2], two.ensemble.state[name][2]) for name, tensor in one.ensemble.state.items())


def test_a_shard_that_shows_nothing_has_its_teacher_too(tmp_path: Path) -> None:
    private = SCENES.private(12, seed=0)
    shards = private.split(3)
    inputs, targets = private.inputs.copy(), private.targets.copy()
    inputs[shards[1]], targets[shards[1]] = 0.5, 0
    teachers = made().fit(Private.of(inputs, targets), shards)
    assert len(teachers) == 3
    assert teachers.vote(PUBLIC).shape == (3, 40)
    nothing = np.zeros((2, 1, 16, 16), dtype=np.float32)
    assert (opened(teachers.vote(nothing), tmp_path) == 4).all()
    assert not opened(teachers.paint(nothing), tmp_path).any()


def test_they_are_kept_and_need_no_network(teachers: RegionTeachers, tmp_path: Path) -> None:
    teachers.save(tmp_path / "private" / "teachers.safetensors")
    again = made().load(tmp_path / "private" / "teachers.safetensors")
    assert np.array_equal(opened(again.vote(PUBLIC), tmp_path), opened(teachers.vote(PUBLIC), tmp_path))
    plain = RegionTeachers(CUT, side=8, device="cpu")
    assert plain.fitting(SCENES.private(2, seed=0)) == ConvNet(shape=(2, 8, 8), classes=2)
    assert plain.training.augmentation is not None
    with pytest.raises(DataError, match="`teachers` must be fitted"):
        plain.vote(PUBLIC)


def test_shares_are_streamed_and_the_same_in_any_block(teachers: RegionTeachers) -> None:
    crops, _ = crops_of(CUT, PUBLIC, side=8, device="cpu")
    ensemble, told = teachers.ensemble, []
    whole = ensemble.shares(crops.pictures, label=1, progress=lambda done, total: told.append((done, total)))
    assert (whole.shape, whole.dtype) == ((5, len(crops)), np.float32)
    assert told == [(k, 5) for k in range(1, 6)]
    assert np.allclose(ensemble.shares(crops.pictures, label=1, block=7), whole, atol=1e-6)
    assert np.allclose(ensemble.shares(crops.pictures, label=0) + whole, 1, atol=1e-6)
    assert np.array_equal(whole > 0.5, ensemble.predict(crops.pictures) == 1)
    with torch.no_grad():
        alone = ensemble.network(3)(torch.from_numpy(crops.pictures).float() / 255).softmax(1)[:, 1]
    assert np.allclose(whole[3], alone.numpy(), atol=1e-5)
    assert ensemble.shares(crops.pictures[:0], label=1).shape == (5, 0)
    assert isinstance(ensemble, Ensemble)
    with pytest.raises(ValueError, match="`label` must be a class of the networks"):
        ensemble.shares(crops.pictures, label=2)
    for _, _, scores in ensemble.stream(crops.pictures, 2, 9):
        assert scores.shape[0] == 1
        assert len(scores[0]) <= 9
        assert not torch.is_inference_mode_enabled()  # a caller is not inside of it
