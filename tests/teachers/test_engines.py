"""Engines agree, and the choice between them is by measurement."""

import functools
import itertools
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tutelage.nets.pieces import Pieces
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.teachers import engines
from tutelage.teachers.ensemble import Ensemble


def fit(task, engine: str, **changed) -> Ensemble:
    settings = {"training": task.training, "device": "cpu", "seed": 1, "engine": engine} | changed
    return Ensemble.fit(task.network, task.inputs, task.targets, task.shards, **settings)


def same(one: Ensemble, two: Ensemble) -> bool:
    return all(torch.equal(one.state[name], two.state[name]) for name in one.state)


def test_worker_processes_give_what_the_loop_gives(task) -> None:
    seen = []
    there = fit(task, "processes", chunk=2, progress=lambda done, total: seen.append(done))
    assert there.plan.engine == "processes"
    assert same(there, fit(task, "sequential"))
    assert seen == sorted(seen)
    assert seen[-1] == 5 * task.training.steps


@pytest.mark.parametrize("chunk", [None, 2])
def test_recorded_lanes_give_what_the_loop_gives(task, chunk: int | None) -> None:
    seen = []
    there = fit(task, "recorded", chunk=chunk, progress=lambda done, total: seen.append(done))
    alone = fit(task, "sequential")
    assert (there.plan.engine, there.plan.chunk) == ("recorded", chunk or 5)
    assert max((there.state[name] - alone.state[name]).abs().max().item() for name in alone.state) < 2e-3
    assert seen == sorted(seen)
    assert seen[-1] == 5 * task.training.steps


def test_only_adam_is_recorded(task) -> None:
    with pytest.raises(RecipeError, match=r"`engine` must be another for the optimizer 'sgd'\. Got 'recorded'"):
        fit(task, "recorded", training=engines.replace(task.training, optimizer="sgd"))


def test_workers_are_sent_fewer_teachers_where_a_record_is_large(task, monkeypatch) -> None:
    images, masks = np.zeros((40, 1, 8, 8), np.float32), np.zeros((40, 8, 8), np.uint8)
    shards = tuple(torch.arange(10 * k, 10 * k + 10) for k in range(4))
    read = engines.Material(Pieces.inputs(images), Pieces.masks(masks), shards)
    held = engines.Material(torch.from_numpy(images), torch.from_numpy(masks), shards)
    each = engines.NOMINAL * 256  # however many records there are: that may be private
    for room, count in ((1 << 30, 4), (2 * 2 * each, 2), (2 * each, 1), (2 * each - 1, 0)):
        monkeypatch.setattr(engines, "CARRIED", room)
        assert min(4, engines.carried(read, 2)) == count
        assert engines.carried(held, 2) == engines.carried(read, 2)
        job = engines.Job(factory=task.network, training=task.training, seed=0)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
        assert engines.choose("processes", job, read).chunk == max(1, min(2, count))
        monkeypatch.setattr(engines, "probe", lambda *_, stack: 1.0)  # so long that two processes are worth their start
        monkeypatch.setattr(engines, "stacks", lambda *_: [])
        assert engines.choose("auto", job, read).engine == ("processes" if count else "sequential")


def test_a_failure_in_a_worker_is_told_here(task) -> None:
    material = engines.Material(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), (torch.arange(4),))
    job = engines.Job(factory=torch.nn.modules.module._WrappedHook, training=task.training, seed=0)  # importable, not buildable
    plan = engines.Plan(engine="processes", chunk=1, stacked=False, workers=1)
    with pytest.raises(TypeError):
        list(engines.run(plan, job, material, [0], tick=lambda _: None))


def test_a_worker_that_was_killed_is_told_of_and_not_waited_for(task) -> None:
    material = engines.Material(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), (torch.arange(4),))
    job = engines.Job(factory=functools.partial(os._exit, 3), training=task.training, seed=0)
    plan = engines.Plan(engine="processes", chunk=1, stacked=False, workers=1)
    with pytest.raises(DataError, match="Got one that ended with status 3"):
        list(engines.run(plan, job, material, [0], tick=lambda _: None))


def test_a_local_factory_stays_in_this_process(task) -> None:
    assert not engines.movable(lambda: nn.Linear(2, 2))
    assert engines.movable(task.network)
    with pytest.raises(RecipeError, match="`factory` must be a function or dataclass of an importable module"):
        Ensemble.fit(lambda: task.network(), task.inputs, task.targets, task.shards, engine="processes", device="cpu")


def test_ray_is_asked_for_by_name_and_missed_clearly(task, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RecipeError, match="Ray is not installed"):
        fit(task, "ray")


class Cluster:
    """Stands for Ray, with the verbs that are used: the real one needs half a minute, below."""

    def __init__(self, **resources: float) -> None:
        self.resources, self.begun, self.asked = resources, 0, {}
        self.flying, self.most = set(), 0

    def is_initialized(self) -> bool:
        return bool(self.begun)

    def init(self) -> None:
        self.begun += 1

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **asked):
        self.asked = asked

        def submit(*given):
            number = len(self.flying) + 1000 * self.begun
            task = (number, lambda: self.function(*given))
            self.flying.add(task)
            self.most = max(self.most, len(self.flying))
            return task

        def wrap(function):
            self.function = function
            return SimpleNamespace(remote=submit)

        return wrap

    def wait(self, refs, num_returns):
        return refs[-1:], refs[:-1]

    def get(self, ref):
        self.flying.remove(ref)
        return ref[1]()


def test_a_cluster_gives_what_the_loop_gives(task, monkeypatch) -> None:
    fake = Cluster(CPU=2.0)
    monkeypatch.setitem(sys.modules, "ray", fake)
    there = fit(task, "ray", chunk=1)
    assert same(there, fit(task, "sequential"))
    assert fake.begun == 1
    assert fake.asked == {"num_cpus": 1, "num_gpus": 0}
    assert fake.most == 2  # of five: no more than can be trained at once are handed over
    assert (there.plan.workers, there.plan.reason) == (2, "the cluster has 2 cores to give")


@pytest.mark.parametrize(
    ("resources", "device", "expected"),
    [
        ({"CPU": 8.0}, "auto", (8, False)),
        ({"CPU": 8.0, "GPU": 3.0}, "auto", (3, True)),  # whatever this machine has
        ({"CPU": 8.0, "GPU": 3.0}, "cuda", (3, True)),
        ({"CPU": 8.0, "GPU": 3.0}, "cpu", (8, False)),
        ({}, "auto", (1, False)),
    ],
)
def test_the_cluster_is_asked_what_it_has(resources: dict, device: str, expected: tuple) -> None:
    assert engines.cluster(Cluster(**resources), device) == expected


def test_workers_with_a_gpu_are_asked_for_where_the_head_has_none(task, monkeypatch) -> None:
    fake = Cluster(CPU=8.0, GPU=2.0)
    monkeypatch.setitem(sys.modules, "ray", fake)
    there = fit(task, "ray", device="auto")
    assert fake.asked == {"num_cpus": 1, "num_gpus": 1}
    assert (there.plan.stacked, there.plan.workers, there.plan.chunk) == (True, 2, 3)  # both have something to do


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_real_cluster_of_two_nodes_gives_what_the_loop_gives(task) -> None:
    """Two nodes of one core each, with a scheduler and an object store of their own, and a head that trains nothing."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        ray.init(address=nodes.address)
        there = fit(task, "ray", chunk=1)
        assert same(there, fit(task, "sequential"))
        assert (there.plan.workers, there.plan.reason) == (2, "the cluster has 2 cores to give")
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in ray.timeline() if event["name"] == "task:execute")
        assert len(spans) == 5
        assert any(after[0] < before[1] for before, after in itertools.pairwise(spans))  # side by side: a node has one core
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.mark.parametrize(
    ("alone", "stacked", "cores", "expected"),
    [
        (1e-6, 1e-9, 2, ("sequential", False)),  # over before anything could start
        (0.010, 0.020, 1, ("sequential", False)),
        (0.010, 0.004, 1, ("stacked", True)),
        (0.010, 0.020, 2, ("processes", False)),
        (0.010, 0.004, 2, ("processes", True)),
    ],
)
def test_the_quickest_way_is_chosen(task, monkeypatch, alone: float, stacked: float, cores: int, expected: tuple) -> None:
    monkeypatch.setattr(engines, "probe", lambda job, material, *, stack: stacked if stack else alone)
    training = engines.replace(task.training, steps=100)
    job = engines.Job(factory=task.network, training=training, seed=0)
    shards = tuple(torch.arange(4) for _ in range(100))
    material = engines.Material(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), shards)
    plan = engines.quickest(job, material, workers=cores, chunk=None)
    assert (plan.engine, plan.stacked) == expected
    assert "ms" in plan.reason or "nothing to gain" in plan.reason


def probed(task, monkeypatch, times: dict[int, float], *, teachers: int, steps: int, threads: int = 1) -> list[int]:
    """Choose, and tell which stacks were timed for that."""
    asked: list[int] = []
    monkeypatch.setattr(engines, "probe", lambda job, material, *, stack: asked.append(stack) or times[stack])
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # or all tests after this one would run on so many
    job = engines.Job(factory=task.network, training=engines.replace(task.training, steps=steps), seed=0)
    shards = tuple(torch.arange(4) for _ in range(teachers))
    material = engines.Material(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), shards)
    engines.quickest(job, material, workers=2, chunk=None)
    return asked


def test_a_search_costs_little_of_what_it_searches_for(task, monkeypatch) -> None:
    slow, fast = {0: 0.05, 8: 0.06, 32: 0.01}, {0: 0.05, 8: 0.03, 32: 0.02}
    assert probed(task, monkeypatch, fast, teachers=100, steps=1000) == [0, 8, 32]
    assert probed(task, monkeypatch, slow, teachers=100, steps=1000) == [0, 8]  # eight are slower already
    assert probed(task, monkeypatch, fast, teachers=40, steps=16) == [0, 8]  # 640 steps of teachers: 96 more are too many
    assert probed(task, monkeypatch, fast, teachers=40, steps=5) == [0]
    assert probed(task, monkeypatch, fast, teachers=40, steps=1) == [0]  # two seconds in all
    assert probed(task, monkeypatch, slow, teachers=100, steps=1000, threads=2) == [0, 8, 0]  # again, on one thread


def test_what_was_not_measured_on_one_thread_is_not_hoped_for(task, monkeypatch) -> None:
    probed(task, monkeypatch, {0: 0.5, 8: 0.3}, teachers=40, steps=6, threads=2)
    job = engines.Job(factory=task.network, training=engines.replace(task.training, steps=6), seed=0)
    shards = tuple(torch.arange(4) for _ in range(40))
    material = engines.Material(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), shards)
    assert engines.quickest(job, material, workers=2, chunk=None).engine == "stacked"


def test_a_real_measurement_ends_in_a_plan(task) -> None:
    assert fit(task, "auto").plan.engine in ("sequential", "stacked", "processes")


@pytest.mark.parametrize(("count", "size", "expected"), [(250, 300, 250), (250, 128, 125), (10, 4, 4), (1, 8, 1)])
def test_chunks_are_even(count: int, size: int, expected: int) -> None:
    assert engines.even(count, size) == expected


def test_stacks_of_volumes_stay_small_on_a_cpu(task) -> None:
    job = engines.Job(factory=task.network, training=engines.replace(task.training, batch=2), seed=0)
    for shape, sizes in (((4, 1, 28, 28), [8, 32]), ((4, 1, 32, 48, 32), [8]), ((4, 4, 64, 64, 64), []), ((4, 12), [8, 32])):
        material = engines.Material(torch.zeros(1).expand(shape), torch.zeros(4), (torch.arange(4),))
        assert engines.stacks(job, material) == sizes


def test_a_worker_is_handed_its_own_teachers_records_only(task) -> None:
    shards = tuple(torch.from_numpy(shard) for shard in task.shards)
    material = engines.Material(torch.from_numpy(task.inputs), torch.from_numpy(task.targets), shards)
    inputs, targets, local = material.part([1, 3])
    assert len(inputs) == len(targets) == len(task.shards[1]) + len(task.shards[3])
    assert (inputs[local[1]] == task.inputs[task.shards[3]]).all()
    assert repr(material) == "Material(5 shards)"
