"""Sequences, which are lists, and optional values, which are None if absent."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.evaluation_values import as_tensor, is_host
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


@operator("SequenceConstruct", raw=True)
def construct(*values: Value) -> Any:
    return list(values)


@operator("SequenceEmpty", raw=True)
def empty(*, dtype: int = 1) -> Any:
    return []


@operator("SequenceLength", raw=True)
def length(values: list[Value]) -> Any:
    return np.array(len(values), np.int64)


@operator("SequenceAt", host=("position",))
def at(values: list[Value], position: Value) -> Any:
    return values[integers(position)[0]]


@operator("SequenceInsert", host=("position",), foldable=False)
def insert(values: list[Value], value: Value, position: Value = None) -> Any:
    place = len(values) if position is None else integers(position)[0]
    if not -len(values) <= place <= len(values):
        raise IndexError(f"position {place} of a sequence of {len(values)}")
    place = place + len(values) if place < 0 else place
    return [*values[:place], value, *values[place:]]


@operator("SequenceErase", host=("position",))
def erase(values: list[Value], position: Value = None) -> Any:
    place = integers(position)[0] % len(values) if position is not None else len(values) - 1
    return [*values[:place], *values[place + 1 :]]


@operator("SplitToSequence", host=("split",), foldable=False)
def split_to_sequence(x: Tensor, split: Value = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    total = x.shape[axis]
    if split is None:
        parts = [ph.narrow(x, axis, i, 1) for i in range(total)]
        return parts if keepdims else [ph.squeeze(p, axis) for p in parts]
    given = np.asarray(split)
    sizes = list(integers(given))
    if given.ndim == 0:
        sizes = [min(sizes[0], total - i) for i in range(0, total, sizes[0])]
    return list(ph.split(x, sizes, axis))


@operator("ConcatFromSequence", raw=True)
def concat_from_sequence(values: list[Value], *, axis: int, new_axis: int = 0, node: NodeFacts) -> Any:
    if all(map(is_host, values)):
        return np.stack(values, axis) if new_axis else np.concatenate(values, axis)
    tensors = [as_tensor(v, node) for v in values]
    return ph.stack(tensors, axis) if new_axis else ph.concat(tensors, axis)


@operator("Optional", raw=True)
def optional(value: Value = None, *, type: Value = None) -> Any:  # noqa: A002
    return value


@operator("OptionalHasElement", raw=True)
def has_element(value: Value = None) -> Any:
    return np.array(value is not None)


@operator("OptionalGetElement", raw=True)
def get_element(value: Value) -> Any:
    if value is None:
        raise ValueError("the optional value is absent")
    return value
