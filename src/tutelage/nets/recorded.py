"""Several networks side by side on one GPU, each step recorded once and replayed: for networks too large to be stacked.

A stacked convolution of volumes costs a GPU more than the volumes' own library kernels do; what those lose is waiting for
launches, and a recording launches a whole step at once. Lanes fill what one small network leaves idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import final

import torch
from torch import Tensor, nn

from tutelage.nets.compiling import Replayed
from tutelage.nets.inputs import as_float
from tutelage.nets.losses import measure
from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Source
from tutelage.nets.training import BLOCK, State, Stream, Tick, Training, distorted

LANES = 8  # networks in training at once


def train_recorded(
    factory: Factory,
    inputs: Source,
    targets: Source,
    shards: Sequence[Tensor],
    *,
    training: Training,
    seed: int,
    teachers: Sequence[int],
    tick: Tick,
    lanes: int = LANES,
    start: Sequence[State] | None = None,
) -> State:
    """Train teachers a few at a time, each as `train_one` would, and stack what they learned: (teachers, ...)."""
    with torch.random.fork_rng(devices=[]):  # weights that nobody will keep
        lines = [Lane(factory, inputs, targets, training) for _ in range(min(lanes, len(teachers)))]
    learned: list[State] = []
    for first in range(0, len(teachers), len(lines)):
        places = range(first, min(first + len(lines), len(teachers)))
        streams = [Stream(seed, teachers[place], inputs.device) for place in places]
        for lane, stream, place in zip(lines, streams, places, strict=False):
            lane.begin(stream.build(factory), None if start is None else start[place])
        rows = torch.stack(
            [shards[place][stream.order(len(shards[place]), training.steps * training.batch)]
             for stream, place in zip(streams, places, strict=True)]
        ).unflatten(1, (training.steps, training.batch))  # (lanes, steps, batch)  # fmt: skip
        for step in range(0, training.steps, BLOCK):
            steps = min(BLOCK, training.steps - step)
            images, wanted = _block(inputs, targets, rows[:, step : step + steps], streams, training)
            _wait(inputs.device)  # lanes have streams of their own, and read what was made on another
            for number in range(steps):
                for lane, shown, asked in zip(lines, images, wanted, strict=False):
                    lane.step(shown[number], asked[number], training.rate_at(step + number))
            _wait(inputs.device)
            tick(steps * len(streams))
        learned += [lane.state() for lane, _ in zip(lines, streams, strict=False)]
    return {name: torch.stack([state[name] for state in learned]) for name in learned[0]}


def _block(inputs: Source, targets: Source, rows: Tensor, streams: Sequence[Stream], training: Training) -> tuple[Tensor, Tensor]:
    """Gather and distort the batches of the next steps for all lanes: (lanes, steps, batch, ...) twice."""
    images, wanted = as_float(inputs[rows]), targets[rows]
    if training.augmentation:
        draws = torch.stack([stream.draws(training.augmentation, training.batch) for stream in streams])
        images, wanted = distorted(training.augmentation, images, wanted, draws[:, : rows.shape[1]])
    return images, wanted


def _arranged(tensor: Tensor) -> Tensor:
    """Put channels last in memory, as library kernels like best."""
    return tensor.contiguous(memory_format=torch.channels_last_3d if tensor.ndim == 5 else torch.channels_last)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@final
class Lane:
    """Train one network after the other in the same place in memory, so that one recording serves them all.

    Off the GPU nothing is recorded, and the lanes take turns: slower than the plain loop, and the same to the last bits.
    """

    def __init__(self, factory: Factory, inputs: Source, targets: Source, training: Training) -> None:
        self.training, self.device = training, inputs.device
        self.network = factory().train().to(self.device)
        for layer in self.network.modules():  # one that looks at volumes slice by slice holds convolutions of images
            if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
                layer.weight.data = _arranged(layer.weight.data)
        self.images = _arranged(torch.zeros_like(as_float(inputs[:1])).repeat(training.batch, *[1] * (inputs.ndim - 1)))
        soft = torch.float32 if training.augmentation and targets.dtype != torch.int64 else targets.dtype
        self.wanted = torch.zeros(training.batch, *targets.shape[1:], dtype=soft, device=self.device)
        gpu = self.device.type == "cuda"
        self.rate = torch.zeros((), device=self.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.rate, weight_decay=training.decay, fused=True, capturable=gpu
        )
        self.stream = torch.cuda.Stream(self.device) if gpu else None
        self.replayed = Replayed(self._step, place=self.device)

    def begin(self, network: nn.Module, start: State | None) -> None:
        """Take another network's weights and forget what the optimizer knew."""
        _wait(self.device)
        for _ in range(3 - self.replayed.calls):  # record with whatever is in memory: the steps before a recording are real
            self.replayed()
        fresh = network.state_dict() if start is None else start
        with torch.no_grad():
            for name, tensor in self.network.state_dict().items():
                tensor.copy_(fresh[name])
            for state in self.optimizer.state.values():
                for tensor in state.values():
                    tensor.zero_()
        _wait(self.device)

    def step(self, images: Tensor, wanted: Tensor, rate: float) -> None:
        """Take one step on the lane's own stream."""
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self.images.copy_(images)
            self.wanted.copy_(wanted)
            self.rate.fill_(rate)
            self.replayed()

    def _step(self) -> None:
        half = self.training.half(self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False):
            scores = self.network(self.images)
        loss = measure(scores.float(), self.wanted, smoothing=self.training.smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def state(self) -> State:
        """Copy out what was learned, in the usual order of memory."""
        _wait(self.device)
        return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.network.state_dict().items()}
