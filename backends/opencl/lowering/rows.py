"""Launches over rows: operands walked along one axis, with the other axes numbered (see shaders/opencl/rows.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant
from polyhal.backends.common.rows import walk
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined

_ELEMENTS_EACH = 4096
"""A CPU's work-item takes rows of about so many elements together, so that starting it costs little."""
_SHORT_ROW = 512
_SHORT_GROUP = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """How a kernel over rows is compiled and launched."""

    rows: int
    length: int
    definitions: dict[str, str | int | bool]
    parameters: tuple[Parameter, ...]
    """ROW_PARAMETERS and one STRIDES per operand."""
    items: tuple[int, ...]
    group: tuple[int, ...]


def arrange(runtime: Runtime, specs: Sequence[Spec], axis: int) -> Rows | Declined:
    """Rows along `axis` of operands of equal shape. Vectors are used where the axis is contiguous in all of them."""
    found = walk(specs, axis)
    if isinstance(found, Declined):
        return found
    definitions, each, items, group = geometry(runtime, specs[0].dtype, found.count, found.length, found.contiguous)
    parameters: list[Parameter] = [
        Constant(found.count, "ulong"),
        Constant(found.length, "uint"),
        Constant(each, "uint"),
        Constant(found.outer[1], "uint"),
        Constant(found.outer[2], "uint"),
    ]
    for step, stride in zip(found.steps, found.strides, strict=True):
        parameters += [Constant(v, "long") for v in (*stride, step)]
    return Rows(found.count, found.length, definitions, tuple(parameters), items, group)


def geometry(
    runtime: Runtime, dtype: DType, rows: int, length: int, vectors: bool = True
) -> tuple[dict[str, str | int | bool], int, tuple[int, ...], tuple[int, ...]]:
    """Definitions, rows per group, work-items and group size for `rows` rows of `length` elements.

    A CPU gives each work-item some rows, a GPU each row a group. Rows that are not contiguous take one work-item each on both.
    """
    features = runtime.features
    real = real_type(dtype)
    definitions: dict[str, str | int | bool] = {"DTYPE": dtype.name, "REAL": real}
    if not vectors:
        # Neighbouring rows are then neighbours in memory, as neighbouring work-items are.
        definitions |= {"WIDTH": 1, "GROUP": 1}
        return definitions, 1, (rows,), (1,)
    width = features.vector_width
    if real == "double":
        width = max(1, width // 2)
    if not features.cpu:
        group = _SHORT_GROUP if length <= _SHORT_ROW else features.group_size
        definitions |= {"WIDTH": width if length >= width * group else 1, "GROUP": group}
        return definitions, 1, (rows * group,), (group,)
    while width > length and width > 1:
        width //= 2
    definitions |= {"WIDTH": width if length >= width else 1, "GROUP": 1, "POLYNOMIAL_EXP": own_exp(runtime, dtype)}
    each = max(1, min(_ELEMENTS_EACH // length, ceil_div(rows, 4 * features.compute_units)))
    return definitions, each, (ceil_div(rows, each),), (1,)


def own_exp(runtime: Runtime, dtype: DType) -> bool:
    """PoCL computes exp element by element."""
    return "portable computing language" in runtime.features.platform.lower() and dtype is not dtypes.float64


def real_type(dtype: DType) -> str:
    """The C type in which a dtype is computed."""
    return type_name(register_class(dtype))
