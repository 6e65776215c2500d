"""Elementwise ops, alone or as a fused group, over operands of any layout: one generated kernel per pattern.

A pattern is the list of steps, the dtypes, the number of axes left after merging and, per operand, how it walks the
innermost axis. Shapes, strides and offsets are arguments, so one program serves every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from polyhal.backends.common.codegen.elementwise import ElementwiseOperand, ExpressionStep, lowerings, merge_axes
from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Scalar, ScalarType, Tensor
from polyhal.backends.opencl.dialect import OpenCLDialect, convert, narrow, type_name
from polyhal.backends.opencl.lowering.support.prefetch import ahead
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.kernels.tuning import Family, magnitude
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import InputSpec, Launch

INT32_LIMIT = 2**31 - 1
_LEAST_SPAN = 64
"""Chunks that a work-item of a CPU takes at least, so that starting it costs little beside them."""
_SPANS_PER_UNIT = 64
"""Work-items of a CPU per compute unit, so that none waits long for another."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """How elements are dealt out."""

    group: int
    """Work-items per group; 1 on CPUs, where each takes a span."""
    vector: int
    """Elements of four bytes per work-item, where rows are long enough."""


STREAMING = Family[Streaming](
    "elementwise",
    {"group": (16, 32, 64, 128, 256, 512), "vector": (4, 8, 16)},
    lambda features, choice: (
        choice.group <= (1 if features.cpu else features.max_group_size) and choice.vector in (1, 2, 4, 8, 16)
    ),
)


@dataclass(frozen=True, slots=True)
class _Space:
    """How the work is laid out: merged axes (innermost last), elements per work-item, and the type of indices."""

    axes: tuple[int, ...]
    width: int
    aligned: bool
    wide: bool
    operands: tuple[ElementwiseOperand, ...]

    @property
    def chunks(self) -> int:
        return ceil_div(self.axes[-1], self.width)

    @property
    def items(self) -> int:
        return math.prod(self.axes[:-1]) * self.chunks


@dataclass(slots=True)
class Text:
    """The generated parts of a kernel (see `pointwise/elementwise.cl`). A `Writer` of `backends.common.steps`."""

    dialect: OpenCLDialect = field(default_factory=OpenCLDialect)
    parameters: list[str] = field(default_factory=list)
    geometry: dict[str, ScalarType] = field(default_factory=dict)
    """Members of the struct of all numbers that are known now."""
    args: dict[str, Argument] = field(default_factory=dict)
    locate: list[str] = field(default_factory=list)
    registers: list[str] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    load_part: list[str] = field(default_factory=list)
    compute: list[str] = field(default_factory=list)
    store: list[str] = field(default_factory=list)
    store_part: list[str] = field(default_factory=list)

    def tensor(self, operand: ElementwiseOperand, const: str = "const ") -> None:
        """Parameters p<position> and p<position>_offset: an operand's memory and offset."""
        n = operand.position
        self.parameters.append(f"__global {const}STORAGE({operand.dtype.name}) *p{n}, const ulong p{n}_offset")
        self.args[f"p{n}"] = Tensor(n)

    def runtime_scalar(self, name: str, type_: ScalarType, index: int) -> None:
        """A parameter for input `index`, a number that may differ in each call."""
        self.parameters.append(f"const {type_} {name}")
        self.args[name] = Scalar(index)

    def constant(self, name: str, type_: ScalarType, value: int | float) -> None:
        """A number that is known now, as a variable of the kernel."""
        self.geometry[name] = type_
        self.args[name] = value

    def signature(self) -> dict[str, str]:
        """The definitions of the kernel's parameters and of its struct."""
        by_size = sorted(self.geometry.items(), key=lambda member: member[1] not in ("long", "ulong", "double"))
        return {
            "PARAMETERS": ", ".join(self.parameters),
            "GEOMETRY": " ".join(f"{type_} {name};" for name, type_ in by_size),
            "UNPACK_GEOMETRY": " ".join(f"const {type_} {name} = geometry.{name};" for name, type_ in by_size),
        }

    def convert(self, register: str, source: DType, target: DType) -> str:
        return convert(register, source, target)

    def narrow(self, register: str, dtype: DType) -> str:
        return narrow(register, dtype)

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        self.compute.append(f"const VEC({type_name(register_class(dtype))}) {name} = {expression};")

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        type_: ScalarType = "double" if dtype is dtypes.float64 else "float"
        self.constant(name, type_, value)
        return f"(VEC({type_}))({name})"


def group(
    runtime: Runtime,
    name: str,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    steps: Sequence[ExpressionStep],
    results: Sequence[int],
) -> Launch:
    """A launch that evaluates `steps` and writes value `results[i]` to output i.

    Outputs have one shape, to which inputs broadcast, and may have any strides; absent inputs are None. An output may
    be exactly an input. Raises KernelBuildError.
    """
    cpu = runtime.features.cpu
    default = Streaming(1 if cpu else runtime.features.group_size, runtime.features.vector_width)
    choice = runtime.tuning.choose(STREAMING, magnitude(math.prod(outputs[0].shape)), default)
    space = _lay_out(choice.vector, runtime, inputs, outputs)
    text = Text()
    values = evaluate(text, steps, _emit_operands(text, space, inputs))
    _emit_results(text, space, [values[i] for i in results], outputs)
    index: ScalarType = "ulong" if space.wide else "uint"
    each = max(_LEAST_SPAN, ceil_div(space.items, _SPANS_PER_UNIT * runtime.features.compute_units)) if cpu else 1
    for name_, number in (("inner", space.axes[-1]), ("chunks", space.chunks), ("items", space.items), ("each", each)):
        text.constant(name_, index, number)
    definitions: dict[str, str | int | bool] = {
        "WIDTH": space.width,
        "ALIGNED": space.aligned,
        "FLAT": len(space.axes) == 1,
        "SPANS": cpu,
        "PREFETCH_DISTANCE": ahead(runtime),
        "INDEX": index,
        "OFFSET": "long" if space.wide else "int",
        **dict.fromkeys(sorted(text.dialect.headers), 1),
        **text.signature(),
        "LOCATE": "\n".join(text.locate),
        "REGISTERS": "\n".join(text.registers),
        "LOAD_FULL": "\n".join(text.load),
        "LOAD_PART": "\n".join(text.load_part),
        "COMPUTE_ALL": "\n".join(text.compute),
        "STORE_FULL": "\n".join(text.store),
        "STORE_PART": "\n".join(text.store_part),
    }
    return runtime.launch(
        name, "pointwise/elementwise", definitions, text.args, (ceil_div(space.items, each),), (choice.group,),
        options=division_options(runtime),
    )  # fmt: skip


def division_options(runtime: Runtime) -> list[str]:
    """Build options that make division and square roots round as IEEE 754 asks, where the device can."""
    return ["-cl-fp32-correctly-rounded-divide-sqrt"] if runtime.features.correct_divide else []


def _lay_out(vector: int, runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> _Space:
    axes, operands = merge_axes(inputs, outputs)
    # A short tensor could do with narrower vectors, but these are another program, which costs more than it ever gains.
    inner = max(axes[-1], vector) if runtime.features.cpu and len(axes) == 1 else axes[-1]
    width, aligned = vector_width(vector, runtime, inner, operands)
    wide = max(*[o.span(axes) for o in operands], math.prod(axes) + 2 * width) > INT32_LIMIT
    return _Space(axes, width, aligned, wide, operands)


def vector_width(vector: int, runtime: Runtime, inner: int, operands: Sequence[ElementwiseOperand]) -> tuple[int, bool]:
    """Elements of the innermost axis, of length `inner`, per work-item, and whether its vectors are aligned.

    CPUs take unaligned and gathered vectors in their stride. GPUs gain from vectors only when they are aligned, and
    otherwise want neighbouring work-items on neighbouring elements.
    """
    itemsize = max(o.dtype.itemsize for o in operands)
    if runtime.features.cpu:
        full = vector if itemsize <= 4 else max(2, vector // 2)
        return next((w for w in (full, 4) if inner >= w), 1), False
    full = max(2, min(2 * vector, 4 * vector // itemsize, 16))
    whole = all(o.access == "broadcast" or o.vectorizable(full) for o in operands)
    return (full, True) if whole and inner >= full else (1, False)


def _emit_operands(text: Text, space: _Space, inputs: Sequence[InputSpec | None]) -> list[RegisterValue]:
    outer = len(space.axes) - 1
    integer: ScalarType = "long" if space.wide else "int"
    for axis in range(outer - 1, 0, -1):
        text.locate.append(f"const INDEX c{axis} = row % n{axis}; row /= n{axis};")
    if outer:
        text.locate.append("const INDEX c0 = row;")
    for o in space.operands:
        const = "const " if o.position < len(inputs) else ""
        text.tensor(o, const)
        terms = "".join(f" + (OFFSET)c{a} * s{o.position}_{a}" for a in range(outer))
        text.locate.append(
            f"__global {const}STORAGE({o.dtype.name}) *q{o.position} = p{o.position} + p{o.position}_offset{terms};"
        )
    values = load_inputs(text, inputs, space.operands)
    for axis in range(1, outer):
        text.constant(f"n{axis}", "ulong" if space.wide else "uint", space.axes[axis])
    for o in space.operands:
        for axis in range(outer):
            text.constant(f"s{o.position}_{axis}", integer, o.strides[axis])
        if o.access == "strided":
            text.constant(f"t{o.position}", integer, o.strides[-1])
    return values


def load_inputs(
    text: Text, inputs: Sequence[InputSpec | None], operands: Sequence[ElementwiseOperand]
) -> list[RegisterValue]:
    """A register per input: from pointers q<position> for tensors, from parameters for numbers."""
    values = []
    for i, spec in enumerate(inputs):
        if isinstance(spec, ScalarSpec):
            values.append(_emit_number(text, i, spec.dtype))
        elif spec is None:
            values.append(RegisterValue("", dtypes.float32))
        else:
            values.append(_emit_load(text, next(o for o in operands if o.position == i)))
    return values


def _emit_number(text: Text, position: int, dtype: DType) -> RegisterValue:
    # Integers travel in 64 bits, so that a number outside a small tensor's range wraps instead of failing to pack.
    cls = register_class(dtype)
    wire: ScalarType = cls if cls in ("float", "double", "ulong") else "long"
    text.runtime_scalar(f"x{position}", wire, position)
    held = type_name(cls)
    text.compute.append(f"const VEC({held}) r{position} = (VEC({held}))(({held})x{position});")
    return RegisterValue(f"r{position}", dtype)


def _emit_load(text: Text, o: ElementwiseOperand) -> RegisterValue:
    register, pointer, name = f"r{o.position}", f"q{o.position}", o.dtype.name
    text.registers.append(f"VEC(COMPUTE({name})) {register};")
    if o.access == "broadcast":
        text.load.append(f"LOAD_BROADCAST({name}, {register}, {pointer})")
        text.load_part.append(f"LOAD_BROADCAST({name}, {register}, {pointer})")
    elif o.access == "contiguous":
        text.load.append(f"LOAD_CONTIGUOUS({name}, {register}, {pointer})")
        text.load_part.append(f"LOAD_CONTIGUOUS_PART({name}, {register}, {pointer})")
    else:
        text.load.append(f"LOAD_STRIDED({name}, {register}, {pointer}, t{o.position})")
        text.load_part.append(f"LOAD_STRIDED_PART({name}, {register}, {pointer}, t{o.position})")
    return RegisterValue(register, o.dtype)


def _emit_results(text: Text, space: _Space, results: Sequence[RegisterValue], outputs: Sequence[Spec]) -> None:
    targets = space.operands[len(space.operands) - len(outputs) :]
    for value, o in zip(results, targets, strict=True):
        # The address of the register is taken for partial stores, so it must be a variable of its own.
        register, name = f"w{o.position}", o.dtype.name
        held = type_name(register_class(o.dtype))
        text.compute.append(f"VEC({held}) {register} = {cast(text, value, o.dtype)};")
        pointer = f"q{o.position}"
        if o.access == "contiguous":
            text.store.append(f"STORE_CONTIGUOUS({name}, {register}, {pointer})")
            text.store_part.append(f"STORE_CONTIGUOUS_PART({name}, {register}, {pointer})")
        else:
            text.store.append(f"STORE_STRIDED({name}, {register}, {pointer}, {_step(o)})")
            text.store_part.append(f"STORE_STRIDED_PART({name}, {register}, {pointer}, {_step(o)})")


def _step(o: ElementwiseOperand) -> str:
    # An output of one element may have "broadcast" access: its stride means nothing.
    return f"t{o.position}" if o.access == "strided" else "0"


LOWERINGS = lowerings(group)
