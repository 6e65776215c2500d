"""What a product does to its sums before they are stored, as text for the macros of `epilogue.h` and parameters for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.launch import Constant, ScalarType, Tensor
from polyhal.backends.common.products import Addend, Product
from polyhal.backends.common.steps import Value, cast, evaluate
from polyhal.backends.common.templating import Definitions
from polyhal.backends.opencl.dialect import OpenCLDialect, convert, narrow, type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

_NONE: Definitions = {
    "EPILOGUE": 0,
    "EPILOGUE_PARAMETERS": "",
    "EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left)": "",
}


@dataclass(slots=True)
class _Text:
    """A `Writer` of `backends.common.steps`."""

    dialect: OpenCLDialect = field(default_factory=OpenCLDialect)
    declared: list[str] = field(default_factory=list)
    bindings: list[Parameter] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def scalar(self, name: str, type_: ScalarType, value: int | float) -> None:
        self.declared.append(f"const {type_} {name},")
        self.bindings.append(Constant(value, type_))

    def convert(self, register: str, source: DType, target: DType) -> str:
        return convert(register, source, target)

    def narrow(self, register: str, dtype: DType) -> str:
        return narrow(register, dtype)

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        self.lines.append(f"const VEC({type_name(register_class(dtype))}) {name} = {expression};")

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        type_: ScalarType = "double" if dtype is dtypes.float64 else "float"
        self.scalar(name, type_, value)
        return f"(VEC({type_}))({name})"


def epilogue(p: Product) -> tuple[dict[str, str | int | bool], list[Parameter]]:
    """The definitions and the kernel parameters for the bias or the epilogue of a product."""
    found = p.finish()
    if found is None:
        return dict(_NONE), []
    text = _Text()
    real = type_name(p.kind)
    text.lines.append(f"const VEC({real}) e0 = sum;")
    values = [Value("e0", p.element)]
    for number, operand in enumerate(found.operands, 1):
        name = f"e{number}"
        if isinstance(operand, Addend):
            _load(text, name, operand)
            values.append(Value(name, operand.dtype))
        else:
            text.declare(name, p.element, text.parameter(f"{name}_value", operand, p.element))
            values.append(Value(name, p.element))
    result = cast(text, evaluate(text, found.steps, values)[-1], p.element)
    text.lines.append(f"sum = {result};")
    definitions: dict[str, str | int | bool] = {
        "EPILOGUE": 1,
        "EPILOGUE_PARAMETERS": " ".join(text.declared),
        "EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left)": "\n".join(text.lines),
        **dict.fromkeys(sorted(text.dialect.headers), 1),
    }
    return definitions, text.bindings


def _load(text: _Text, name: str, operand: Addend) -> None:
    m, dtype = operand.matrix, operand.dtype.name
    text.declared.append(f"__global const STORAGE({dtype}) *{name}_memory, const ulong {name}_offset,")
    text.bindings.append(Tensor(m.place))
    strides = {"row": m.row, "column": m.column, "batch0": m.batch[0], "batch1": m.batch[1], "batch2": m.batch[2]}
    for axis, step in strides.items():
        text.scalar(f"{name}_{axis}", "long", step)
    walk = "SPLAT" if m.column == 0 else "UNIT" if m.column == 1 else "STEP"
    place = " + ".join([
        f"{name}_offset", f"(long)(row) * {name}_row", f"(long)(column) * {name}_column", f"(long)(i0) * {name}_batch0",
        f"(long)(i1) * {name}_batch1", f"(long)(i2) * {name}_batch2",
    ])  # fmt: skip
    text.lines.append(f"EXTRA_{walk}({dtype}, {name}, {name}_memory + ({place}), {name}_column, left)")
