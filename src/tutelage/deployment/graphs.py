"""ONNX graphs, node by node: raw cells to inputs, scikit-learn and linear students, and names of classes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted
from tutelage.data.schema import Category, Number, TableSchema
from tutelage.estimators import Levelled, Regressed
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
OPSET, ML = 18, 3


def package() -> Any:
    """Import onnx, or say how to install it."""
    try:
        import onnx
        import onnx.compose
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise RecipeError("`onnx` must be installed to export it (pip install 'tutelage[export]'). Got none instead.") from None
    return onnx


@final
class Graph:
    """Collect nodes, constants, inputs and outputs, and make a model of them."""

    def __init__(self) -> None:
        self.onnx = package()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._numbers = itertools.count()

    def input(self, name: str, kind: str, shape: Sequence[Any]) -> str:
        """Declare an input."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), list(shape)))
        return name

    def output(self, name: str, kind: str, shape: Sequence[Any], value: str) -> None:
        """Declare an output, which is a value under another name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), list(shape)))

    def constant(self, value: Any) -> str:
        """Add a constant."""
        name = f"tutelage/constant_{next(self._numbers)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and name this."""
        return self.several(kind, inputs, 1, domain=domain, **attributes)[0]

    def several(self, kind: str, inputs: Sequence[str], count: int, *, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        names = [f"tutelage/value_{next(self._numbers)}" for _ in range(count)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names

    def cast(self, value: str, kind: str) -> str:
        """Turn a value into another kind of numbers."""
        return self.add("Cast", [value], to=int(getattr(self.onnx.TensorProto, kind)))

    def inline(self, model: Any, feeds: dict[str, str]) -> list[str]:
        """Take another model's nodes in, fed with values of this graph; give the names of its outputs."""
        prefix = f"tutelage/part_{next(self._numbers)}_"
        part = self.onnx.compose.add_prefix(model, prefix)
        for outer, inner in ((feeds[one.name], f"{prefix}{one.name}") for one in model.graph.input if one.name in feeds):
            self.nodes.append(self.onnx.helper.make_node("Identity", [outer], [inner]))
        self.nodes.extend(part.graph.node)
        self.constants.extend(part.graph.initializer)
        return [one.name for one in part.graph.output]

    def model(self, metadata: dict[str, str], *, opset: int = OPSET) -> Any:
        """Make the model, checked."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "tutelage", self.inputs, self.outputs, self.constants)
        sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ML)]
        made = helper.make_model(graph, producer_name="tutelage", opset_imports=sets, ir_version=10)
        helper.set_model_props(made, metadata)
        self.onnx.checker.check_model(made)
        return made


# ── from raw records to inputs ────────────────────────────────────────────────────────────────────────────────────────


def table(graph: Graph, schema: TableSchema) -> str:
    """Encode raw cells: one input per column, texts for categories and numbers (NaN: missing) for the rest."""
    return graph.add("Concat", [_encoded(graph, column) for column in schema.columns], axis=1)


def _encoded(graph: Graph, column: Number | Category) -> str:
    if isinstance(column, Category):
        cells = graph.input(input_name(column.name), "STRING", ["records", 1])
        places = {word: place for place, word in enumerate(column.categories)}
        flat = graph.add("Reshape", [cells, graph.constant(np.array([-1], np.int64))])
        found = graph.add(
            "LabelEncoder", [flat], domain="ai.onnx.ml", keys_strings=list(places), values_int64s=list(places.values()),
            default_int64=len(places),
        )  # fmt: skip
        depth, values = graph.constant(np.int64(len(places) + 1)), graph.constant(np.array([0, 1], np.float32))
        return graph.add("OneHot", [found, depth, values], axis=-1)
    cells = graph.input(input_name(column.name), "DOUBLE", ["records", 1])
    zero, one = graph.constant(np.float64(0)), graph.constant(np.float64(1))
    odd = graph.add("Or", [graph.add("IsNaN", [cells]), graph.add("IsInf", [cells])])
    low = graph.constant(np.float64(column.low))
    known = graph.add("Where", [odd, low, cells])
    scaled = graph.add("Div", [graph.add("Sub", [known, low]), graph.constant(np.float64(column.high - column.low))])
    cut = graph.add("Min", [graph.add("Max", [scaled, zero]), one])
    return graph.cast(graph.add("Concat", [cut, graph.cast(odd, "DOUBLE")], axis=1), "FLOAT")


def input_name(column: str) -> str:
    """Name a column's input; outputs keep their own names."""
    return f"column {column}" if column in ("label", "probabilities") else column


def raw(graph: Graph, accepted: Accepted) -> str:
    """Take arrays: bytes of images, divided by 255, or numbers as the model learned them."""
    shape = ["records", *accepted.shape]
    if accepted.scaled:
        return graph.add("Div", [graph.cast(graph.input("inputs", "UINT8", shape), "FLOAT"), graph.constant(np.float32(255))])
    return graph.input("inputs", "FLOAT", shape)


# ── students ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def estimator(graph: Graph, rows: str, model: Any, count: int, width: int) -> str:
    """Give class probabilities (records, count) of a scikit-learn student, or all of it on its label."""
    flat = graph.add("Reshape", [rows, graph.constant(np.array([-1, width], np.int64))])
    if isinstance(model, Levelled):
        own = _classifier(graph, flat, model.model, width)
        even = graph.add("Div", [own, graph.constant(np.sqrt(model.shares)[None].astype(np.float32))])
        own = graph.add("Div", [even, graph.add("ReduceSum", [even, graph.constant(np.array([1], np.int64))], keepdims=1)])
    elif isinstance(model, Regressed):
        own = _regressed(graph, flat, model, width)
    elif type(model).__name__ == "DummyClassifier":
        ones = graph.add("ReduceSum", [flat, graph.constant(np.array([1], np.int64))], keepdims=1)
        own = graph.add("Add", [graph.add("Mul", [ones, graph.constant(np.float32(0))]), graph.constant(np.float32(1))])
    else:
        own = _classifier(graph, flat, model, width)
    spread = np.zeros((len(model.classes_), count), np.float32)
    spread[np.arange(len(model.classes_)), np.asarray(model.classes_, dtype=np.int64)] = 1
    return graph.add("MatMul", [own, graph.constant(spread)])


def _classifier(graph: Graph, flat: str, model: Any, width: int) -> str:
    classes = np.asarray(model.classes_, dtype=np.int64)
    label, *rest = graph.inline(_converted(model, width), {"inputs": flat})
    if hasattr(model, "predict_proba"):
        return rest[0]
    rows = graph.add("Reshape", [label, graph.constant(np.array([-1, 1], np.int64))])
    return graph.cast(graph.add("Equal", [rows, graph.constant(classes[None])]), "FLOAT")


def _regressed(graph: Graph, flat: str, model: Regressed, width: int) -> str:
    columns = [_regressor(graph, flat, one, width) for one in model.models]
    both = graph.add("Concat", columns, axis=1) if len(columns) > 1 else columns[0]
    if model.count == 2:
        both = graph.add("Concat", [graph.add("Sub", [graph.constant(np.float32(1)), both]), both], axis=1)
    cut = graph.add("Max", [both, graph.constant(np.float32(0))])
    total = graph.add("ReduceSum", [cut, graph.constant(np.array([1], np.int64))], keepdims=1)
    some = graph.add("Greater", [total, graph.constant(np.float32(0))])
    even = graph.constant(np.float32(1 / model.count))
    return graph.add(
        "Where", [some, graph.add("Div", [cut, graph.add("Where", [some, total, graph.constant(np.float32(1))])]), even]
    )


def _regressor(graph: Graph, flat: str, model: Any, width: int) -> str:
    if hasattr(model, "_predictors"):
        return _boosted(graph, flat, model)
    return graph.inline(_converted(model, width), {"inputs": flat})[0]


def _boosted(graph: Graph, flat: str, model: Any) -> str:
    """Write histogram boosting as one ensemble: every node's own rule, and leaves that are added to the baseline."""
    parts: dict[str, list[Any]] = {name: [] for name in ("tree", "node", "feature", "mode", "value", "true", "false", "missing")}
    leaves: dict[str, list[Any]] = {name: [] for name in ("tree", "node", "weight")}
    for number, (predictor,) in enumerate(model._predictors):
        for place, node in enumerate(predictor.nodes):
            leaf = bool(node["is_leaf"])
            row = {
                "tree": number, "node": place, "feature": 0 if leaf else int(node["feature_idx"]),
                "mode": "LEAF" if leaf else "BRANCH_LEQ", "value": 0.0 if leaf else _below(float(node["num_threshold"])),
                "true": 0 if leaf else int(node["left"]), "false": 0 if leaf else int(node["right"]),
                "missing": 0 if leaf else int(node["missing_go_to_left"]),
            }  # fmt: skip
            for name, value in row.items():
                parts[name].append(value)
            if leaf:
                for name, value in (("tree", number), ("node", place), ("weight", float(node["value"]))):
                    leaves[name].append(value)
    return graph.add(
        "TreeEnsembleRegressor", [flat], domain="ai.onnx.ml", n_targets=1, aggregate_function="SUM",
        base_values=[float(np.ravel(model._baseline_prediction)[0])],
        nodes_treeids=parts["tree"], nodes_nodeids=parts["node"], nodes_featureids=parts["feature"], nodes_modes=parts["mode"],
        nodes_values=parts["value"], nodes_truenodeids=parts["true"], nodes_falsenodeids=parts["false"],
        nodes_missing_value_tracks_true=parts["missing"], target_treeids=leaves["tree"], target_nodeids=leaves["node"],
        target_ids=[0] * len(leaves["tree"]), target_weights=leaves["weight"],
    )  # fmt: skip


def _below(threshold: float) -> float:
    """Round a threshold down to single precision, so that single-precision inputs pass it as before."""
    near = np.float32(threshold)
    return float(np.nextafter(near, np.float32(-np.inf)) if float(near) > threshold else near)


def _converted(model: Any, width: int) -> Any:
    """Let skl2onnx write a scikit-learn model."""
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        raise RecipeError(
            "`skl2onnx` must be installed for this student (pip install 'tutelage[export]'). Got none instead."
        ) from None
    options = {"zipmap": False} if hasattr(model, "predict_proba") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that scikit-learn retires
        try:
            return to_onnx(
                model, initial_types=[("inputs", FloatTensorType([None, width]))], target_opset={"": OPSET, "ai.onnx.ml": ML},
                options={id(model): options} if options else None,
            )  # fmt: skip
        except Exception as error:  # skl2onnx raises its own kinds
            raise RecipeError(
                f"`student` must be one that ONNX can hold. Got {type(model).__name__}, on which skl2onnx fails with "
                f"{type(error).__name__}, instead: export it as 'skops'."
            ) from None


def linear(graph: Graph, rows: str, model: Any) -> str:
    """Give class probabilities of a linear student over steps of a table."""
    sight, bins = model.sight, model.sight.features
    flat = graph.add("Reshape", [rows, graph.constant(np.array([-1, int(bins.mean.shape[0] - len(bins.columns))], np.int64))])
    parts = [flat]
    if len(bins.columns):
        chosen = graph.add("Gather", [flat, graph.constant(bins.columns)], axis=1)
        parts.append(graph.cast(graph.add("Greater", [chosen, graph.constant(bins.cuts[None])]), "FLOAT"))
    steps = graph.add("Concat", parts, axis=1) if len(parts) > 1 else flat
    scaled = graph.add("Div", [graph.add("Sub", [steps, graph.constant(bins.mean)]), graph.constant(bins.spread)])
    cut = graph.add("Clip", [scaled, graph.constant(np.float32(-4)), graph.constant(np.float32(4))])
    return head(graph, cut, sight, model.weights)


def head(graph: Graph, features: str, sight: Any, weights: Array) -> str:
    """Give softmax of features on the pool's axes times the weights, in double precision as the student has it."""
    centred = graph.add("Sub", [graph.cast(features, "DOUBLE"), graph.constant(sight.mean)])
    axes = graph.add("MatMul", [centred, graph.constant(sight.basis)])
    size = np.sqrt(sight.width)
    bent = graph.add("MatMul", [axes, graph.constant(np.asarray(weights[1:], np.float64) / size)])
    return graph.add("Softmax", [graph.add("Add", [bent, graph.constant(np.asarray(weights[:1], np.float64) / size)])], axis=1)


def named(graph: Graph, shares: str, names: Sequence[str]) -> None:
    """Declare the outputs: the name of the likeliest class, and all probabilities."""
    single = graph.cast(shares, "FLOAT")
    place = graph.add("ArgMax", [shares], axis=1, keepdims=0)
    words = graph.add(
        "LabelEncoder", [place], domain="ai.onnx.ml", keys_int64s=list(range(len(names))), values_strings=list(names),
        default_string="",
    )  # fmt: skip
    graph.output("label", "STRING", ["records"], words)
    graph.output("probabilities", "FLOAT", ["records", len(names)], single)
