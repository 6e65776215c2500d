"""The expression language of `backends.common.codegen.expressions` in WGSL, for scalar elements."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import RegisterClass, register_class
from polyhal.hal.dtypes import DType, bool_

_TYPES: dict[RegisterClass, str] = {
    "float": "f32",
    "int": "i32",
    "uint": "u32",
    "long": "i64",
    "ulong": "u64",
    "bool": "u32",
}
_SUFFIXES: dict[RegisterClass, str] = {"float": "f", "int": "i", "uint": "u", "long": "li", "ulong": "lu", "bool": "u"}


def type_name(cls: RegisterClass) -> str:
    """Return the WGSL type of a register class; booleans are u32 of value 0 or 1. Raises KeyError for float64."""
    return _TYPES[cls]


class WGSLDialect:
    """Writer of words in WGSL, which collects the function libraries that they need."""

    def __init__(self) -> None:
        self.libraries: set[RegisterClass] = set()

    def constant(self, text: str, cls: RegisterClass) -> str:
        if cls == "float":
            return f"{float(text)!r}f"
        return f"{_TYPES[cls]}({text})" if cls in ("int", "uint", "bool") else f"({text}{_SUFFIXES[cls]})"

    def select(self, no: str, yes: str, condition: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def truth(self, register: str, cls: RegisterClass) -> str:
        return f"({register} != 0u)"

    def function(self, name: str, cls: RegisterClass) -> str:
        self.libraries.add(cls)
        return f"{name}_{_TYPES[cls]}"

    def predicate(self, condition: str, cls: RegisterClass) -> str:
        return f"select(0u, 1u, {condition})"


def convert(register: str, source: DType, target: DType) -> str:
    """Convert a register to another dtype by C's rules; floats outside an integer's range saturate, NaN is 0.

    Small targets go through 32 bits, so that -1.0 becomes 255 as it does on common CPUs.
    """
    if source is target:
        return register
    from_class, to_class = register_class(source), register_class(target)
    if target is bool_:
        # Compare bits, because WGSL compilers treat a NaN as equal to 0.
        size = f"(bitcast<u32>({register}) & 0x7fffffffu)" if source.kind == "float" else register
        zero = "0u" if source.kind == "float" else f"{_TYPES[from_class]}(0)"
        return f"select(0u, 1u, {size} != {zero})"
    if source.kind == "float" and target.kind != "float":
        kind = "i32" if target.itemsize < 4 else _TYPES[to_class]
        converted = f"{kind}_of_float({register})"
        return narrow(converted if kind == _TYPES[to_class] else f"{_TYPES[to_class]}({converted})", target)
    moved = _moved(register, from_class, to_class)
    if target.kind == "float" or source is bool_ or (source.kind == target.kind and source.itemsize <= target.itemsize):
        return moved
    return narrow(moved, target)


def _moved(register: str, from_class: RegisterClass, to_class: RegisterClass) -> str:
    """Convert between classes; values in range are kept.

    Between signed and unsigned, wgpu's compiler widens by the sign of the result, so the value is first widened by the
    sign of the source. A signed one is widened by shifts, because a Vulkan compiler compares `i64(x)` wrongly with constants.
    """
    if _TYPES[from_class] == _TYPES[to_class]:
        return register
    if from_class == "int" and to_class in ("long", "ulong"):
        widened = f"((i64(u64(bitcast<u32>({register}))) << 32u) >> 32u)"
        return widened if to_class == "long" else f"u64({widened})"
    if (from_class, to_class) == ("uint", "long"):
        register = f"u64({register})"
    return f"{_TYPES[to_class]}({register})"


def narrow(register: str, dtype: DType) -> str:
    """Wrap a 32-bit register to the range of a small integer dtype."""
    if not dtype.is_integral or dtype.itemsize >= 4:
        return register
    if dtype.kind == "uint":
        return f"({register} & {'0xffu' if dtype.itemsize == 1 else '0xffffu'})"
    shift = 32 - dtype.bits
    return f"(({register} << {shift}u) >> {shift}u)"
