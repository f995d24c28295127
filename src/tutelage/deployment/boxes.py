"""A whole volume in ONNX: normalised, brought to the model's box about its middle, and its mask put back where it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutelage.data.schema import VolumeSchema
from tutelage.deployment.graphs import Graph

INPUT = "volume"
_SHARES = (0.005, 0.995)  # of the voxels that are not 0, between which they are cut


def taken(graph: Graph, schema: VolumeSchema) -> tuple[str, str]:
    """Take a volume (channels, x, y, z) of any size; give the box (1, channels, *size), and the volume's own size."""
    volume = graph.input(INPUT, "FLOAT", [schema.channels, "x", "y", "z"])
    finite = graph.add("Or", [graph.add("IsNaN", [volume]), graph.add("IsInf", [volume])])
    clean = graph.add("Where", [finite, graph.constant(np.float32(0)), volume])
    shape = graph.add("Shape", [clean], start=1)
    size = graph.constant(np.asarray(schema.size, np.int64))
    boxes = []
    for channel in range(schema.channels):
        one = graph.add("Gather", [clean, graph.constant(np.int64(channel))], axis=0)
        ready = _windowed(graph, one, schema.intensity) if schema.intensity is not None else _normalised(graph, one)
        boxes.append(graph.add("Unsqueeze", [fitted(graph, ready, shape, size), graph.constant(np.array([0, 1], np.int64))]))
    return (graph.add("Concat", boxes, axis=1) if len(boxes) > 1 else boxes[0]), shape


def given(graph: Graph, shares: str, shape: str, schema: VolumeSchema, threshold: float) -> None:
    """Declare the outputs: every voxel's share and the mask, of the volume's own size."""
    box = graph.add("Squeeze", [shares, graph.constant(np.array([0], np.int64))])
    back = fitted(graph, box, graph.constant(np.asarray(schema.size, np.int64)), shape)
    graph.output("shares", "FLOAT", ["x", "y", "z"], back)
    cut = graph.add("Greater", [back, graph.constant(np.float32(threshold))])
    graph.output("mask", "UINT8", ["x", "y", "z"], graph.cast(cut, "UINT8"))


def fitted(graph: Graph, volume: str, have: str, want: str) -> str:
    """Cut or pad (x, y, z) with zeros, about its middle, from one size to another."""
    zero, two = graph.constant(np.array([0, 0, 0], np.int64)), graph.constant(np.array([2, 2, 2], np.int64))
    start = graph.add("Div", [graph.add("Max", [graph.add("Sub", [have, want]), zero]), two])
    kept = graph.add("Min", [have, want])
    axes = graph.constant(np.array([0, 1, 2], np.int64))
    cut = graph.add("Slice", [volume, start, graph.add("Add", [start, kept]), axes])
    before = graph.add("Div", [graph.add("Max", [graph.add("Sub", [want, have]), zero]), two])
    after = graph.add("Sub", [graph.add("Sub", [want, kept]), before])
    return graph.add("Pad", [cut, graph.add("Concat", [before, after], axis=0), graph.constant(np.float32(0))])


def _windowed(graph: Graph, volume: str, window: tuple[float, float]) -> str:
    low = graph.constant(np.float32(window[0]))
    wide = graph.constant(np.float32(window[1] - window[0]))
    scaled = graph.add("Div", [graph.add("Sub", [volume, low]), wide])
    return graph.add("Min", [graph.add("Max", [scaled, graph.constant(np.float32(0))]), graph.constant(np.float32(1))])


def _normalised(graph: Graph, volume: str) -> str:
    """Give voxels that are not 0 mean 0 and deviation 1, without the brightest and darkest; 0 stays 0."""
    nothing = graph.add("Equal", [volume, graph.constant(np.float32(0))])
    one = graph.constant(np.array([-1], np.int64))
    flat, some = graph.add("Reshape", [volume, one]), graph.add("Reshape", [graph.add("Not", [nothing]), one])
    inside = graph.cast(graph.add("Compress", [flat, some]), "DOUBLE")
    count = graph.add("Shape", [inside])
    ordered, _ = graph.several("TopK", [inside, count], 2, largest=0, sorted=1)
    # One more value, so that a volume of nothing but 0 has something to look up; it is in no other's reach.
    whole = graph.add("Concat", [ordered, graph.constant(np.array([0.0]))], axis=0)
    low, high = (_quantile(graph, whole, count, share) for share in _SHARES)
    kept = graph.add("Min", [graph.add("Max", [inside, low]), high])
    mean = graph.add("ReduceMean", [kept], keepdims=0)
    apart = graph.add("Sub", [kept, mean])
    spread = graph.add("Sqrt", [graph.add("ReduceMean", [graph.add("Mul", [apart, apart])], keepdims=0)])
    even = graph.add(
        "Where", [graph.add("Greater", [spread, graph.constant(np.float64(0))]), spread, graph.constant(np.float64(1))]
    )
    cut = graph.add("Min", [graph.add("Max", [graph.cast(volume, "DOUBLE"), low]), high])
    scaled = graph.cast(graph.add("Div", [graph.add("Sub", [cut, mean]), even]), "FLOAT")
    return graph.add("Where", [nothing, graph.constant(np.float32(0)), scaled])


def _quantile(graph: Graph, ordered: str, count: str, share: float) -> str:
    """Look a quantile up, between its two neighbours."""
    zero, one = (graph.constant(np.array([number], np.int64)) for number in (0, 1))
    last = graph.add("Max", [graph.add("Sub", [count, one]), zero])
    place = graph.add("Mul", [graph.cast(last, "DOUBLE"), graph.constant(np.float64(share))])
    below = graph.add("Floor", [place])
    ends = [graph.add("Gather", [ordered, graph.cast(one, "INT64")], axis=0) for one in (below, graph.add("Ceil", [place]))]
    step = graph.add("Mul", [graph.add("Sub", [ends[1], ends[0]]), graph.add("Sub", [place, below])])
    return graph.add("Add", [ends[0], step])


def whole(student: Any, volume: Any) -> Any:
    """Answer a volume (channels, x, y, z) as the student does: shares of the volume's own size."""
    from tutelage.data.reading import Reading
    from tutelage.data.volumes import fitted as fit
    from tutelage.data.volumes import prepared
    from tutelage.data.voxels import clean_image

    schema, given_ = student.schema, np.asarray(volume, np.float32)
    reading = Reading(intensity=schema.intensity)
    box = np.stack([fit(prepared(clean_image(one)[0], np.eye(4), reading), schema.size) for one in given_])
    return fit(np.asarray(student.shares(box[None]))[0], given_.shape[1:])


def made(schema: VolumeSchema) -> list[Any]:
    """Make volumes larger and smaller than the box: waves, an empty border, a gap, and nothing at all."""
    found = []
    for number, more in enumerate(((3, -2, 5), (-3, 4, 0), (0, 0, 0))):
        shape = tuple(max(2, side + extra) for side, extra in zip(schema.size, more, strict=True))
        axes = np.meshgrid(*(np.linspace(-2, 2, side) for side in shape), indexing="ij")
        wave = sum(np.sin((number + 2) * axis + place) for place, axis in enumerate(axes))
        volume = np.where(np.abs(axes[0]) < 1.7, 300 + 200 * wave, 0).astype(np.float32) * (number < 2)
        volume[0, 0, 0] = np.nan
        found.append(np.stack([volume * (channel + 1) for channel in range(schema.channels)]))
    return found
