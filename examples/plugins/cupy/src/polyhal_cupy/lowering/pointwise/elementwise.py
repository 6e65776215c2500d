"""Elementwise ops, single or fused, over operands of any layout: one generated kernel per pattern.

A pattern is the list of steps, the dtypes, the number of axes left after merging and, per operand, its access along the
innermost axis. Shapes, strides and addresses are arguments, so one program serves every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from polyhal.backends.common.codegen.elementwise import (
    ElementwiseOperand,
    ExpressionStep,
    lower_fused,
    lowerings,
    merge_axes,
)
from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Scalar, ScalarType, Tensor
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import InputSpec, Launch
from polyhal_cupy.dialect import CudaDialect, convert, narrow, register_type, type_name
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_INT32_LIMIT = 2**31 - 1
_MOST_TENSORS = 24
"""Maximum tensors, with addresses and strides that always fit in a kernel's 4 KiB of parameters."""


@dataclass(frozen=True, slots=True)
class _Space:
    """Layout of the work: merged axes (innermost last), elements per thread, and the width of indices."""

    axes: tuple[int, ...]
    width: int
    wide: bool
    operands: tuple[ElementwiseOperand, ...]

    @property
    def chunks(self) -> int:
        return ceil_div(self.axes[-1], self.width)

    @property
    def items(self) -> int:
        return math.prod(self.axes[:-1]) * self.chunks

    @property
    def index(self) -> ScalarType:
        return "ulong" if self.wide else "uint"

    @property
    def offset(self) -> ScalarType:
        return "long" if self.wide else "int"


@dataclass(slots=True)
class _Text:
    """The generated parts of a kernel. A `Writer` of `polyhal.backends.common.codegen.statements`."""

    dialect: CudaDialect = field(default_factory=CudaDialect)
    parameters: list[str] = field(default_factory=list)
    args: dict[str, Argument] = field(default_factory=dict)
    locate: list[str] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    compute: list[str] = field(default_factory=list)
    store: list[str] = field(default_factory=list)

    def scalar(self, name: str, type_: ScalarType, value: Scalar | float) -> None:
        self.parameters.append(f"const {type_name(type_)} {name}")
        self.args[name] = value

    def convert(self, register: str, source: DType, target: DType) -> str:
        return convert(register, source, target)

    def narrow(self, register: str, dtype: DType) -> str:
        return narrow(register, dtype)

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        self.compute.append(f"const {register_type(dtype)} {name} = {expression};")

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        type_: ScalarType = "double" if dtype is dtypes.float64 else "float"
        self.scalar(name, type_, value)
        return name


def group(
    runtime: Runtime,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    steps: Sequence[ExpressionStep],
    results: Sequence[int],
    places: Sequence[int] | None = None,
) -> Launch:
    """Return a launch that evaluates `steps` and writes value `results[i]` to output i.

    Outputs have one shape, to which inputs broadcast, and may have any strides; absent inputs are None. An output may
    be identical to an input. `places` are the argument indices of inputs and outputs, if not in this order. Raises
    KernelBuildError.
    """
    places = range(len(inputs) + len(outputs)) if places is None else places
    space = _lay_out(inputs, outputs)
    text = _Text()
    values = evaluate(text, steps, _emit_operands(text, space, inputs, places))
    _emit_results(text, space, [values[i] for i in results], outputs)
    definitions: dict[str, str | int | bool] = {
        "WIDTH": space.width,
        "ALIGNED": space.width > 1,
        "FLAT": len(space.axes) == 1,
        "INDEX": type_name(space.index),
        "OFFSET": type_name(space.offset),
        "BLOCK": _BLOCK,
        "PARAMETERS": ", ".join(text.parameters),
        "LOCATE": "\n".join(text.locate),
        "LOAD": "\n".join(text.load),
        "COMPUTE": "\n".join(text.compute),
        "STORE": "\n".join(text.store),
    }
    text.args |= {"inner": space.axes[-1], "chunks": space.chunks, "items": space.items}
    blocks = ceil_div(space.items, _BLOCK)
    return runtime.launch("pointwise_elementwise", "pointwise/elementwise", definitions, text.args, blocks, _BLOCK)


def _lay_out(inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> _Space:
    axes, operands = merge_axes(inputs, outputs)
    width = _width(axes, operands)
    wide = max(*[o.span(axes) for o in operands], math.prod(axes) + 2 * width * _BLOCK) > _INT32_LIMIT
    return _Space(axes, width, wide, operands)


def _width(axes: tuple[int, ...], operands: Sequence[ElementwiseOperand]) -> int:
    """Return the elements per thread: 16 bytes of the widest operand if all are aligned, else one.

    Without whole vectors, adjacent threads should access adjacent elements.
    """
    itemsize = max(o.dtype.itemsize for o in operands)
    full = 8 if itemsize <= 2 else 16 // itemsize
    whole = all(o.access == "broadcast" or o.vectorizable(full) for o in operands)
    return full if whole and axes[-1] >= full else 1


def _emit_operands(
    text: _Text, space: _Space, inputs: Sequence[InputSpec | None], places: Sequence[int]
) -> list[RegisterValue]:
    outer = len(space.axes) - 1
    for axis in range(outer - 1, 0, -1):
        text.locate.append(f"const INDEX c{axis} = row % n{axis}; row /= n{axis};")
    if outer:
        text.locate.append("const INDEX c0 = row;")
    for o in space.operands:
        kind = f"{'const ' if o.position < len(inputs) else ''}{o.dtype.name} *"
        text.parameters.append(f"{kind}p{o.position}")
        text.args[f"p{o.position}"] = Tensor(places[o.position])
        terms = "".join(f" + (OFFSET)c{a} * s{o.position}_{a}" for a in range(outer))
        text.locate.append(f"{kind}q{o.position} = p{o.position}{terms};")
    values = []
    for i, spec in enumerate(inputs):
        if isinstance(spec, ScalarSpec):
            values.append(_emit_number(text, i, places[i], spec.dtype))
        elif spec is None:
            values.append(RegisterValue("", dtypes.float32))
        else:
            values.append(_emit_load(text, next(o for o in space.operands if o.position == i)))
    for axis in range(1, outer):
        text.scalar(f"n{axis}", space.index, space.axes[axis])
    for o in space.operands:
        for axis in range(outer):
            text.scalar(f"s{o.position}_{axis}", space.offset, o.strides[axis])
        if o.access == "strided":
            text.scalar(f"t{o.position}", space.offset, o.strides[-1])
    return values


def _emit_number(text: _Text, position: int, place: int, dtype: DType) -> RegisterValue:
    # Integers are passed in 64 bits, so that a number outside a small dtype's range wraps instead of failing to pack.
    held, cls = register_type(dtype), register_class(dtype)
    wire: ScalarType = cls if cls in ("float", "double", "ulong") else "long"
    text.scalar(f"x{position}", wire, Scalar(place))
    text.compute.append(f"const {held} r{position} = ({held})x{position};")
    return RegisterValue(f"r{position}", dtype)


def _emit_load(text: _Text, o: ElementwiseOperand) -> RegisterValue:
    i, name = o.position, o.dtype.name
    how = {
        "contiguous": f"load_contiguous(q{i}, at, remaining)",
        "broadcast": f"load_broadcast(q{i})",
        "strided": f"load_strided(q{i}, at, t{i}, remaining)",
    }
    text.load.append(f"const Vector<{name}> v{i} = {how[o.access]};")
    text.compute.append(f"const {register_type(o.dtype)} r{i} = widen(v{i}.at[j]);")
    return RegisterValue(f"r{i}", o.dtype)


def _emit_results(text: _Text, space: _Space, results: Sequence[RegisterValue], outputs: Sequence[Spec]) -> None:
    targets = space.operands[len(space.operands) - len(outputs) :]
    for value, o in zip(results, targets, strict=True):
        i, name = o.position, o.dtype.name
        text.load.append(f"Vector<{name}> v{i};")
        text.compute.append(f"v{i}.at[j] = narrow<{name}>({cast(text, value, o.dtype)});")
        if o.access == "contiguous":
            text.store.append(f"store_contiguous(q{i}, at, remaining, v{i});")
        else:
            # An output of one element may have "broadcast" access: its stride is meaningless.
            step = f"t{i}" if o.access == "strided" else "(OFFSET)0"
            text.store.append(f"store_strided(q{i}, at, {step}, remaining, v{i});")


LOWERINGS = {**lowerings(group), "fused_elementwise": lower_fused(group, lambda runtime: _MOST_TENSORS)}
