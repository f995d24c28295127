"""One unit moves one teacher: whatever happens to its records, every other teacher stays the same to the last bit."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.teachers.test_engines import Cluster

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Private, Public
from tutelage.data.scenes import Scenes
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.nets import pieces as pieces_module
from tutelage.nets import recorded as recorded_module
from tutelage.nets import training as training_module
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Stream, Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.sealed import _KEY
from tutelage.teachers import engines
from tutelage.teachers import ensemble as ensemble_module
from tutelage.teachers import estimators as estimators_module
from tutelage.teachers import segmenter as segmenter_module
from tutelage.teachers.classifier import Classifier
from tutelage.teachers.estimators import EstimatorTeachers
from tutelage.teachers.networked import Networked
from tutelage.teachers.records import RecordTeachers
from tutelage.teachers.regions import RegionTeachers
from tutelage.teachers.segmenter import Segmenter

SHARDS, PEOPLE = 8, 12
SCENES = Scenes(size=16, target="cat")
Array = np.ndarray


@dataclass(frozen=True)
class Records:
    """Some records of some people, row by row."""

    inputs: Array
    targets: Array
    people: Array

    def rows(self, order: Array) -> Records:
        return Records(self.inputs[order], self.targets[order], self.people[order])

    def plus(self, other: Records) -> Records:
        pairs = ((self.inputs, other.inputs), (self.targets, other.targets), (self.people, other.people))
        return Records(*(np.concatenate(pair) for pair in pairs))

    @property
    def private(self) -> Private:
        """Wrap what is here as it is, without any check or mending on the way: the teachers are to be tested."""
        return Private(self.inputs, self.targets, self.people, "patient")


class Raw(Records):
    """Records whose precision no `Private` has brought to one."""

    @property
    def private(self) -> Private:
        made = super().private
        object.__setattr__(made, "inputs", self.inputs)
        return made


def drawn(kind: str, count: int, *, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    if kind == "regions":
        images, masks = SCENES.draw(count, seed=seed)
        return np.asarray(images, dtype=np.float32), np.asarray(masks, dtype=np.float32)
    if kind == "table":
        return rng.normal(size=(count, 6)), rng.integers(0, 3, count).astype(np.float64)
    images = rng.normal(size=(count, 1, 8, 8)).astype(np.float32)
    if kind == "labels":
        return images, rng.integers(0, 3, count).astype(np.float64)
    return images, (images[:, 0] > 0).astype(np.float32)


def world(kind: str) -> Records:
    """Give everybody two to four records, in the order of their ids."""
    people = np.repeat([f"p{person:02d}" for person in range(PEOPLE)], [2 + person % 3 for person in range(PEOPLE)])
    return Records(*drawn(kind, len(people), seed=1), people)


def hashed(records: Records) -> Any:
    return records.private.split(SHARDS, seed=4)


def somebody() -> str:
    """Choose one who has a shard alone: without records it is empty."""
    records = world("table")
    shards = hashed(records)
    alone = [{*records.people[part]} for part in shards.indices if len({*records.people[part]}) == 1]
    return min(next(iter(one)) for one in alone)


WHO = somebody()

# ── what can happen to one unit's records ─────────────────────────────────────────────────────────────────────────────


def mine(records: Records) -> Array:
    return np.flatnonzero(records.people == WHO)


def other_content(records: Records, kind: str) -> Records:
    inputs, targets = records.inputs.copy(), records.targets.copy()
    inputs[mine(records)], targets[mine(records)] = drawn(kind, len(mine(records)), seed=9)
    return Records(inputs, targets, records.people)


def more(records: Records, kind: str, count: int = 1) -> Records:
    """Put further records of the same person behind its first: everything behind them moves."""
    at = mine(records)[0] + 1
    new = Records(*drawn(kind, count, seed=8), np.full(count, WHO))
    return records.rows(np.arange(at)).plus(new).plus(records.rows(np.arange(at, len(records.people))))


def less(records: Records, kind: str) -> Records:
    return records.rows(np.delete(np.arange(len(records.people)), mine(records)[0]))


def nothing(records: Records, kind: str) -> Records:
    return records.rows(np.flatnonzero(records.people != WHO))


def relabelled(records: Records, kind: str) -> Records:
    targets = records.targets.copy()
    targets[mine(records)] = (targets[mine(records)] + 1) % (3 if targets.ndim == 1 else 2)
    return Records(records.inputs, targets, records.people)


def reordered(records: Records, kind: str) -> Records:
    order = np.arange(len(records.people))
    order[mine(records)] = mine(records)[::-1]
    return records.rows(order)


def interleaved(records: Records, kind: str) -> Records:
    """Put the person's records far apart among those of others, whose order stays: the first comes last of all."""
    rest = np.flatnonzero(records.people != WHO)
    return records.rows(np.insert(rest, [5, *[len(rest)] * (len(mine(records)) - 1)], mine(records)[::-1]))


def broken(records: Records, kind: str) -> Records:
    """Make one record all that can go wrong: inputs and targets that are no numbers, or far too large."""
    inputs, targets = records.inputs.copy(), records.targets.copy()
    first, second = mine(records)[:2]
    inputs[first], inputs[second], targets[first], targets[second] = np.nan, 1e30, np.nan, -7
    return Records(inputs, targets, records.people)


CHANGES: dict[str, Callable[[Records, str], Records]] = {
    "replace": other_content,
    "add": more,
    "remove one": less,
    "remove all": nothing,
    "relabel": relabelled,
    "reorder": reordered,
    "interleave": interleaved,
    "no numbers": broken,
    "very many": lambda records, kind: more(records, kind, 400),
}

# ── teachers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

BENT, WARPED = Augmentation(rotation=10, shift=1), Warp(rotation=10, shift=1, elastic=0.3, noise=0.1)
SHORT = Training(steps=3, batch=4, augmentation=BENT)
LEARN = replace(SHORT, augmentation=WARPED)
SMALL = ConvNet(shape=(1, 8, 8), classes=3, widths=(4,), hidden=8, groups=2)
LOOK = ConvNet(shape=(2, 8, 8), classes=2, widths=(4,), hidden=8, groups=2)
CUT = RegionVotes((16, 16), 4)


def unet(side: int) -> UNet:
    return UNet(shape=(1, side, side), widths=(4, 8), groups=2)


NETWORKS: dict[str, tuple[str, Callable[..., Networked]]] = {
    "classifier": ("labels", lambda **how: Classifier(SMALL, training=SHORT, **how)),
    "segmenter": ("masks", lambda **how: Segmenter(unet(8), training=LEARN, **how)),
    "windows": ("masks", lambda **how: Segmenter(unet(4), training=LEARN, **how).through((4, 4))),
    "regions": ("regions", lambda **how: RegionTeachers(CUT, LOOK, side=8, training=SHORT, **how)),
}
PAIRS = [(name, engine) for name in NETWORKS for engine in ("sequential", "stacked", "recorded")]


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def network_bits(teachers: Networked, kind: str) -> list[bytes]:
    """Give all that is there of every teacher: its weights, and what it says about public inputs."""
    asked, _ = drawn(kind, 5, seed=7)
    votes = teachers.vote(asked)._open(_KEY)
    weights = teachers.ensemble.state.values()
    return [bits(votes[k]) + b"".join(bits(tensor[k]) for tensor in weights) for k in range(SHARDS)]


def trained(name: str, engine: str, records: Records, *, divide: Callable[[Records], Any] = hashed) -> list[bytes]:
    kind, make = NETWORKS[name]
    teachers = make(engine=engine, device="cpu", chunk=3, seed=2)
    return network_bits(teachers.fit(records.private, divide(records)), kind)


def differing(one: list[bytes], other: list[bytes]) -> set[int]:
    assert len(one) == len(other) == SHARDS
    return {k for k in range(SHARDS) if one[k] != other[k]}


def home(records: Records) -> int:
    return next(k for k, part in enumerate(hashed(records).indices) if WHO in records.people[part])


@pytest.fixture(scope="module")
def before() -> Callable[[str, str], list[bytes]]:
    known: dict[tuple[str, str], list[bytes]] = {}

    def find(name: str, engine: str) -> list[bytes]:
        if (name, engine) not in known:
            known[name, engine] = trained(name, engine, world(NETWORKS[name][0]))
        return known[name, engine]

    return find


def test_the_changes_are_what_they_are_called() -> None:
    records = world("table")
    count, own = len(records.people), len(mine(records))
    assert home(records) in range(SHARDS)
    sizes = {name: len(change(records, "table").people) - count for name, change in CHANGES.items()}
    assert sizes == dict.fromkeys(CHANGES, 0) | {"add": 1, "remove one": -1, "remove all": -own, "very many": 400}
    assert [len(part) for part in hashed(nothing(records, "table")).indices][home(records)] == 0
    for change in CHANGES.values():
        changed = change(records, "table")
        others = [some.rows(np.flatnonzero(some.people != WHO)) for some in (records, changed)]
        assert bits(others[0].inputs) == bits(others[1].inputs)
        assert bits(others[0].targets) == bits(others[1].targets)
        assert others[0].people.tolist() == others[1].people.tolist()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_networks(name: str, engine: str, change: str, before: Callable[[str, str], list[bytes]]) -> None:
    kind = NETWORKS[name][0]
    records = world(kind)
    after = trained(name, engine, CHANGES[change](records, kind))
    assert differing(before(name, engine), after) <= {home(records)}
    if change in ("replace", "remove all", "relabel", "very many") and name != "regions":
        assert differing(before(name, engine), after) == {home(records)}  # or nothing was looked at


@pytest.mark.parametrize("engine", ["sequential", "stacked", "recorded"])
def test_records_that_no_longer_fit_into_memory(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit's records push the data over the size up to which it is held: from then on it is read batch by batch."""
    records = world("masks")
    many = more(records, "masks", 400)
    monkeypatch.setattr(segmenter_module, "HELD", many.inputs.nbytes - 1)
    made = Segmenter(unet(8), device="cpu")
    kinds = [type(made.material(some.private, hashed(some))[0]).__name__ for some in (records, many)]
    assert kinds == ["ndarray", "Pieces"]
    for after in (many, nothing(many, "masks")):
        assert differing(trained("segmenter", engine, records), trained("segmenter", engine, after)) == {home(records)}


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_networks_in_other_processes(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is a real process. Ray is a stand-in with its verbs: `test_engines` compares a real one with the loop."""
    monkeypatch.setitem(sys.modules, "ray", Cluster(CPU=2.0))
    monkeypatch.setattr(engines.os, "sched_getaffinity", lambda _: {0}, raising=False)  # one worker: starting takes longest
    records = world("labels")
    one = trained("classifier", engine, records)
    for change in ("remove all", "very many"):
        assert differing(one, trained("classifier", engine, CHANGES[change](records, "labels"))) == {home(records)}
    assert one == trained("classifier", "sequential", records)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_networks_on_a_gpu(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With deterministic algorithms a GPU keeps to the same rule (docs/theory/teachers.md says what holds without)."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    kind, make = NETWORKS[name]
    records = world(kind)

    def bits_of(some: Records) -> list[bytes]:
        return network_bits(make(engine=engine, device="cuda", chunk=None, seed=2).fit(some.private, hashed(some)), kind)

    torch.use_deterministic_algorithms(True)
    try:
        one = bits_of(records)
        for change in ("remove all", "no numbers", "interleave", "very many"):
            assert differing(one, bits_of(CHANGES[change](records, kind))) <= {home(records)}, change
    finally:
        torch.use_deterministic_algorithms(False)


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────

QUESTIONS = drawn("table", 40, seed=6)[0]
POOL = np.random.default_rng(5).normal(size=(80, 6))
SIGHTS = {
    "table": Sight.learn(Public.of(POOL), Seeing(axes=5, bins=3)),
    "labels": Sight.learn(Public.of(drawn("labels", 30, seed=5)[0]), Seeing(axes=5, filters=8, patch=3, grid=2), device="cpu"),
}


def fitted(kind: str, records: Records, *, divide: Callable[[Records], Any] = hashed) -> list[bytes]:
    teachers = EstimatorTeachers(kind, seed=2).fit(records.private, divide(records))
    votes = teachers.vote(QUESTIONS)._open(_KEY)
    inner = [
        getattr(model, "decision_function" if kind in ("linear", "kernel") else "predict_proba", None)
        for model in teachers._models
    ]
    return [bits(votes[k]) + (bits(ask(QUESTIONS)) if ask else b"") for k, ask in enumerate(inner)]


@pytest.mark.parametrize("kind", ["forest", "linear", "kernel", "neighbours", "levelled-bagged"])
def test_estimators(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = estimators_module.estimator

    def quick(name: str, *, seed: int = 0) -> Any:
        model = build(name, seed=seed)
        inner = getattr(model, "model", model)
        if hasattr(inner, "n_estimators"):
            inner.set_params(n_estimators=5)
        return model

    monkeypatch.setattr(estimators_module, "estimator", quick)
    records = world("table")
    one = fitted(kind, records)
    for name, change in CHANGES.items():
        changed = differing(one, fitted(kind, change(records, "table")))
        assert changed <= {home(records)}, name
        assert changed or name not in ("replace", "remove all", "relabel", "very many"), name


@pytest.mark.parametrize("kind", ["forest", "linear", "kernel", "neighbours"])
def test_one_record_in_double_precision_moves_no_estimator(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It widens the array of all. What reads the array as it comes computes everybody's teacher in that precision."""
    table = world("table")
    single = Raw(table.inputs.astype(np.float32), table.targets, table.people)
    double = Raw(single.inputs.astype(np.float64), table.targets, table.people)
    assert not differing(fitted(kind, single), fitted(kind, double))
    if kind == "linear":
        monkeypatch.setattr(estimators_module, "_rows", lambda inputs: estimators_module.flat(estimators_module.numbers(inputs)))
        assert len(differing(fitted(kind, single), fitted(kind, double))) > 1  # all that know two classes


@pytest.mark.parametrize("kind", SIGHTS)
def test_one_record_in_double_precision_moves_no_correction(kind: str) -> None:
    table = world(kind)
    single = Records(table.inputs.astype(np.float32), table.targets, table.people)
    double = Records(single.inputs.astype(np.float64), table.targets, table.people)
    assert not differing(corrected(kind, single), corrected(kind, double))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_record_in_double_precision_moves_no_network(name: str) -> None:
    given = world(NETWORKS[name][0])
    single = Records(given.inputs.astype(np.float32), given.targets, given.people)
    double = Records(single.inputs.astype(np.float64), given.targets, given.people)
    assert not differing(trained(name, "sequential", single), trained(name, "sequential", double))


def corrected(kind: str, records: Records) -> list[bytes]:
    sight = SIGHTS[kind]
    guesses = np.random.default_rng(4).normal(size=(2, sight.width, 3))
    votes = RecordTeachers(sight).fit(records.private, hashed(records)).vote(guesses)._open(_KEY)
    assert np.isfinite(votes).all()
    return [bits(votes[k]) for k in range(SHARDS)]


@pytest.mark.parametrize("kind", SIGHTS)
@pytest.mark.parametrize("change", CHANGES)
def test_records(kind: str, change: str) -> None:
    records = world(kind)
    changed = CHANGES[change](records, kind)
    found = differing(corrected(kind, records), corrected(kind, changed))
    assert found <= {home(records)}
    assert found or change in ("reorder", "interleave")
    if change == "remove all":
        assert not np.frombuffer(corrected(kind, changed)[home(records)]).any()


# ── broken twins ──────────────────────────────────────────────────────────────────────────────────────────────────────


def by_first_appearance(records: Records) -> Any:
    """Divide as `Shards.split` did: evenly at random by the order in which units first appear, with a place for each."""
    distinct, first, which = np.unique(records.people, return_index=True, return_inverse=True)
    keys = [hashlib.blake2b(f"4:{place}".encode(), digest_size=16).digest() for place in range(len(distinct))]
    homes = np.empty(len(distinct), dtype=np.int64)
    homes[sorted(range(len(distinct)), key=keys.__getitem__)] = np.arange(len(distinct)) % SHARDS
    places = np.empty(len(distinct), dtype=np.int64)
    places[np.argsort(first)] = np.arange(len(distinct))
    where = homes[places[which]]
    parts = tuple(np.flatnonzero(where == k) for k in range(SHARDS))
    return SimpleNamespace(indices=parts, __len__=lambda: SHARDS)


def moved(records: Records) -> Records:
    """Let the very first person's records come last, as when a file is renamed or a first stay is removed."""
    first = records.people == records.people[0]
    return records.rows(np.concatenate([np.flatnonzero(~first), np.flatnonzero(first)]))


def test_shards_by_first_appearance_are_caught() -> None:
    """The unit keeps all of its records; only the row in which the first of them stands has changed."""

    class Division(SimpleNamespace):
        def __len__(self) -> int:
            return SHARDS

        def __getitem__(self, shard: int) -> Array:
            return self.indices[shard]

    def divide(records: Records) -> Division:
        return Division(indices=by_first_appearance(records).indices)

    records = world("labels")
    one, other = (trained("classifier", "sequential", some, divide=divide) for some in (records, moved(records)))
    assert len(differing(one, other)) == SHARDS
    table = world("table")
    assert len(differing(*(fitted("linear", some, divide=divide) for some in (table, moved(table))))) >= SHARDS - 1
    own = next(k for k, part in enumerate(hashed(table).indices) if 0 in part)  # which may have other units, and another order
    assert differing(*(trained("classifier", "sequential", some) for some in (records, moved(records)))) <= {own}
    assert differing(*(fitted("linear", some) for some in (table, moved(table)))) <= {own}


def test_a_chunk_that_hangs_on_the_largest_shard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old `carried` decided how many teachers are stacked by the largest shard; other stacks round in another way."""

    def run(plan: engines.Plan, job: Any, material: engines.Material, *given: Any, **more: Any) -> Any:
        largest = max(len(shard) for shard in material.shards)
        return engines.run(replace(plan, chunk=max(1, 100 // largest)), job, material, *given, **more)

    monkeypatch.setattr(ensemble_module, "run", run)
    records = world("masks")
    one, other = (trained("segmenter", "stacked", some) for some in (records, more(records, "masks", 400)))
    assert len(differing(one, other)) > 1


def test_seeds_of_a_global_draw_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One generator for all teachers: how many numbers the first one draws moves the batches of the others."""
    shared: list[torch.Generator] = []

    class Global(Stream):  # type: ignore[misc]
        def __init__(self, seed: int, teacher: int, device: torch.device) -> None:
            super().__init__(seed, teacher, device)
            self.generator = shared[0]

    for module in (training_module, recorded_module):
        monkeypatch.setattr(module, "Stream", Global)
    records = world("labels")
    found = []
    for some in (records, more(records, "labels", 20)):
        shared[:] = [torch.Generator().manual_seed(0)]
        found.append(trained("classifier", "sequential", some))
    assert len(differing(*found)) > 1
    build, state = estimators_module.estimator, np.random.RandomState(0)
    monkeypatch.setattr(estimators_module, "estimator", lambda kind, *, seed=0: build(kind).set_params(random_state=state))
    table = world("table")
    assert len(differing(*(fitted("forest", some) for some in (table, table)))) > 1


# ── what is chosen before training ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("engine", ["auto", "sequential", "stacked", "recorded", "processes"])
def test_no_private_size_takes_part_in_the_plan(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two materials with another number of records, in shards of other sizes, one of which is held and one read from disk."""
    timed: list[engines.Material] = []

    def probe(job: engines.Job, material: engines.Material, *, stack: int) -> float:
        timed.append(material)
        return 0.01 if not stack else 0.008

    monkeypatch.setattr(engines, "probe", probe)
    job = engines.Job(factory=unet(8), training=replace(LEARN, steps=2000), seed=0)
    inputs, masks = drawn("masks", 3000, seed=0)
    plans = []
    for count, sizes in ((40, [10, 10, 10, 10]), (3000, [2990, 1, 4, 5])):
        ends = np.cumsum([0, *sizes])
        shards = tuple(torch.arange(start, end) for start, end in itertools.pairwise(ends))
        source = [torch.from_numpy(inputs[:count]), torch.from_numpy(masks[:count])]
        if count == 3000:
            source = [engines_pieces(inputs), engines_pieces(masks, masks=True)]
        plans.append(engines.choose(engine, job, engines.Material(*source, shards)))
    assert plans[0] == plans[1]
    assert bool(timed) == (engine == "auto")
    assert {(len(some.inputs), some.inputs.any().item()) for some in timed} <= {(1, False)}
    assert {tuple(map(len, some.shards)) for some in timed} <= {(1, 1, 1, 1)}


def engines_pieces(array: Array, *, masks: bool = False) -> Any:
    from tutelage.nets.pieces import Pieces

    return Pieces.masks(array) if masks else Pieces.inputs(array)


def test_a_probe_reads_blank_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[torch.Tensor] = []
    real = engines.train_chunk

    def spied(job: Any, material: engines.Material, *given: Any, **more: Any) -> Any:
        read.append(material.inputs)
        return real(job, material, *given, **more)

    monkeypatch.setattr(engines, "train_chunk", spied)
    inputs, masks = (torch.from_numpy(array) for array in drawn("masks", 30, seed=0))
    material = engines.Material(inputs, masks, (torch.arange(29), torch.arange(29, 30)))
    for stack in (0, 2):
        engines.probe(engines.Job(factory=unet(8), training=LEARN, seed=0), material, stack=stack)
    assert len(read) == 4
    assert all(len(some) == 1 and not some.any() for some in read)


@pytest.mark.parametrize("free", [1, 1000, 10_000])
def test_what_is_free_on_a_gpu_does_not_size_a_stack(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private records lie there: what they leave free depends on how many they are. A stand-in for the GPU counts bytes."""
    peaks = iter([800, 500, 500 + 4 * 10])  # the first stack also pays for what the libraries keep
    job = engines.Job(factory=unet(8), training=replace(LEARN, steps=1, batch=1), seed=0)
    material = engines.Material(*(torch.from_numpy(array) for array in drawn("masks", 30, seed=0)), (torch.arange(3),) * 10)
    for name, stand_in in {
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda _: None,
        "memory_stats": lambda _: {"requested_bytes.all.peak": next(peaks)},
        "mem_get_info": lambda _: (free, 10_000),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(engines, "train_stack", lambda *_, **__: {})
    assert engines.fitting(job, material.blank(10)) == int(engines.MEMORY * 10_000 / (10 + 32))


def test_the_plan_is_chosen_before_any_private_record_reaches_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records lie already, a GPU's allocator hands out other blocks for the same stack: its measured size moves."""
    order: list[str] = []

    def choose(engine: Any, job: Any, material: engines.Material, **more: Any) -> engines.Plan:
        order.append("choose")
        assert (len(material.inputs), len(material.targets)) == (1, 1)
        assert not material.inputs.any()
        assert {len(shard) for shard in material.shards} == {1}
        return engines.choose(engine, job, material, **more)

    def laid(*given: Any) -> Any:
        order.append("lay")
        return pieces_module.laid(*given)

    monkeypatch.setattr(ensemble_module, "choose", choose)
    monkeypatch.setattr(ensemble_module, "laid", laid)
    for name, (kind, _) in NETWORKS.items():
        order.clear()
        trained(name, "sequential", world(kind))
        assert order == ["choose", "lay"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_number_of_records_does_not_size_a_gpu_s_stack() -> None:
    """Before, 2,000, 2,250 and 2,325 records on the device gave 3237, 3266 and 3269 teachers for one network."""
    job = engines.Job(factory=ConvNet(shape=(1, 28, 28), classes=10), training=Training(), seed=0)
    sizes = []
    for count, place in itertools.product((2000, 2250, 2325, 2000), ("cpu", "cuda")):
        inputs = torch.rand(count, 1, 28, 28, device=place)  # even on the device they move nothing
        targets = torch.zeros(count, dtype=torch.int64, device=place)
        material = engines.Material(inputs, targets, tuple(torch.arange(k, count, 250) for k in range(250)))
        sizes.append(engines.fitting(job, material.blank(250, torch.device("cuda"))))
        del inputs, targets, material
    assert len(set(sizes)) == 1
