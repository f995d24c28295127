"""What is asked: public inputs, a public state, or a public function of private records. A query holds no private value.

The key of a query is a hash of everything in it, the same in every process. In the ledger it is salted with all that makes
the answer (teachers, codec, mechanism, shards), so that another ensemble's answers never return.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Kind = Literal["inputs", "state", "statistic"]
_UNCLEAR = re.compile(r"\b0x[0-9a-fA-F]{5,}\b|[ \n,]\.\.\.[ \n,]")  # a memory address; elements that NumPy leaves out


class Form(StrEnum):
    """Say how the contributions of all teachers become one answer.

    EACH: one code per input, summed over teachers. SUM: one vector. GROUPED: one vector per class. GRAM: Σ f fᵀ, also per class.
    OUTER: Σ f ⊗ r. The rows of one teacher are clipped jointly in every form.
    """

    EACH = "each"
    SUM = "sum"
    GROUPED = "grouped"
    GRAM = "gram"
    OUTER = "outer"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Query:
    """Ask one thing, or one thing per row of `inputs`. `content` is plain data that says what; `arrays` belong to it."""

    kind: Kind
    form: Form = Form.EACH
    content: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("inputs", "state", "statistic"):
            raise RecipeError(f"`kind` must be 'inputs', 'state' or 'statistic'. Got {self.kind!r} instead.")
        if self.form not in list(Form) or (self.kind == "inputs" and self.form != Form.EACH):
            raise RecipeError(f"`form` must be one of {', '.join(Form)}, and 'each' for inputs. Got {self.form!r} instead.")
        arrays = {name: _plain_array(name, array) for name, array in self.arrays.items()}
        object.__setattr__(self, "form", Form(self.form))
        object.__setattr__(self, "content", MappingProxyType(json.loads(_canonical(self.content))))
        object.__setattr__(self, "arrays", MappingProxyType(arrays))

    @classmethod
    def inputs(cls, rows: npt.ArrayLike) -> Query:
        """Ask for one answer per row of public inputs."""
        return cls("inputs", Form.EACH, {}, {"inputs": np.asarray(rows)})

    @classmethod
    def state(cls, form: Form = Form.EACH, content: Mapping[str, Any] | None = None, **arrays: npt.ArrayLike) -> Query:
        """Ask in which direction a public state (weights, generated images) should move."""
        return cls("state", form, content or {}, {name: np.asarray(array) for name, array in arrays.items()})

    @classmethod
    def statistic(cls, form: Form, content: Mapping[str, Any], **arrays: npt.ArrayLike) -> Query:
        """Ask for the value of a public function, summed over private records."""
        return cls("statistic", form, content, {name: np.asarray(array) for name, array in arrays.items()})

    @property
    def rows(self) -> Array:
        """Give what is asked about, one row per answer: for a state, that state alone."""
        if self.kind == "inputs":
            return self.arrays["inputs"]
        if len(self.arrays) != 1:
            raise RecipeError(f"a state must be one array to be asked about as it is. Got {len(self.arrays)} instead.")
        return next(iter(self.arrays.values()))[None]

    @property
    def manner(self) -> list[Any]:
        """Describe what all answers of this query share: the kinds and shapes of its arrays, and its content."""
        shapes = {name: [array.dtype.str, array.shape[self.kind == "inputs" :]] for name, array in self.arrays.items()}
        return [self.kind, str(self.form), dict(self.content), shapes]

    @cached_property
    def key(self) -> str:
        """Hash the whole query."""
        digest = hashlib.sha256(_canonical([self.manner, len(self)]).encode())
        for _, array in sorted(self.arrays.items()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def keys(self, salt: str, beside: Array | None = None) -> list[str]:
        """Name every answer in the ledger: by the salt, the query, and what a student expects of this row."""
        head = _canonical([salt, self.manner, beside is not None]).encode()
        if self.kind != "inputs":
            return [hashlib.sha256(head + self.key.encode()).hexdigest()]
        rows = np.ascontiguousarray(self.arrays["inputs"])
        extra = [b""] * len(rows) if beside is None else [row.tobytes() for row in np.ascontiguousarray(beside)]
        return [hashlib.sha256(head + row.tobytes() + more).hexdigest() for row, more in zip(rows, extra, strict=True)]

    def __len__(self) -> int:
        return len(self.arrays["inputs"]) if self.kind == "inputs" else 1

    def __repr__(self) -> str:
        return f"Query({self.kind}, {self.form}, {len(self)} answers, key={self.key[:12]})"


def described(thing: Any, name: str) -> Any:
    """Describe a public object as plain data, the same in every process: by its `key`, or by the fields of a dataclass.

    A `repr` is not taken: it may hold an address, or leave elements out.
    """
    key = getattr(thing, "key", None)
    if isinstance(key, str) and not _UNCLEAR.search(key):
        return {"key": key}
    if not isinstance(key, str) and is_dataclass(thing) and not isinstance(thing, type):
        compared = [one.name for one in fields(thing) if one.compare]
        return {"kind": _kind(thing), **{one: _value(getattr(thing, one), name) for one in compared}}
    raise RecipeError(
        f"`{name}` must have a public `key` without memory addresses, or be a dataclass of plain values. "
        f"Got {type(thing).__name__} without instead."
    )


def _kind(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _value(value: Any, name: str) -> Any:
    if isinstance(value, Enum):
        return str(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, np.floating)):
        return float(value).hex()  # to the last bit, infinities too
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (tuple, list)):
        return [_value(one, name) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _value(one, name) for key, one in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    return described(value, name)


def _canonical(plain: Any) -> str:
    """Write plain data in one way."""
    try:
        return json.dumps(_unproxied(plain), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError):
        raise RecipeError("`content` of a query must be plain data: texts, finite numbers, lists. Got others instead.") from None


def _unproxied(plain: Any) -> Any:
    return dict(plain) if isinstance(plain, MappingProxyType) else plain


def _plain_array(name: str, array: Array) -> Array:
    if array.ndim < 1 or array.dtype.hasobject:  # the bytes of an object are an address, and say nothing about a question
        raise DataError(f"`{name}` must be one plain row per question. Got shape {array.shape} of {array.dtype} instead.")
    return array
