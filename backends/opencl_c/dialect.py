"""The language of `backends.common.codegen.expressions` in OpenCL C, with the vector types of `lib/vectors.h`."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import RegisterClass, register_class
from polyhal.backends.common.launching.launch import ScalarType
from polyhal.hal.dtypes import DType, bool_

_LIBRARY = frozenset({
    "sine", "cosine", "tangent", "error_function", "normal_distribution", "gelu_derivative", "gelu_tanh_derivative",
    "gelu_tanh", "sigmoid", "silu", "silu_derivative", "floor_remainder", "floor_divide", "fmod", "integer_pow",
    "signed_power", "tanh",
})  # fmt: skip
"""Functions of our own headers, one per register class."""

_WIDE: frozenset[RegisterClass] = frozenset({"double", "long", "ulong"})
_HEADERS: dict[RegisterClass, str] = {
    "float": "FLOAT_FUNCTIONS",
    "double": "DOUBLE_FUNCTIONS",
    "int": "INT_FUNCTIONS",
    "uint": "UINT_FUNCTIONS",
    "long": "LONG_FUNCTIONS",
    "ulong": "ULONG_FUNCTIONS",
}


def type_name(cls: RegisterClass) -> str:
    """Return the scalar C type of a register class; booleans are ints of value 0 or 1."""
    return "int" if cls == "bool" else cls


def passed_type(dtype: DType) -> ScalarType:
    """Return the type of a kernel parameter for a number.

    Integers are passed in 64 bits, so that a number outside the range of a small dtype wraps instead of failing to pack.
    """
    cls = register_class(dtype)
    return cls if cls in ("float", "double", "ulong") else "long"


class OpenCLDialect:
    """Returns the OpenCL C text of each operation and collects the headers that it needs."""

    def __init__(self) -> None:
        self.headers: set[str] = set()

    def constant(self, text: str, cls: RegisterClass) -> str:
        if cls == "float":
            value = f"{float(text)!r}f"
        elif cls == "double":
            value = repr(float(text))
        else:
            value = text
        return f"(VEC({type_name(cls)}))({value})"

    def select(self, no: str, yes: str, condition: str) -> str:
        return f"SELECT({no}, {yes}, {condition})"

    def truth(self, register: str, cls: RegisterClass) -> str:
        return f"(CONVERT(long, {register}) != (VEC(long))(0))" if cls in _WIDE else f"({register} != (VEC(int))(0))"

    def function(self, name: str, cls: RegisterClass) -> str:
        if name not in _LIBRARY:
            return name
        self.headers.add(_HEADERS[cls])
        return f"{name}_{cls}"

    def predicate(self, condition: str, cls: RegisterClass) -> str:
        # True is -1 in comparisons of vectors and 1 in comparisons of scalars; results for 64-bit vectors have 64 bits.
        masked = f"(({condition}) & 1)"
        return f"CONVERT(int, {masked})" if cls in _WIDE else masked


def convert(register: str, source: DType, target: DType) -> str:
    """Return the conversion of a register to another dtype by C's rules; floats outside an integer's range saturate.

    Small unsigned targets go through a wider signed type, so that -1.0 becomes 255 as it does on common CPUs.
    """
    if source is target:
        return register
    from_class, to_class = register_class(source), register_class(target)
    if target is bool_:
        return OpenCLDialect().predicate(f"{register} != (VEC({type_name(from_class)}))(0)", from_class)
    if source.kind == "float" and target.kind != "float":
        # Saturating conversion should turn NaN into 0, but not every driver does.
        zero = f"(VEC({from_class}))(0)"
        register = f"SELECT({register}, {zero}, isnan({register}))"
        if to_class in ("long", "ulong"):
            return f"CONVERT_SAT({to_class}, {register})"
        via = "long" if to_class == "uint" and target.itemsize == 4 else "int"
        inner = f"CONVERT_SAT({via}, {register})"
        return narrow(inner if via == to_class else f"CONVERT({to_class}, {inner})", target)
    moved = register if type_name(from_class) == type_name(to_class) else f"CONVERT({type_name(to_class)}, {register})"
    if target.kind == "float" or (source.kind == target.kind and source.itemsize <= target.itemsize) or source is bool_:
        return moved
    return narrow(moved, target)


def narrow(register: str, dtype: DType) -> str:
    """Return a 32-bit register wrapped to the range of a small integer dtype."""
    if not dtype.is_integral or dtype.itemsize >= 4:
        return register
    small = {1: "char", 2: "short"}[dtype.itemsize]
    return (
        f"CONVERT(int, CONVERT({small}, {register}))"
        if dtype.kind == "int"
        else f"CONVERT(uint, CONVERT(u{small}, {register}))"
    )
