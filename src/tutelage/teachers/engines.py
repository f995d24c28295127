"""Train the teachers: one after the other, stacked, in worker processes, or on a Ray cluster.

Which engine, how many at a time and in how many places follow from public facts alone: the network, the training, how many
teachers there are, the shape of one record, and the machine. Sizes of shards and the number of records may be private, and
another stack's sums are rounded in another way: one unit would then move every teacher.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import logging
import math
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Source
from tutelage.nets.recorded import train_recorded
from tutelage.nets.training import Bookmark, State, Tick, Training, train_one, train_stack
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.teachers.stackable import Stackable

EngineName = Literal["auto", "sequential", "stacked", "recorded", "processes", "ray"]
ENGINES = ("auto", "sequential", "stacked", "recorded", "processes", "ray")
ON_A_GPU = {
    "recorded": "volumes on a GPU: recorded library kernels are faster there than stacked ones",
    "stacked": "small networks on a GPU: as many at once as its memory holds",
    "sequential": "a GPU, and one network or such as cannot be stacked",
}
MEMORY = 0.45  # share of a GPU's memory for a stack; what is free depends on the records that lie there
STACKS = (8, 32)  # stack sizes worth trying on a CPU: larger ones fall out of its caches
PIXELS = 2**20  # in flight in a stack on a CPU, at most: a volume's layers are gigabytes before they are slow
STARTUP = 5.0  # seconds until a worker process has imported torch
RECORDED = 64  # teachers between two checkpoints of recorded ones
GATHER = 8  # teachers per checkpoint where nothing else asks for a number
CLUSTERED = 64  # teachers in a stack on a cluster's GPU
CARRIED = 1 << 30  # bytes of records in all worker processes at once, were a shard as large as the next line says
NOMINAL = 16  # records of a shard: how many there are is private
PROBED = 10  # times the time of a probe must the work last that it is to speed up

log = logging.getLogger("tutelage.teachers")


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """Hold what every teacher's training has in common; it can be sent to another process."""

    factory: Factory
    training: Training
    seed: int


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Say which engine trains, how many teachers at a time, in how many places, and why."""

    engine: Literal["sequential", "stacked", "recorded", "processes", "ray"]
    chunk: int
    stacked: bool  # inside a chunk
    workers: int = 1
    graphics: bool = False  # of a cluster: each worker has a GPU of its own
    reason: str = "asked for"


@final
@dataclass(frozen=True, repr=False)
class Material:
    """Hold the private records, as tensors on the training device or to be read to it, and each teacher's rows of them."""

    inputs: Source  # (records, ...)
    targets: Source  # labels (records,) int64, or masks (records, *space) of bytes 0 and 1 or of floats in [0, 1]
    shards: tuple[Tensor, ...]  # per teacher, (its records,), at least one

    def blank(self, teachers: int, device: torch.device | None = None) -> Material:
        """Give material of the same public shape for this many teachers: one record of zeros, which all of them read."""
        device = device or self.inputs.device
        inputs, targets = (
            torch.zeros(1, *source.shape[1:], dtype=source.dtype, device=device) for source in (self.inputs, self.targets)
        )
        return Material(inputs, targets, (torch.zeros(1, dtype=torch.int64, device=device),) * teachers)

    def part(self, teachers: Sequence[int]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Copy out what these teachers may read, and nothing else, for a process of their own."""
        rows = torch.cat([self.shards[k] for k in teachers])
        ends = np.cumsum([0] + [len(self.shards[k]) for k in teachers])
        local = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
        return self.inputs[rows].cpu().numpy(), self.targets[rows].cpu().numpy(), local

    def __repr__(self) -> str:
        return f"Material({len(self.shards)} shards)"


def train_chunk(
    job: Job,
    material: Material,
    teachers: Sequence[int],
    *,
    numbers: Sequence[int],
    stacked: bool,
    tick: Tick,
    bookmark: Bookmark | None = None,
) -> State:
    """Train some of the material's teachers here and stack what they learned; `numbers` are their names in the ensemble."""
    gpu = material.inputs.device.type == "cuda"
    if stacked:
        factory = Stackable(job.factory)
        learned = train_stack(
            factory,
            material.inputs,
            material.targets,
            [material.shards[k] for k in teachers],
            training=job.training,
            seed=job.seed,
            teachers=numbers,
            tick=tick,
            compiled=gpu,
            products=gpu,  # on a CPU the patches cost more memory traffic than grouped convolutions lose
            bookmark=bookmark,
        )
        return factory.completed(learned)
    states = [
        train_one(
            job.factory,
            material.inputs,
            material.targets,
            training=job.training,
            seed=job.seed,
            teacher=number,
            tick=tick,
            rows=material.shards[k],
        )
        for k, number in zip(teachers, numbers, strict=True)
    ]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def train_part(
    job: Job, part: tuple[np.ndarray, np.ndarray, list[np.ndarray]], numbers: Sequence[int], stacked: bool, tick: Tick
) -> dict:
    """Train a part that was copied out, on this process's best device: arrays in, arrays out."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs, targets, local = part
    # A cluster hands out arrays that must not be written to, and torch asks for ones that may: copy.
    material = Material(
        torch.tensor(inputs, device=device),
        torch.tensor(targets, device=device),
        tuple(torch.tensor(shard, device=device) for shard in local),
    )
    state = train_chunk(job, material, range(len(local)), numbers=numbers, stacked=stacked, tick=tick)
    return {name: tensor.numpy() for name, tensor in state.items()}


def choose(engine: EngineName, job: Job, material: Material, *, chunk: int | None = None, device: str = "auto") -> Plan:
    """Choose by a short measurement on blank records; an engine that was asked for is only given its sizes.

    `device` is what the caller asked for; the material's is what this machine has, which says nothing about a cluster.
    """
    material = material.blank(len(material.shards))  # no private record or size takes part in anything below
    if engine not in ENGINES:
        raise RecipeError(f"`engine` must be one of {ENGINES}. Got {engine!r} instead.")
    if chunk is not None and not (isinstance(chunk, int) and chunk >= 1):
        raise RecipeError(f"`chunk` must be a whole number ≥ 1. Got {chunk!r} instead.")
    count, gpu = len(material.shards), material.inputs.device.type == "cuda"
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, count)
    why = "asked for"
    if engine == "auto" and gpu:
        # Stacked convolutions of volumes are slower than recorded library kernels: 3.5 against 2.1 ms a network in a trial.
        large = material.inputs.ndim == 5 and job.training.optimizer == "adam"
        engine = "recorded" if large else "stacked" if count > 1 and together(job, material) else "sequential"
        why = ON_A_GPU[engine]
    if engine == "sequential":
        return Plan(engine=engine, chunk=chunk or GATHER, stacked=False, reason=why)
    if engine == "recorded":
        if job.training.optimizer != "adam":
            raise RecipeError(f"`engine` must be another for the optimizer {job.training.optimizer!r}. Got 'recorded' instead.")
        return Plan(engine=engine, chunk=even(count, chunk or RECORDED), stacked=False, reason=why)
    if engine == "stacked":
        if not together(job, material):
            raise RecipeError("`engine` must be 'sequential' for networks that cannot be stacked. Got 'stacked' instead.")
        size = chunk or (fitting(job, material) if gpu else max(stacks(job, material), default=1))
        return Plan(engine=engine, chunk=even(count, size), stacked=True, reason=why)
    if engine == "ray":
        slots, graphics = cluster(started_ray(), device)
        stacked = graphics and together(job, material)
        size = chunk or min(CLUSTERED if graphics else GATHER, -(-count // slots))
        why = f"the cluster has {slots} {'GPU' if graphics else 'core'}{'s'[: slots > 1]} to give"
        return Plan(engine=engine, chunk=even(count, size), stacked=stacked, workers=slots, graphics=graphics, reason=why)
    if engine == "processes":
        if not movable(job.factory):
            raise RecipeError(
                "`factory` must be a function or dataclass of an importable module for engine='processes'. "
                "Got a local one instead."
            )
        size = max(1, min(GATHER, -(-count // workers), carried(material, workers)))
        return Plan(engine=engine, chunk=chunk or size, stacked=False, workers=workers)
    return quickest(job, material, workers=workers, chunk=chunk)


def quickest(job: Job, material: Material, *, workers: int, chunk: int | None) -> Plan:
    """Time a few steps of every way that could win on this CPU."""
    count, threads = len(material.shards), torch.get_num_threads()
    total = count * job.training.steps
    here = probe(job, material, stack=0)  # seconds per teacher and step
    if here * total < STARTUP:
        return Plan(
            engine="sequential", chunk=chunk or GATHER, stacked=False, reason=f"{here * total:.1f} s in all: nothing to gain"
        )
    times, room = {0: here}, total / PROBED  # in teachers and steps
    sizes = [size for size in stacks(job, material) if size <= min(count, chunk or count)]
    for size in sizes if sizes and together(job, material) else ():
        if room < costs(size):
            break  # a search must not cost what it could find
        times[size], room = probe(job, material, stack=size), room - costs(size)
        if times[size] > here:
            break  # larger stacks do what smaller ones do, with more to fetch from memory
    best = min(times, key=times.__getitem__)
    alone = times[best]
    if threads > 1 and workers > 1 and room < costs(best):
        alone *= threads  # not measured: then nothing is expected of it
    elif threads > 1 and workers > 1:
        torch.set_num_threads(1)
        try:
            alone = probe(job, material, stack=best)
        finally:
            torch.set_num_threads(threads)
    reason = ", ".join(f"{'one by one' if not size else f'stacks of {size}'} {1e3 * t:.1f} ms" for size, t in times.items())
    reason = f"per teacher and step: {reason}; {threads} thread{'s'[: threads > 1]}, {workers} core{'s'[: workers > 1]}"
    spread = STARTUP + 1.1 * alone * total / workers  # a tenth for cores that share a memory bus
    reason += f"; {times[best] * total:.0f} s in this process, about {spread:.0f} s in {workers}"
    size = min(best or GATHER, -(-count // workers), carried(material, workers))
    if workers > 1 and size and movable(job.factory) and spread < times[best] * total:
        return Plan(engine="processes", chunk=chunk or size, stacked=bool(best), workers=workers, reason=reason)
    if best:
        return Plan(engine="stacked", chunk=even(count, chunk or best), stacked=True, reason=reason)
    return Plan(engine="sequential", chunk=chunk or GATHER, stacked=False, reason=reason)


def carried(material: Material, workers: int) -> int:
    """Count the teachers whose records are copied to each worker at a time, from the size of one record alone."""
    each = NOMINAL * math.prod(material.inputs.shape[1:]) * material.inputs.dtype.itemsize
    return CARRIED // max(1, workers * each)


def together(job: Job, material: Material) -> bool:
    """Try one step of two teachers on blank records: not every layer of every user can be stacked."""
    blank = material.blank(2)
    try:
        train_stack(
            Stackable(job.factory), blank.inputs, blank.targets, blank.shards,
            training=replace(job.training, steps=1), seed=job.seed, teachers=range(2),
            tick=lambda _: None, compiled=False, products=material.inputs.device.type == "cuda",
        )  # fmt: skip
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a user's layer may fail in any way, and is still to be trained
        log.warning("these networks cannot be stacked (%s): they are trained one by one, only slower", type(error).__name__)
        return False
    return True


def stacks(job: Job, material: Material) -> list[int]:
    """Tell which stack sizes a CPU has the memory for."""
    each = job.training.batch * math.prod(material.inputs.shape[2:])
    return [size for size in STACKS if size * each <= PIXELS]


def probe(job: Job, material: Material, *, stack: int) -> float:
    """Time a few steps on blank records, in seconds per teacher and step."""
    steps = 2 if stack else 4
    material = material.blank(max(1, stack))
    for length in (1, steps):  # the first call pays for memory and kernels: `costs`
        short = replace(job, training=replace(job.training, steps=length))
        begin = time.perf_counter()
        members = range(max(1, stack))
        train_chunk(short, material, members, numbers=members, stacked=stack > 0, tick=lambda _: None)
        took = time.perf_counter() - begin
    return took / (steps * max(1, stack))


def costs(stack: int) -> int:
    """Count the steps of teachers that a probe takes."""
    return 3 * stack if stack else 5


def fitting(job: Job, material: Material) -> int:
    """Measure a teacher's GPU memory on two small stacks of blank records, and count how many fit in a share of all memory.

    What tensors ask for is measured, and not what the allocator hands out for it: that depends on what was there before.
    """
    device, peaks = material.inputs.device, []
    sizes = [min(size, len(material.shards)) for size in (2, 6)]
    if sizes[0] == sizes[1]:
        return sizes[0]
    blank, short = material.blank(sizes[1]), replace(job.training, steps=1)
    for size in (sizes[0], *sizes):  # the first one is thrown away: libraries take memory for themselves once
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        train_stack(
            Stackable(job.factory), blank.inputs, blank.targets, blank.shards[:size], training=short,
            seed=job.seed, teachers=range(size), tick=lambda _: None, compiled=False, products=True,
        )  # fmt: skip
        wanted = torch.cuda.memory_stats(device).get("requested_bytes.all.peak", 0)
        peaks.append(wanted or torch.cuda.max_memory_allocated(device))  # not every allocator counts what was asked for
    # The order of the records is drawn for all steps ahead: 8 bytes a record, and as much again while sorting.
    each = (peaks[2] - peaks[1]) / (sizes[1] - sizes[0]) + 32 * job.training.steps * job.training.batch
    _, total = torch.cuda.mem_get_info(device)
    return max(1, int(MEMORY * total / each))


def even(count: int, size: int) -> int:
    """Shrink a chunk so that all chunks are equal or nearly so: a compiled step fits one size only."""
    pieces = -(-count // min(size, count))
    return -(-count // pieces)


def movable(factory: Factory) -> bool:
    """Tell whether another process can import this factory."""
    owner = factory if hasattr(factory, "__qualname__") else type(factory)
    if getattr(owner, "__module__", "__main__") == "__main__":
        return False
    try:
        pickle.dumps(factory)
    except Exception:  # pickling runs foreign code, which may raise anything
        return False
    return True


def run(
    plan: Plan, job: Job, material: Material, teachers: Sequence[int], *, tick: Tick, bookmark: Bookmark | None = None
) -> Iterator[tuple[list[int], State]]:
    """Train these teachers and yield each chunk as it is finished; a `bookmark` keeps a long stack's middle too."""
    chunks = [list(teachers[i : i + plan.chunk]) for i in range(0, len(teachers), plan.chunk)]
    if plan.engine == "processes":
        yield from in_processes(plan, job, material, chunks, tick=tick)
    elif plan.engine == "ray":
        yield from on_ray(plan, job, material, chunks, tick=tick)
    elif plan.engine == "recorded":
        for chunk in chunks:
            shards = [material.shards[teacher] for teacher in chunk]
            yield chunk, train_recorded(
                job.factory, material.inputs, material.targets, shards,
                training=job.training, seed=job.seed, teachers=chunk, tick=tick,
            )  # fmt: skip
    else:
        for chunk in chunks:
            yield chunk, train_chunk(job, material, chunk, numbers=chunk, stacked=plan.stacked, tick=tick, bookmark=bookmark)


def in_processes(
    plan: Plan, job: Job, material: Material, chunks: list[list[int]], *, tick: Tick
) -> Iterator[tuple[list[int], State]]:
    """Hand chunks to worker processes over pipes, each with one torch thread and its own teachers' records only.

    A worker is a plain subprocess, not a multiprocessing child: it never imports the caller's script, so a script needs
    no `if __name__ == "__main__"`.
    """
    todo: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    news: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    for chunk in chunks:
        todo.put(chunk)
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-m", "tutelage.teachers.worker"]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        for _ in range(min(plan.workers, len(chunks)))
    ]

    def serve(worker: subprocess.Popen) -> None:
        try:
            while True:
                try:
                    chunk = todo.get_nowait()
                except queue.Empty:
                    return
                pickle.dump((job, material.part(chunk), chunk, plan.stacked), worker.stdin)
                worker.stdin.flush()
                kind, value = "tick", 0
                while kind == "tick":
                    news.put((kind, value))
                    kind, value = pickle.load(worker.stdout)
                news.put((kind, (chunk, value) if kind == "done" else value))
        except (EOFError, BrokenPipeError):  # the pipe ended: it was killed
            news.put(("failed", DataError(
                "Worker processes must live until their teachers have learned; with too little memory they are killed. "
                f"Got one that ended with status {worker.wait()} instead. engine='sequential' needs less."
            )))  # fmt: skip
        except Exception as error:  # it must reach the thread that waits, or that would wait for ever
            news.put(("failed", error))

    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        finished = 0
        while finished < len(chunks):
            kind, value = news.get()
            if kind == "tick":
                tick(value)
            elif kind == "failed":
                raise value
            else:
                finished += 1
                chunk, arrays = value
                yield chunk, {name: torch.from_numpy(array) for name, array in arrays.items()}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.stdout.close()
            with contextlib.suppress(BrokenPipeError):  # what it had not read is of no use to anyone now
                worker.stdin.close()


def importable_ray() -> Any:
    """Import Ray, or say how to have it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise RecipeError(
            "`engine` must be 'auto', 'sequential', 'stacked', 'recorded' or 'processes' where Ray is not installed "
            "(pip install 'tutelage[cluster]'). Got 'ray' instead."
        ) from None


def started_ray() -> Any:
    """Join the cluster that this machine belongs to, or begin one here."""
    ray = importable_ray()
    if not ray.is_initialized():
        ray.init()
    return ray


def cluster(ray: Any, device: str) -> tuple[int, bool]:
    """Count the places in which a cluster can train at once, and tell whether they are GPUs.

    The cluster is asked and not this machine: the head of one that is full of GPUs often has none.
    """
    has = ray.cluster_resources()
    graphics = int(has.get("GPU", 0)) if not device.startswith("cpu") else 0
    return (graphics, True) if graphics else (max(1, int(has.get("CPU", 1))), False)


def on_ray(plan: Plan, job: Job, material: Material, chunks: list[list[int]], *, tick: Tick) -> Iterator[tuple[list[int], State]]:
    """Spread chunks over a Ray cluster; every task receives its own teachers' records only.

    No more are handed over than can be trained at once: the records of all would fill the cluster's memory.
    """
    ray = started_ray()
    task = ray.remote(num_cpus=1, num_gpus=int(plan.graphics))(remote_part)
    todo, waiting = iter(chunks), {}
    while True:
        for chunk in itertools.islice(todo, plan.workers - len(waiting)):
            waiting[task.remote(job, material.part(chunk), chunk, plan.stacked)] = chunk
        if not waiting:
            return
        ready, _ = ray.wait(list(waiting), num_returns=1)
        chunk, arrays = waiting.pop(ready[0]), ray.get(ready[0])
        tick(len(chunk) * job.training.steps)
        yield chunk, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def remote_part(job: Job, part: tuple[np.ndarray, np.ndarray, list[np.ndarray]], numbers: list[int], stacked: bool) -> dict:
    """Train a part on a cluster's node, on one thread."""
    torch.set_num_threads(1)
    inputs, targets, local = part
    owned = (inputs.copy(), targets.copy(), local)  # Ray's arrays are read-only
    return train_part(job, owned, numbers, stacked, lambda _: None)
