"""K networks as one: trained together, kept in one file, asked in streams."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tutelage.nets.answering import blank
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, checked, describe, restore
from tutelage.nets.pieces import Pieces, Source, finite, laid, with_blank
from tutelage.nets.products import as_products
from tutelage.nets.storage import label_type, read_tensors, write_tensors
from tutelage.nets.training import State, Training
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.teachers.chunks import KIND, Chunks
from tutelage.teachers.cleaning import classes, numeric
from tutelage.teachers.engines import EngineName, Job, Material, Plan, choose, run
from tutelage.teachers.fits import Fit

Progress = Callable[[int, int], None]
VOTES = 16_384  # network evaluations in flight at once on a GPU
SHARES = 65_536  # the same for shares of small pictures, in bfloat16
QUERIES = 512  # inputs per forward pass on a CPU: what its caches like
PIXELS = {"cuda": 2**22, "cpu": 2**18}  # of masks in flight at once: networks times inputs times pixels

log = logging.getLogger("tutelage.teachers")


@final
class Ensemble:
    """Hold K trained networks of one architecture as stacked tensors on the host.

    Everything in here is private: it prints its size, and its file belongs under `private/`.
    """

    def __init__(self, factory: Factory, state: State, *, device: str = "auto", plan: Plan | None = None) -> None:
        self.factory, self.state, self.device, self.plan = factory, state, device, plan
        self.template = factory().eval()
        expected = {name: tensor.shape for name, tensor in self.template.state_dict().items()}
        if {name: tensor.shape[1:] for name, tensor in state.items()} != expected or not state:
            raise DataError("`state` must hold the stacked tensors of the factory's network. Got other names or shapes instead.")

    @classmethod
    def fit(
        cls,
        factory: Factory,
        inputs: Any,
        targets: Any,
        shards: Iterable[Any],
        *,
        training: Training | None = None,
        seed: int = 0,
        device: str = "auto",
        engine: EngineName = "auto",
        chunk: int | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Ensemble:
        """Train one network per shard. `progress` counts steps of teachers; a `checkpoint` folder makes it resumable.

        `targets` are labels, or for networks with one output per pixel masks (records, *space) of zeros and ones or of
        shares in [0, 1]; these networks' inputs have their channels first. Both may be `Pieces`, which are read batch by batch.

        No record is refused: an input that is not finite becomes 0, a label that is no class becomes class 0, and masks are
        clipped. A shard may be empty: its network learns from one blank record, so that it is the same whatever others hold.

        A teacher's weights depend on `seed`, its number, its own shard, the training and public sizes alone, never on the
        records of other shards or on how many they are. Engines and chunks agree up to the rounding of their sums, and one
        engine repeats itself exactly on a CPU (for a GPU see docs/theory/teachers.md).
        """
        training = training or Training()
        checked(factory)
        place = pick_device(device)
        records, wanted, parts = taken(factory, inputs, targets, shards, training)
        job = Job(factory=factory, training=training, seed=seed)
        state = {
            name: torch.zeros(len(parts), *tensor.shape, dtype=tensor.dtype) for name, tensor in factory().state_dict().items()
        }
        folder = Chunks(checkpoint, Fit.of(job, records, wanted, parts)) if checkpoint is not None else None
        todo = folder.resume(state) if folder else list(range(len(parts)))
        total = len(parts) * training.steps
        done = total - len(todo) * training.steps

        def tick(steps: int) -> None:
            nonlocal done
            done += steps
            if progress:
                progress(done, total)

        tick(0)
        plan = None
        if todo:
            asked = f"{engine}/{chunk}/{place.type}"
            plan = folder.planned(asked) if folder else None
            if plan is None:  # before any private record lies on the device: what fits there is measured
                blank = Material(records, wanted, parts).blank(len(parts), place)
                plan = choose(engine, job, blank, chunk=chunk, device=device)
            if folder:
                folder.note(asked, plan)
            material = Material(*laid(records, wanted, place), tuple(part.to(place) for part in parts))
            log.info("%d teachers with engine %s, %d at a time (%s)", len(todo), plan.engine, plan.chunk, plan.reason)
            with _untimed():
                for teachers, learned in run(plan, job, material, todo, tick=tick, bookmark=folder):
                    for name, tensor in learned.items():
                        state[name][teachers] = tensor
                    if folder:
                        folder.write(teachers, learned)
        trained = cls(factory, state, device=device, plan=plan)
        if folder:
            folder.finish(state, trained.metadata)
        return trained

    def predict(self, inputs: Any, *, block: int | None = None, progress: Progress | None = None) -> np.ndarray:
        """Let every network label every input: (teachers, queries) of the narrowest integers, streamed in blocks.

        A network whose weights are not finite still gives labels: class 0 where none of its scores is a number.
        `block` bounds the networks times inputs in flight; only the labels are kept.
        """
        queries, stacked = as_inputs(inputs), pick_device(self.device).type == "cuda"
        width = min(len(queries), block or (1024 if stacked else QUERIES)) or 1
        labels: Tensor | None = None
        for some, part, scores in self.stream(queries, (block or VOTES) // width, width, half=False, progress=progress):
            if scores.shape[2] == 1:
                raise RecipeError("`predict` must be asked of networks with classes. Got masks: see `probabilities`.")
            if labels is None:
                labels = torch.empty((len(self), len(queries), *scores.shape[3:]), dtype=label_type(scores.shape[2]))
            labels[some, part] = scores.nan_to_num().argmax(dim=2).to(labels.dtype).cpu()  # a network may have diverged
        return np.empty((len(self), 0), dtype=np.uint8) if labels is None else labels.numpy()

    def shares(self, inputs: Any, *, label: int, block: int | None = None, progress: Progress | None = None) -> np.ndarray:
        """Let every network say how likely each input has this label: (teachers, queries) float32, streamed in blocks.

        `block` bounds the networks times inputs in flight. On a GPU products run in bfloat16, as in training.
        """
        queries, stacked = as_inputs(inputs), pick_device(self.device).type == "cuda"
        width = min(len(queries), block or (1024 if stacked else QUERIES)) or 1
        likely = torch.empty(len(self), len(queries))
        for some, part, scores in self.stream(queries, (block or SHARES) // width, width, progress=progress):
            if not 0 <= label < scores.shape[2] or scores.ndim > 3:
                raise RecipeError(f"`label` must be a class of the networks, one per input. Got {label!r} instead.")
            likely[some, part] = scores.float().softmax(dim=2)[..., label].nan_to_num().cpu()
        return likely.numpy()

    def probabilities(
        self, inputs: Any, *, dtype: Any = np.float16, block: int | None = None, progress: Progress | None = None
    ) -> np.ndarray:
        """Let every network say how likely each pixel is its object's: (teachers, queries, *space), streamed in blocks.

        `block` bounds the networks times inputs times pixels in flight. On a GPU products run in bfloat16, as in training.
        """
        queries, place = as_inputs(inputs), pick_device(self.device)
        space, stacked = tuple(queries.shape[2:]), place.type == "cuda"
        if trial(self.template, queries) != (1, *space):
            raise RecipeError("`probabilities` must be asked of networks with one output per pixel. Got others instead.")
        evaluations = max(1, (block or PIXELS["cuda" if stacked else "cpu"]) // math.prod(space))
        height = min(len(self), evaluations) if stacked else 1
        likely = torch.from_numpy(np.empty((len(self), len(queries), *space), dtype=dtype))
        for some, part, scores in self.stream(queries, height, max(1, evaluations // height), progress=progress):
            likely[some, part] = scores[:, :, 0].float().sigmoid().nan_to_num().to(likely.dtype).cpu()
        return likely.numpy()

    def stream(
        self, inputs: Any, height: int, width: int, *, half: bool = True, progress: Progress | None = None
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Ask at most `height` networks about `width` inputs at a time: which networks, which inputs, and what they say.

        That is (networks, inputs, classes, ...) on the networks' device, before any normalisation. A CPU asks one network at a
        time. With `half`, products run in bfloat16 on a GPU, as in training.
        """
        queries, place, count = as_inputs(inputs), pick_device(self.device), len(self)
        stacked = place.type == "cuda"
        step = max(1, min(count, height)) if stacked else 1
        for top in range(0, count, step):
            some = slice(top, min(top + step, count))
            ask = self._asker(some.start, some.stop, place)
            for left in range(0, len(queries), width):
                part = slice(left, min(left + width, len(queries)))
                # Both end before the block is handed over: a caller must not find itself inside of them.
                low = torch.autocast(place.type, dtype=torch.bfloat16, enabled=half and stacked, cache_enabled=False)
                with torch.inference_mode(), low:
                    scores = ask(as_float(queries[part].to(place)))
                yield some, part, scores
            if progress:
                progress(some.stop, count)

    def _asker(self, top: int, bottom: int, place: torch.device) -> Callable[[Tensor], Tensor]:
        """Bring some of the networks to the device, ready to be asked."""
        part = {name: tensor[top:bottom].to(place) for name, tensor in self.state.items()}
        if place.type == "cuda":
            template = as_products(self.template).to(place)
            stacked = torch.func.vmap(partial(_asked, template), in_dims=(0, None))
            return lambda images: stacked(part, images)
        single = copy.deepcopy(self.template)  # one at a time: plain convolutions are the CPU's fastest
        single.load_state_dict({name: tensor[0] for name, tensor in part.items()})
        return lambda images: single(images)[None]

    def some(self, which: slice) -> Ensemble:
        """Look at some of the networks as an ensemble of their own; nothing is copied."""
        return Ensemble(self.factory, {name: tensor[which] for name, tensor in self.state.items()}, device=self.device)

    def network(self, teacher: int) -> nn.Module:
        """Take one network out, as an ordinary module."""
        network = self.factory().eval()
        network.load_state_dict({name: tensor[teacher] for name, tensor in self.state.items()})
        return network

    @property
    def metadata(self) -> dict[str, str]:
        """Describe the file: its kind, how many teachers, and the network."""
        return {"kind": KIND, "teachers": str(len(self)), "network": describe(self.factory)}

    def save(self, path: str | Path) -> None:
        """Write all networks to one safetensors file of stacked tensors."""
        write_tensors(path, self.state, self.metadata, private=True)

    @classmethod
    def load(cls, path: str | Path, *, factory: Factory | None = None, device: str = "auto") -> Ensemble:
        """Read them back; a network that is not from `tutelage.nets` needs its factory again."""
        state, metadata = read_tensors(path, kind=KIND)
        return cls(factory or restore(metadata["network"]), state, device=device)

    def __len__(self) -> int:
        return len(next(iter(self.state.values())))

    def __repr__(self) -> str:
        return f"Ensemble({len(self)} teachers)"


def _asked(template: nn.Module, one: State, images: Tensor) -> Tensor:
    """Ask one network of a stack; a tensor that two of its layers share is given under both names."""
    return functional_call(template, one, (images,), tie_weights=False)


def taken(
    factory: Factory, inputs: Any, targets: Any, shards: Iterable[Any], training: Training
) -> tuple[Source, Source, tuple[Tensor, ...]]:
    """Bring records and targets to what a network is trained on, and give every teacher at least one row of them."""
    with np.errstate(all="ignore"):  # a number too large for a float32 would warn
        records = inputs if isinstance(inputs, Pieces) else finite(as_inputs(inputs))
    parts = tuple(torch.from_numpy(np.asarray(shard, dtype=np.int64)) for shard in shards)
    check(records, targets, parts, training)
    wanted = as_targets(factory(), records, targets, training)
    if all(len(part) for part in parts):
        return records, wanted, parts
    blank = torch.tensor([len(records)])
    return with_blank(records), with_blank(wanted), tuple(part if len(part) else blank for part in parts)


@contextlib.contextmanager
def _untimed() -> Iterator[None]:
    """Keep the GPU's library from choosing kernels by timing them: what it times are private records."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def check(records: Source, targets: Any, shards: tuple[Tensor, ...], training: Training) -> None:
    """Refuse shapes and settings that cannot be trained on. No record's content is looked at: a refusal would be an output."""
    if len(records) != len(targets):
        raise DataError(f"`targets` must have one entry per record. Got {len(targets)} for {len(records)} records instead.")
    if not shards:
        raise RecipeError("`shards` must be one per teacher. Got none instead.")
    if any(len(shard) and (int(shard.max()) >= len(records) or int(shard.min()) < 0) for shard in shards):
        raise RecipeError("`shards` must index the records that were given. Got an index outside of them instead.")
    bendable = (4, 5) if isinstance(training.augmentation, Warp) else (4,)
    if training.augmentation and records.ndim not in bendable:
        raise RecipeError(
            "`augmentation` must be None for inputs that are not images, and a Warp for volumes. "
            f"Got inputs of {records.ndim} dimensions instead."
        )


def trial(network: nn.Module, records: Source) -> tuple[int, ...]:
    """Ask about one blank record to see the shape of an answer: (classes, ...)."""
    shape = tuple(records.shape[1:])
    try:
        answer = blank(network, shape)
    except RuntimeError as error:
        raise RecipeError(
            f"`factory` must build a network for inputs of shape {shape}. Got one that fails on them instead."
        ) from error
    if not isinstance(answer, Tensor):
        raise RecipeError(f"`factory` must build a network that answers with one tensor. Got {type(answer).__name__} instead.")
    return tuple(answer.shape[1:])


def as_targets(network: nn.Module, records: Source, targets: Any, training: Training) -> Source:
    """Bring targets to what the network is measured by: labels to int64, masks to bytes 0 and 1 or to floats in [0, 1].

    A label that is no class of the network becomes class 0. In masks what is not a number becomes 0, and the rest is clipped.
    """
    answer = trial(network, records)
    given = targets if isinstance(targets, Pieces) else numeric(targets)
    if len(answer) == 1 or answer[0] > 1:
        return torch.from_numpy(classes(given, answer[0]))
    if given.shape[1:] != answer[1:]:
        raise DataError(
            f"`targets` must be masks of shape {answer[1:]}, the network's answer to one input. Got {given.shape[1:]} instead."
        )
    if isinstance(training.augmentation, Augmentation):
        raise RecipeError("`augmentation` must be None or a Warp for masks, which bends them too. Got an Augmentation instead.")
    if isinstance(given, Pieces):
        return replace(given, clip=True)
    kept = np.clip(given, 0, 1).astype(np.float32 if np.issubdtype(given.dtype, np.floating) else np.uint8)
    return finite(torch.from_numpy(kept))
