"""The expression language of `polyhal.backends.common` in CUDA C++, over the scalar types of lib/dtypes.cuh."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import RegisterClass, register_class
from polyhal.hal.dtypes import DType, bool_

_TYPES: dict[RegisterClass, str] = {
    "float": "float32", "double": "float64", "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64",
    "bool": "int32",
}  # fmt: skip
_OWN_NAMES = {
    "sine": "sin", "cosine": "cos", "tangent": "tan", "error_function": "erf", "signed_power": "pow",
    "normal_distribution": "normcdf",
}  # fmt: skip
"""Functions with other names in CUDA, accurate for all arguments."""


def type_name(cls: RegisterClass) -> str:
    """Return the type of a register class; booleans are integers of value 0 or 1."""
    return _TYPES[cls]


def register_type(dtype: DType) -> str:
    """Return the type of a register that holds an element of `dtype`."""
    return _TYPES[register_class(dtype)]


class CudaDialect:
    """Translates the operations of an expression template to CUDA C++. Stateless."""

    def constant(self, text: str, cls: RegisterClass) -> str:
        if cls == "float":
            return f"{float(text)!r}f"
        return repr(float(text)) if cls == "double" else f"({type_name(cls)})({text})"

    def select(self, no: str, yes: str, condition: str) -> str:
        return f"(({condition}) ? ({yes}) : ({no}))"

    def truth(self, register: str, cls: RegisterClass) -> str:
        return f"({register} != 0)"

    def function(self, name: str, cls: RegisterClass) -> str:
        return _OWN_NAMES.get(name, name)

    def predicate(self, condition: str, cls: RegisterClass) -> str:
        return f"(int32)({condition})"


def convert(register: str, source: DType, target: DType) -> str:
    """Convert a register from one dtype to another by C's rules; NaN becomes the integer 0."""
    if source is target:
        return register
    target_type = register_type(target)
    if target is bool_:
        return f"(int32)({register} != 0)"
    if source.kind == "float" and target.kind != "float":
        return narrow(f"truncated<{target_type}>({register})", target)
    converted = register if register_type(source) == target_type else f"({target_type})({register})"
    if target.kind == "float" or (source.kind == target.kind and source.itemsize <= target.itemsize) or source is bool_:
        return converted
    return narrow(converted, target)


def narrow(register: str, dtype: DType) -> str:
    """Wrap a 32-bit register to the range of a small integer dtype."""
    return (
        f"({register_type(dtype)})({dtype.name})({register})" if dtype.is_integral and dtype.itemsize < 4 else register
    )
