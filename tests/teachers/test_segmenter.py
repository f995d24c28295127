"""Teachers draw masks under seal."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tutelage.data.dataset import Private
from tutelage.nets.masks import windows
from tutelage.nets.pieces import Pieces
from tutelage.nets.unet import UNet
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.sealed import Sealed
from tutelage.teachers import segmenter
from tutelage.teachers.ensemble import Ensemble
from tutelage.teachers.segmenter import Segmenter


def test_probabilities_are_sealed_and_one_per_teacher_query_and_pixel(masks, tmp_path) -> None:
    private = Private.of(masks.inputs, masks.targets)
    teachers = Segmenter(masks.network, training=masks.training, engine="stacked", device="cpu", seed=4)
    assert teachers.fit(private, private.split(3)) is teachers
    assert len(teachers) == 3
    votes = teachers.vote(masks.inputs[:5])
    with pytest.raises(Unsealed):
        print(votes)
    likely = teachers.ensemble.probabilities(masks.inputs[:5])
    assert likely.shape == (3, 5, *masks.targets.shape[1:])
    assert 0 <= likely.min() <= likely.max() <= 1
    teachers.save(tmp_path / "private" / "teachers.safetensors")
    again = Segmenter(device="cpu").load(tmp_path / "private" / "teachers.safetensors")
    assert np.array_equal(again.ensemble.probabilities(masks.inputs[:5]), likely)


def test_without_a_network_the_data_s_shape_makes_one(masks) -> None:
    private = Private.of(masks.inputs[:8], masks.targets[:8])
    teachers = Segmenter(training=replace(masks.training, steps=1), engine="sequential", device="cpu")
    teachers.fit(private, private.split(2))
    assert teachers.ensemble.factory == UNet(shape=masks.inputs.shape[1:])
    assert teachers.network is None  # of other data it would make another one


def test_teachers_must_be_fitted_and_volumes_have_channels(masks) -> None:
    with pytest.raises(DataError, match="`teachers` must be fitted"):
        Segmenter().vote(masks.inputs)
    bare = Private.of(masks.inputs.repeat(2, axis=1)[:, 0], masks.targets)  # (records, *space)
    if masks.inputs.ndim == 5:
        with pytest.raises(DataError, match="`targets` must be masks of shape"):
            Segmenter(device="cpu").fit(bare, bare.split(2))


# ── through windows ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_windows_of_a_shard_are_cut_from_its_own_records_and_cover_them(masks) -> None:
    private = Private.of(masks.inputs, masks.targets)
    shards = private.split(3)
    teachers = Segmenter(masks.network, training=masks.training, device="cpu").through((4, 4, 4)[: masks.targets.ndim - 1])
    inputs, targets, rows = teachers.material(private, shards)
    assert inputs.shape[2:] == targets.shape[1:] == (4, 4, 4)[: masks.targets.ndim - 1]
    places = len(inputs) // len(masks.inputs)
    for mine, owned in zip(rows, shards.indices, strict=True):
        assert {*(mine // places)} == {*owned.tolist()}
        assert len(mine) == places * len(owned)
    first = inputs[:places].reshape(places, -1)
    assert {*np.unique(masks.inputs[0])} == {*np.unique(first)}  # every pixel is in some window


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("sequential", np.uint8),
        ("sequential", np.float64),
        ("stacked", np.uint8),
        ("recorded", np.uint8),
        ("processes", np.uint8),
    ],
)
def test_windows_that_are_read_teach_what_windows_that_were_copied_teach(masks, engine, kind, tmp_path) -> None:
    """The twin cuts all windows out first, as teachers did before; weights and the name of a checkpoint's fit are the same."""
    window, private = (4, 4, 4)[: masks.targets.ndim - 1], Private.of(masks.inputs, masks.targets.astype(kind))
    shards, network = private.split(2), UNet(shape=(1, *window), widths=(4, 8), groups=2)
    given = {"training": replace(masks.training, steps=6), "engine": engine, "device": "cpu", "seed": 4}
    teachers = Segmenter(network, **given).through(window).fit(private, shards, checkpoint=tmp_path / "private")
    places = list(windows(masks.targets.shape[1:], window, overlap=False))
    cut = np.stack([masks.inputs[(slice(None), slice(None), *place)] for place in places], axis=1).reshape(-1, 1, *window)
    drawn = np.stack([private.targets[(slice(None), *place)] for place in places], axis=1).reshape(-1, *window)
    rows = [(rows[:, None] * len(places) + np.arange(len(places))).reshape(-1) for rows in shards.indices]
    twin = Ensemble.fit(network, cut, drawn, rows, **given | {"engine": "sequential" if engine == "processes" else engine})
    assert all(torch.equal(tensor, twin.state[name]) for name, tensor in teachers.ensemble.state.items())
    again = Ensemble.fit(network, cut, drawn, rows, **given, checkpoint=tmp_path / "private")
    assert again.plan is None  # the same fit: nothing was left to train


def test_large_scans_that_are_seen_whole_are_read_too(masks, monkeypatch) -> None:
    private = Private.of(masks.inputs, masks.targets)
    teachers = Segmenter(masks.network, training=masks.training, engine="sequential", device="cpu", seed=4)
    held = teachers.fit(private, private.split(3)).ensemble.state
    monkeypatch.setattr(segmenter, "HELD", masks.inputs.nbytes - 1)
    assert isinstance(teachers.material(private, private.split(3))[0], Pieces)
    read = teachers.fit(private, private.split(3)).ensemble.state
    assert all(torch.equal(tensor, held[name]) for name, tensor in read.items())


def test_windows_of_what_is_no_mask_are_clipped(masks) -> None:
    window = (4, 4, 4)[: masks.targets.ndim - 1]
    network = UNet(shape=(1, *window), widths=(4, 8), groups=2)
    odd = np.where(masks.targets > 0, 7.0, np.nan)
    states = []
    for targets in (odd, masks.targets.astype(np.float64)):
        private = Private.of(masks.inputs, targets)
        teachers = Segmenter(network, training=replace(masks.training, steps=3), engine="sequential", device="cpu").through(
            window
        )
        states.append(teachers.fit(private, private.split(3)).ensemble.state)
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_a_window_as_large_as_the_input_changes_nothing_and_smaller_ones_are_averaged(masks) -> None:
    space = masks.targets.shape[1:]
    private = Private.of(masks.inputs, masks.targets)
    teachers = Segmenter(masks.network, training=replace(masks.training, steps=2), engine="sequential", device="cpu", seed=4)
    teachers.fit(private, private.split(2))
    whole = peeked(teachers.vote(masks.inputs[:3]))
    assert np.allclose(peeked(teachers.through(tuple(2 * size for size in space)).vote(masks.inputs[:3])), whole, atol=1e-3)
    cut = (space[0] // 2 + 1, *space[1:])
    found = peeked(teachers.through(cut).vote(masks.inputs[:3]))
    assert found.shape == whole.shape
    top = teachers.ensemble.probabilities(masks.inputs[:3][:, :, : cut[0]], dtype=np.float32)
    assert np.allclose(found[:, :, 0], top[:, :, 0], atol=1e-3)  # only one window sees the first row
    with pytest.raises(RecipeError, match="`window` must have"):
        teachers.through((4,)).vote(masks.inputs[:3])


def test_voting_through_windows_tells_one_story(masks) -> None:
    private, told = Private.of(masks.inputs, masks.targets), []
    teachers = Segmenter(masks.network, training=replace(masks.training, steps=1), engine="sequential", device="cpu")
    teachers.fit(private, private.split(2))
    teachers.through((4, 4, 4)[: masks.targets.ndim - 1]).vote(masks.inputs[:3], progress=lambda *now: told.append(now))
    assert len({total for _, total in told}) == 1
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]
    assert sum(done == total for done, total in told) == 1


def test_teachers_of_large_volumes_vote_some_at_a_time(masks, monkeypatch: pytest.MonkeyPatch) -> None:
    private, told = Private.of(masks.inputs, masks.targets), []
    teachers = Segmenter(masks.network, training=replace(masks.training, steps=1), engine="sequential", device="cpu").fit(
        private, private.split(3)
    )
    teachers.through((4, 4, 4)[: masks.targets.ndim - 1])
    together = peeked(teachers.vote(masks.inputs[:2]))
    monkeypatch.setattr(segmenter, "AVERAGED", 2 * 2 * masks.targets[0].size)  # two teachers' masks of both questions
    apart = peeked(teachers.vote(masks.inputs[:2], progress=lambda *now: told.append(now)))
    assert np.array_equal(together, apart)
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def peeked(votes: Sealed) -> np.ndarray:
    """Read votes past their seal: for tests alone."""
    kept: list[np.ndarray] = []
    votes.map(lambda opened: (kept.append(opened.astype(np.float32)), opened)[1])
    return kept[0]
