"""Elementwise ops, single or fused, over operands of any layout: one generated kernel per pattern.

A pattern is the list of steps, the dtypes, the number of axes left after merging and, per operand, its access along the
innermost axis. Shapes, strides and offsets are parameters, so one pipeline serves every size. Template:
shaders/wgsl/pointwise/elementwise.wgsl.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from polyhal.backends.common.codegen.elementwise import (
    ElementwiseOperand,
    ExpressionStep,
    lower_fused,
    lowerings,
    merge_axes,
)
from polyhal.backends.common.codegen.expressions import RegisterClass, register_class
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate, only_stored
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Scalar, Tensor
from polyhal.backends.wgpu.dialect import WGSLDialect, convert, narrow, type_name
from polyhal.backends.wgpu.lowering.pointwise.opaque import with_opaque_operands
from polyhal.backends.wgpu.lowering.support.windows import split
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import InputSpec, Launch

_LANES = 4
_MIN_INNER = 8
"""Minimum elements of the innermost axis for which vectors are faster."""


@dataclass(slots=True)
class ElementBody:
    """The generated part of a kernel: the computation of one element. A `Writer` of `backends.common.codegen.statements`."""

    dialect: WGSLDialect = field(default_factory=WGSLDialect)
    numbers: list[str] = field(default_factory=list)
    args: dict[str, Argument] = field(default_factory=dict)
    """Values of scalar parameters, by name."""
    prepare: list[str] = field(default_factory=list)
    compute: list[str] = field(default_factory=list)

    @property
    def more_words(self) -> int:
        """Number of 32-bit words that the numbers take beyond one each: a 64-bit integer has two."""
        return sum(text.count(",") for text in self.numbers)

    def convert(self, register: str, source: DType, target: DType) -> str:
        return convert(register, source, target)

    def narrow(self, register: str, dtype: DType) -> str:
        return narrow(register, dtype)

    def rounded(self, register: str, dtype: DType) -> str:
        bits = f"{dtype.name}_bits({register})"
        return f"bitcast<f32>({bits} << 16u)" if dtype is dtypes.bfloat16 else f"unpack2x16float({bits}).x"

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        self.compute.append(f"let {name} = {expression};")

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        self.args[name] = value
        self.numbers.append(f"{name}: f32")
        return f"p.{name}"


def group(
    runtime: Runtime,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    steps: Sequence[ExpressionStep],
    results: Sequence[int],
) -> Launch:
    """Return a launch that evaluates `steps` and writes value `results[i]` to output i.

    Outputs have one shape, to which inputs broadcast, and may have any strides; absent inputs are None. An output may
    alias an input of the same layout. Raises KernelBuildError.
    """
    parts = split(runtime, inputs, outputs)
    if parts is not None:
        launches = [part.bind(group(runtime, part.inputs, part.outputs, steps, results)) for part in parts]
        return LaunchSequence(launches)
    axes, operands = merge_axes(inputs, outputs)
    width, lanes = _width(axes, operands, len(inputs))
    body = ElementBody()
    written, numbers = with_opaque_operands(steps, len(inputs))
    loaded = [load_input(body, i, s, runtime.features.int64) for i, s in enumerate(inputs)]
    values = evaluate(body, written, loaded, stored=only_stored(written, [numbers[i] for i in results]))
    targets = [o for o in operands if o.position >= len(inputs)]
    stored = [cast(body, values[numbers[i]], o.dtype) for i, o in zip(results, targets, strict=True)]
    size = runtime.features.group_size
    definitions: dict[str, Any] = {
        "WIDTH": width,
        "AXES": len(axes),
        "GROUP": size,
        "OPERANDS": [
            {
                "name": f"a{o.position}",
                "dtype": o.dtype.name,
                "role": "input" if o.position < len(inputs) else "output",
                "access": o.access,
                "lanes": lanes[o.position],
            }
            for o in operands
        ],
        "NUMBERS": ", ".join(body.numbers),
        "PREPARE": body.prepare,
        "COMPUTE": body.compute,
        "RESULTS": stored,
        "INTEGER_LIBRARIES": sorted(type_name(c) for c in body.dialect.libraries - _FLOAT),
    }
    chunks = ceil_div(axes[-1], width)
    items = math.prod(axes[:-1]) * chunks
    args: dict[str, Argument] = {f"n{axis}": length for axis, length in enumerate(axes[1:-1], 1)}
    for o in operands:
        operand = f"a{o.position}"
        args[operand] = Tensor(o.position)
        args |= {f"s_{operand}_{axis}": stride for axis, stride in enumerate(o.strides[:-1])}
        if o.access == "strided":
            args[f"t_{operand}"] = o.strides[-1]
    args |= {**body.args, "inner": axes[-1], "chunks": chunks, "items": items}
    return runtime.launch("pointwise/elementwise", definitions, args, ceil_div(items, size))


_FLOAT: frozenset[RegisterClass] = frozenset({"float", "bool"})


def _width(axes: tuple[int, ...], operands: Sequence[ElementwiseOperand], inputs: int) -> tuple[int, dict[int, int]]:
    """Return the elements per invocation and the lanes per load or store of each operand.

    Vectors are used if all operands are vectorizable, or if outputs are smaller than a word, which would otherwise be
    written byte by byte.
    """
    scalar = dict.fromkeys((o.position for o in operands), 1)
    if axes[-1] < _MIN_INNER:
        return 1, scalar
    vectorizable = {o.position: o.vectorizable(_LANES) for o in operands}
    targets = [o for o in operands if o.position >= inputs]
    if not all(vectorizable[o.position] for o in targets):
        return 1, scalar
    all_vectors = all(vectorizable[o.position] or o.access == "broadcast" for o in operands)
    if not all_vectors and all(o.dtype.itemsize >= 4 for o in targets):
        return 1, scalar
    return _LANES, {o.position: _LANES if vectorizable[o.position] and o.dtype.itemsize <= 4 else 1 for o in operands}


def load_input(body: ElementBody, position: int, spec: InputSpec | None, int64: bool) -> RegisterValue:
    """Load an input, the element of a tensor or a number, and return its register."""
    if spec is None:
        return RegisterValue("", dtypes.float32)
    if isinstance(spec, Spec):
        return RegisterValue(f"r_a{position}", spec.dtype)
    dtype = dtypes.float32 if spec.dtype.kind == "float" else spec.dtype
    if dtype.itemsize == 8 and not int64:
        # Without 64-bit tensors, the upper half cannot reach a result.
        dtype = dtypes.int32
    return _number(body, position, dtype)


def _number(body: ElementBody, position: int, dtype: DType) -> RegisterValue:
    cls = register_class(dtype)
    name, register = f"x{position}", f"r_x{position}"
    body.args[name] = Scalar(position)
    if cls in ("long", "ulong"):
        body.numbers.append(f"{name}_low: u32, {name}_high: u32")
        type_ = type_name(cls)
        body.prepare.append(f"let {register} = {type_}((u64(p.{name}_high) << 32u) | u64(p.{name}_low));")
    else:
        body.numbers.append(f"{name}: {type_name(cls)}")
        body.prepare.append(f"let {register} = p.{name};")
    return RegisterValue(register, dtype)


LOWERINGS = {**lowerings(group), "fused_elementwise": lower_fused(group, lambda runtime: runtime.features.max_buffers)}
