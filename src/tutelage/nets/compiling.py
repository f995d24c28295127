"""Compilation that may fail without taking the training with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, final

import torch

log = logging.getLogger("tutelage.nets")


def compile_or_not(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Compile; where the compiler fails on the first call, say so once and go on without it."""
    chosen, settled = torch.compile(function, dynamic=False), False

    def call(*arguments: Any) -> Any:
        nonlocal chosen, settled
        if settled:
            return chosen(*arguments)
        try:
            result = chosen(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler may fail in any way, and a user's network is still to be trained
            log.warning("compiling the %s failed (%s): it runs uncompiled, only slower", name, type(error).__name__)
            chosen, result = function, function(*arguments)
        settled = True
        return result

    return call


@final
class Replayed:
    """Record a step's kernels on its third call and replay them from then on: small networks wait for launches, not for work.

    The step must read and write the same tensors every time. Off the GPU, and where recording fails, it is simply called.
    """

    def __init__(self, step: Callable[[], None], *, place: torch.device) -> None:
        self.step, self.place, self.graph, self.calls = step, place, None, 0
        self.recordable = place.type == "cuda"
        self.stream = torch.cuda.Stream(place) if self.recordable else None

    def __call__(self) -> None:
        self.calls += 1
        if self.graph is not None:
            self.graph.replay()
        elif self.recordable and self.calls >= 3:
            self._record()
        elif self.recordable:  # libraries choose their kernels and take their memory on the stream that will be recorded
            self.stream.wait_stream(torch.cuda.current_stream(self.place))
            with torch.cuda.stream(self.stream):
                self.step()
            torch.cuda.current_stream(self.place).wait_stream(self.stream)
        else:
            self.step()

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.step()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a user's network may do what cannot be recorded, and is still to be trained
            log.warning("recording the step failed (%s): it runs unrecorded, only slower", type(error).__name__)
            self.recordable = False
            self.step()
        else:
            self.graph = graph
            graph.replay()  # recording runs nothing
