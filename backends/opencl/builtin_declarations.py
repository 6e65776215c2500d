"""Declarations of the built-in functions, types and constants of OpenCL C 1.2 that a program uses.

Some compilers parse a header of all built-in functions for each program, which takes longer than most programs. A driver
with the quirk `parses_all_builtins` omits that header if its include guard is defined; these declarations replace it.

A function is declared with all its overloads, so that calls are resolved as they are with the header. Functions that no
kernel file calls are absent: images, vectors of halves, OpenCL C 2.0. A program that calls one does not compile, and is
built with the compiler's header.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence

SKIP_HEADER = "-D_OPENCL_H_"
"""Option that defines the include guard of the compiler's header."""

_DEFINED = re.compile(r"#define (\w+) (\d+)\n")
_APPENDED = re.compile(r"CONCAT\(\w+, (\w+)\)")
"""Names of widths that macros append to names of functions."""
_WIDTH_NAMES = ("WIDTH", "SIDE")
_CALLED = re.compile(r"\b[a-z]\w+(?=[(,)])")
"""Names that are called, or passed to a macro that calls them."""
_WIDTHS = ("", "2", "3", "4", "8", "16")
_VECTORS = _WIDTHS[1:]
_SIGNED = ("char", "short", "int", "long")
_INTEGERS = (*_SIGNED, "uchar", "ushort", "uint", "ulong")
_FLOATS = ("float", "double")
_NUMBERS = _INTEGERS + _FLOATS
_SAME_SIZE = {"char": "char", "short": "short", "int": "int", "long": "long", "float": "int", "double": "long"}
_SPACES = ("__global", "__local", "__private")

_OF_FLOATS = {
    1: "acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 fabs floor log log10 log1p log2 rint round "
    "rsqrt sin sinh sqrt tan tanh trunc",
    2: "atan2 copysign fmax fmin fmod hypot max min pow remainder",
    3: "clamp fma mad",
}
"""Functions whose arguments and result have one type, by number of arguments."""
_OF_INTEGERS = {1: "clz popcount", 2: "max min mul_hi", 3: "clamp"}
_WITH_NUMBERS = {2: "fmax fmin max min", 3: "clamp"}
"""Functions whose arguments after the first may be scalars although the first is a vector."""
_TESTS = "isfinite isinf isnan signbit"
_POSITIONS = "get_global_id get_global_size get_group_id get_local_id get_local_size get_num_groups"
_ATOMICS = {1: "atomic_inc", 2: "atomic_add atomic_or atomic_xchg", 3: "atomic_cmpxchg"}
_CONSTANTS = {
    "CLK_LOCAL_MEM_FENCE": "1",
    "CLK_GLOBAL_MEM_FENCE": "2",
    "INFINITY": "__builtin_inff()",
    "NAN": "as_float(0x7fffffff)",
    "INT_MIN": "(-0x7fffffff - 1)",
    "ULONG_MAX": "0xffffffffffffffffUL",
    "M_LN2_F": "0x1.62e43p-1f",
    "M_LOG2E_F": "0x1.715476p+0f",
    "M_LN2": "0x1.62e42fefa39efp-1",
    "M_LOG2E": "0x1.71547652b82fep+0",
}

_NO_SIDE_EFFECTS, _READS, _WRITES, _SYNCHRONIZES = "const, ", "pure, ", "", "convergent, "
_Key = tuple[str, str | None]
"""Function name, and None; or the stem of names with a width, and the width, empty for scalars."""


def declarations(text: str, fp64: bool) -> str:
    """Return all types and constants, and the functions that the text of a program calls or passes to a macro.

    Names with a width, such as `vload4`, may be composed by macros: they are declared if the text contains the stem, and
    the width is one that the program defines for this or follows the stem.
    """
    # A program's definitions come before the defaults of headers, so that the last entry here is the one that counts.
    defined = dict(reversed(_DEFINED.findall(text)))
    own = {defined.get(name) for name in (*_WIDTH_NAMES, *_APPENDED.findall(text))}
    called = set(_CALLED.findall(text))

    def used(stem: str, width: str | None) -> bool:
        if width is None:
            return stem in called
        return stem in text and (not width or width in own or f"{stem}{width}" in text)

    return _types(fp64) + "".join(lines for key, lines in _functions(fp64).items() if used(*key))


def _typed(kinds: Sequence[str], fp64: bool, widths: Sequence[str] = _WIDTHS) -> Iterator[tuple[str, str]]:
    """Yield each type with each width."""
    return ((kind, width) for kind in kinds if fp64 or kind != "double" for width in widths)


@functools.cache
def _types(fp64: bool) -> str:
    lines = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if fp64 else []
    lines += [f"typedef unsigned {kind} u{kind};" for kind in _SIGNED]
    lines += ["typedef __SIZE_TYPE__ size_t;", "typedef __INTPTR_TYPE__ intptr_t;", "typedef uint cl_mem_fence_flags;"]
    for kind, width in _typed((*_NUMBERS, "half"), fp64):
        if width:
            lines.append(f"typedef {kind} {kind}{width} __attribute__((ext_vector_type({width})));")
        lines.append(f"#define as_{kind}{width}(x) __builtin_astype((x), {kind}{width})")
    for kind, width in _typed(_NUMBERS, fp64):
        value = f"__builtin_convertvector((x), {kind}{width})" if width else f"(({kind})(x))"
        lines.append(f"#define convert_{kind}{width}(x) {value}")
    lines += [f"#define {name} {value}" for name, value in _CONSTANTS.items()]
    return "\n".join(lines) + "\n"


@functools.cache
def _functions(fp64: bool) -> dict[_Key, str]:
    """Return the declarations of all overloads."""
    table: dict[_Key, list[str]] = {}

    def declare(
        names: str,
        result: str,
        arguments: Sequence[str],
        kind: str = _NO_SIDE_EFFECTS,
        stem: str = "",
        width: str | None = None,
    ) -> None:
        for name in names.split():
            line = f"{result} __attribute__(({kind}overloadable)) {name}({', '.join(arguments)});\n"
            table.setdefault((stem or name, width), []).append(line)

    _declare_arithmetic(declare, fp64)
    _declare_conversions(declare, fp64)
    _declare_memory(declare, fp64)
    _declare_halves(declare, fp64)
    declare(_POSITIONS, "size_t", ["uint"])
    declare("barrier", "void", ["cl_mem_fence_flags"], _SYNCHRONIZES)
    declare("mem_fence", "void", ["cl_mem_fence_flags"], _WRITES)
    return {key: "".join(lines) for key, lines in table.items()}


def _declare_arithmetic(declare: Callable[..., None], fp64: bool) -> None:
    for kinds, families in ((_FLOATS, _OF_FLOATS), (_INTEGERS, _OF_INTEGERS)):
        for kind, width in _typed(kinds, fp64):
            for count, names in families.items():
                declare(names, f"{kind}{width}", [f"{kind}{width}"] * count)
    for kind, width in _typed(_NUMBERS, fp64, _VECTORS):
        for count, names in _WITH_NUMBERS.items():
            known = (name for name in names.split() if kind in _FLOATS or not name.startswith("f"))
            declare(" ".join(known), f"{kind}{width}", [f"{kind}{width}"] + [kind] * (count - 1))
    for kind, width in _typed(_FLOATS, fp64):
        declare(_TESTS, f"{_SAME_SIZE[kind] if width else 'int'}{width}", [f"{kind}{width}"])
    for kind, width in _typed(_INTEGERS, fp64):
        declare("abs", f"u{kind.removeprefix('u')}{width}", [f"{kind}{width}"])
    for kind, width in _typed(_SIGNED, fp64):
        declare("any all", "int", [f"{kind}{width}"])
    for kind, width in _typed(_NUMBERS, fp64):
        mask = _SAME_SIZE[kind.removeprefix("u")]
        for mask_kind in (mask, f"u{mask}"):
            declare("select", f"{kind}{width}", [f"{kind}{width}", f"{kind}{width}", f"{mask_kind}{width}"])
    declare("native_exp native_recip", "float", ["float"])


def _declare_conversions(declare: Callable[..., None], fp64: bool) -> None:
    """Declare saturating conversions. The others are macros."""
    for kind, width in _typed(_INTEGERS, fp64):
        for source, _ in _typed(_NUMBERS, fp64, ("",)):
            declare(f"convert_{kind}{width}_sat", f"{kind}{width}", [f"{source}{width}"], stem="_sat", width=width)


def _declare_memory(declare: Callable[..., None], fp64: bool) -> None:
    for kind, width in _typed(_NUMBERS, fp64, _VECTORS):
        for space in (*_SPACES, "__constant"):
            pointer = f"const {space} {kind} *"
            declare(f"vload{width}", f"{kind}{width}", ["size_t", pointer], _READS, stem="vload", width=width)
        for space in _SPACES:
            values = [f"{kind}{width}", "size_t", f"{space} {kind} *"]
            declare(f"vstore{width}", "void", values, _WRITES, stem="vstore", width=width)
    for kind, width in _typed(_NUMBERS, fp64):
        declare("prefetch", "void", [f"const __global {kind}{width} *", "size_t"], _WRITES)
    for space in _SPACES[:2]:
        for kind in ("int", "uint", "float"):
            for count, names in _ATOMICS.items():
                known = names if kind != "float" else "atomic_xchg" if count == 2 else ""
                declare(known, kind, [f"volatile {space} {kind} *"] + [kind] * (count - 1), _WRITES)


def _declare_halves(declare: Callable[..., None], fp64: bool) -> None:
    """Declare conversions of halves in memory, in functions for any and for aligned memory."""
    for aligned in ("", "a"):
        load, store = f"vload{aligned}_half", f"vstore{aligned}_half"
        for width in _VECTORS if aligned else _WIDTHS:
            for space in (*_SPACES, "__constant"):
                arguments = ["size_t", f"const {space} half *"]
                declare(f"{load}{width}", f"float{width}", arguments, _READS, stem=load, width=width)
            for kind, _ in _typed(_FLOATS, fp64, ("",)):
                for space in _SPACES:
                    for rounding in ("", "_rte"):
                        arguments = [f"{kind}{width}", "size_t", f"{space} half *"]
                        declare(f"{store}{width}{rounding}", "void", arguments, _WRITES, stem=store, width=width)
