"""K networks as one: resumable, in one file, asked in streams."""

import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tutelage.teachers.ensemble as ensemble_module
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import as_inputs
from tutelage.nets.pieces import Pieces
from tutelage.nets.training import Training
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.teachers.ensemble import Ensemble


def fit(task, **changed) -> Ensemble:
    settings = {"training": task.training, "engine": "sequential", "device": "cpu", "seed": 1} | changed
    return Ensemble.fit(task.network, task.inputs, task.targets, task.shards, **settings)


def test_teachers_learn_from_their_own_unequal_shards(task) -> None:
    trained = fit(task, training=replace(task.training, steps=150, rate=5e-3), engine="stacked")
    votes = trained.predict(task.inputs)
    for k in (0, 2, 3, 4):
        assert (votes[k] == task.targets)[task.shards[k]].mean() > 0.8
    assert (votes[3] == task.targets)[500:].mean() > 0.6
    assert len(trained) == 5
    assert repr(trained) == "Ensemble(5 teachers)"


def test_one_seed_one_file(task, tmp_path) -> None:
    for name, engine, seed in (("a", "stacked", 1), ("b", "stacked", 1), ("c", "stacked", 2)):
        fit(task, engine=engine, seed=seed).save(tmp_path / "private" / name)
    one, two, three = ((tmp_path / "private" / name).read_bytes() for name in "abc")
    assert one == two
    assert one != three


class Interrupted(Exception):
    """Stands for a power cut."""


def test_an_interrupted_fit_goes_on_and_gives_the_same_file(task, tmp_path, monkeypatch) -> None:
    private = tmp_path / "private"
    fit(task, chunk=2).save(private / "whole")

    def cut(done: int, total: int) -> None:
        if done > 3.5 * task.training.steps:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(task, chunk=2, checkpoint=private / "chunks", progress=cut)
    kept = sorted(path.name for path in (private / "chunks").iterdir())
    assert kept == ["chunk-000000-000001.safetensors"]  # the second chunk was not finished

    trained = []
    original = ensemble_module.run

    def watched(plan, job, material, teachers, **given):
        trained.extend(teachers)
        return original(plan, job, material, teachers, **given)

    monkeypatch.setattr(ensemble_module, "run", watched)
    steps = []
    fit(task, chunk=2, checkpoint=private / "chunks", progress=lambda done, total: steps.append((done, total))).save(
        private / "resumed"
    )
    assert trained == [2, 3, 4]
    assert steps[0] == (2 * task.training.steps, 5 * task.training.steps)
    assert steps[-1] == (5 * task.training.steps, 5 * task.training.steps)
    assert (private / "resumed").read_bytes() == (private / "whole").read_bytes()

    fit(task, chunk=2, checkpoint=private / "chunks").save(private / "again")  # nothing left to train
    assert (private / "again").read_bytes() == (private / "whole").read_bytes()


def test_another_fit_s_chunks_are_refused(task, tmp_path) -> None:
    fit(task, checkpoint=tmp_path / "private")
    with pytest.raises(RecipeError, match="`checkpoint` must hold networks of these same settings"):
        fit(task, checkpoint=tmp_path / "private", seed=2)


def test_a_damaged_chunk_is_refused(task, tmp_path) -> None:
    fit(task, checkpoint=tmp_path / "private")
    path = next((tmp_path / "private").iterdir())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="`path` must name a whole safetensors file"):
        fit(task, checkpoint=tmp_path / "private")


def test_streamed_votes_equal_unstreamed_votes(task) -> None:
    trained = fit(task)
    whole = trained.predict(task.inputs, block=10**6)
    assert whole.shape == (5, len(task.inputs))
    assert whole.dtype == np.uint8
    assert np.array_equal(trained.predict(task.inputs, block=100), whole)
    for k in range(5):
        with torch.no_grad():
            plain = trained.network(k)(torch.from_numpy(task.inputs)[:, None]).argmax(dim=1).numpy()
        assert np.array_equal(whole[k], plain)
    assert trained.predict(task.inputs[:0]).shape == (5, 0)


def test_bytes_and_floats_are_the_same_images(task) -> None:
    images = (task.inputs * 255).round().astype(np.uint8)
    trained = fit(task)
    assert np.array_equal(trained.predict(images), trained.predict(images.astype(np.float32) / 255))


def test_a_saved_ensemble_votes_the_same_and_is_its_owner_s(task, tmp_path) -> None:
    trained, path = fit(task), tmp_path / "private" / "teachers.safetensors"
    trained.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert np.array_equal(Ensemble.load(path, device="cpu").predict(task.inputs), trained.predict(task.inputs))
    with pytest.raises(Unsealed):
        trained.save(tmp_path / "release.safetensors")
    with pytest.raises(DataError, match="`state` must hold"):
        Ensemble.load(path, factory=lambda: nn.Linear(2, 2))


def mixing() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


def test_what_cannot_be_trained_is_refused_before_training(task) -> None:
    x, y, shards = task.inputs, task.targets, task.shards
    cases = [
        (RecipeError, "GroupNorm", (mixing, x, y, shards), {}),
        (RecipeError, "`shards` must be one per teacher", (task.network, x, y, []), {}),
        (RecipeError, "`shards` must index", (task.network, x, y, [[len(x)]]), {}),
        (RecipeError, "`factory` must build", (task.network, x[:, :4], y, shards), {}),
        (DataError, "`targets` must be numbers", (task.network, x, y.astype(str), shards), {}),
        (DataError, "`targets` must have one", (task.network, x, y[:9], shards), {}),
        (RecipeError, "`augmentation` must be None", (task.network, x.reshape(len(x), -1), y, shards), {}),
        (RecipeError, "`engine` must be one of", (task.network, x, y, shards), {"engine": "dask"}),
        (RecipeError, "`chunk` must be", (task.network, x, y, shards), {"chunk": 0}),
        (RecipeError, "`device` must be one", (task.network, x, y, shards), {"device": "cuda:77"}),
    ]
    for kind, message, arguments, keywords in cases:
        with pytest.raises(kind, match=message):
            Ensemble.fit(*arguments, **({"device": "cpu", "training": Training(steps=1)} | keywords))


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def overlap(likely: np.ndarray, masks: np.ndarray) -> float:
    """Give the Dice of all pixels together."""
    found = likely > 0.5
    return float(2 * (found & (masks == 1)).sum() / (found.sum() + masks.sum()))


def test_teachers_learn_masks_from_their_own_shards(masks) -> None:
    trained = fit(masks, training=replace(masks.training, steps=60, rate=1e-2), engine="stacked")
    likely = trained.probabilities(masks.inputs[40:])
    assert likely.dtype == np.float16
    assert likely.shape == (3, 20, *masks.targets.shape[1:])
    assert overlap(likely[0], masks.targets[40:]) > 0.8
    assert overlap(likely[2], masks.targets[40:]) > 0.8


def test_streamed_masks_equal_each_network_s_own(masks) -> None:
    trained = fit(masks)
    whole = trained.probabilities(masks.inputs, dtype=np.float32)
    assert np.allclose(trained.probabilities(masks.inputs, dtype=np.float32, block=200), whole, atol=1e-5)
    for k in range(3):
        with torch.no_grad():
            plain = trained.network(k)(torch.from_numpy(masks.inputs)).sigmoid()[:, 0].numpy()
        assert np.allclose(whole[k], plain, atol=1e-5)
    assert trained.probabilities(masks.inputs[:0]).shape == (3, 0, *masks.targets.shape[1:])


def test_an_interrupted_fit_on_masks_goes_on_and_gives_the_same_file(masks, tmp_path) -> None:
    private, steps = tmp_path / "private", masks.training.steps
    fit(masks, chunk=1).save(private / "whole")

    def cut(done: int, total: int) -> None:
        if done > 1.5 * steps:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(masks, chunk=1, checkpoint=private / "chunks", progress=cut)
    seen: list[int] = []
    resumed = fit(masks, chunk=1, checkpoint=private / "chunks", progress=lambda done, total: seen.append(done))
    resumed.save(private / "resumed")
    assert seen[0] == steps
    assert (private / "resumed").read_bytes() == (private / "whole").read_bytes()
    again = Ensemble.load(private / "resumed", device="cpu")  # the file knows its network
    assert np.array_equal(again.probabilities(masks.inputs[:3]), resumed.probabilities(masks.inputs[:3]))


def test_masks_may_be_bools_bytes_numbers_or_shares(masks) -> None:
    short = replace(masks.training, steps=3)
    kinds = [
        fit(masks._replace(targets=masks.targets.astype(kind)), training=short) for kind in (np.uint8, bool, np.int64, np.float64)
    ]
    for other in kinds[1:]:
        assert all(torch.allclose(kinds[0].state[name], other.state[name], atol=1e-6) for name in other.state)
    soft = fit(masks._replace(targets=masks.targets * 0.5), training=short)
    assert not all(torch.allclose(kinds[0].state[name], soft.state[name], atol=1e-6) for name in soft.state)


def test_masks_that_cannot_be_learned_are_refused(task, masks) -> None:
    flat = Augmentation(shift=1) if masks.inputs.ndim == 4 else None
    cases = [
        (DataError, "`targets` must be masks of shape", masks._replace(targets=masks.targets[:, 1:]), {}),
        (DataError, "`targets` must be masks of shape", masks._replace(targets=masks.targets[:, 0, 0]), {}),
        (RecipeError, "`augmentation` must be", masks, {"training": Training(steps=1, augmentation=flat or Augmentation())}),
    ]
    for kind, message, changed, keywords in cases:
        with pytest.raises(kind, match=message):
            fit(changed, **keywords)
    with pytest.raises(RecipeError, match="`predict` must be asked of networks with classes"):
        fit(masks, training=replace(masks.training, steps=1)).predict(masks.inputs)
    with pytest.raises(RecipeError, match="`probabilities` must be asked of networks with one output"):
        fit(task, training=replace(task.training, steps=1)).probabilities(task.inputs)


@pytest.mark.filterwarnings("error")
def test_no_record_of_masks_is_refused(masks) -> None:
    """A refusal would be an output: what is no mask is made one, the same way from tensors and from pieces."""
    short, odd = replace(masks.training, steps=3), masks.targets.astype(np.float64)
    odd[0], odd[1], odd[2], odd[3] = np.nan, np.inf, -2, 7
    inputs = masks.inputs.astype(np.float64)
    inputs[4], inputs[5], inputs[6] = np.nan, -np.inf, 1e300
    clean, empty = np.clip(np.nan_to_num(odd, posinf=1, neginf=0), 0, 1), np.where(np.abs(inputs) < 1e30, inputs, 0)
    one = fit(masks._replace(inputs=inputs, targets=odd), training=short)
    two = fit(masks._replace(inputs=empty, targets=clean), training=short)
    read = fit(masks._replace(inputs=Pieces.inputs(inputs), targets=Pieces.masks(odd)), training=short)
    for other in (two, read):
        assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
    assert np.isnan(odd[0]).all()  # the caller's arrays are left alone
    assert np.isnan(inputs[4]).all()


@pytest.mark.filterwarnings("error")
def test_no_label_is_refused(task) -> None:
    odd = task.targets.astype(np.float64)
    odd[:6] = np.nan, np.inf, -1, 10, 2.5, 1e300
    short, clean = replace(task.training, steps=3), odd.copy()
    clean[:6] = 0
    one, two = (fit(task._replace(targets=targets), training=short) for targets in (odd, clean.astype(np.int64)))
    assert all(torch.equal(one.state[name], two.state[name]) for name in one.state)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_networks_that_have_diverged_still_answer(task, masks, bad: float) -> None:
    for kind in (task, masks):
        trained = fit(kind, training=replace(kind.training, steps=1))
        before = {name: tensor.clone() for name, tensor in trained.state.items()}
        for tensor in trained.state.values():
            tensor[1] = bad
        if kind is task:
            votes, likely = trained.predict(kind.inputs[:9]), trained.shares(kind.inputs[:9], label=1)
            assert votes.max() < 10
            assert np.isnan(bad) <= (not votes[1].any())
        else:
            likely = trained.probabilities(kind.inputs[:9])
        assert np.isfinite(likely).all()
        assert 0 <= likely.min() <= likely.max() <= 1
        trained.state = before


def test_a_shard_may_be_empty_and_its_network_learns_from_one_blank_record(task, masks) -> None:
    for kind in (task, masks):
        short = replace(kind.training, steps=3)
        hole = [part if k != 1 else [] for k, part in enumerate(kind.shards)]
        blank = np.zeros_like(kind.inputs[:1]), np.zeros_like(kind.targets[:1])
        put = [part if k != 1 else [len(kind.inputs)] for k, part in enumerate(kind.shards)]
        given = [np.concatenate([some, more]) for some, more in zip((kind.inputs, kind.targets), blank, strict=True)]
        for engine in ("sequential", "stacked", "recorded"):
            one = fit(kind._replace(shards=hole), training=short, engine=engine)
            two = fit(kind._replace(inputs=given[0], targets=given[1], shards=put), training=short, engine=engine)
            assert all(torch.equal(one.state[name], two.state[name]) for name in one.state)
        nobody = fit(kind._replace(inputs=kind.inputs[:0], targets=kind.targets[:0], shards=[[], []]), training=short)
        assert len(nobody) == 2


def test_a_warp_serves_classifiers_too(task) -> None:
    trained = fit(task, training=replace(task.training, steps=3, augmentation=Warp(rotation=10, shift=1)))
    assert trained.predict(task.inputs[:4]).shape == (5, 4)


@pytest.mark.parametrize("shape", [(5, 1, 64, 64), (5, 1, 32, 48, 32), (5, 3, 8, 8, 3)])
def test_inputs_with_their_channels_first_pass_untouched(shape: tuple[int, ...]) -> None:
    given = np.zeros(shape, dtype=np.float32)
    assert as_inputs(given).shape == shape
