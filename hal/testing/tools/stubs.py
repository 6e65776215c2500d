"""Type stubs for the functions and methods that are made from op declarations. Run as a module to rewrite them.

python -m polyhal.hal.ops.stubs FOLDER_OF_HAL FOLDER_OF_FRONTEND
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyhal.hal.ops import METHODS, PUBLIC
from polyhal.hal.ops.methods import COMPARISONS, OPERATORS, UNARY
from polyhal.hal.ops.opdef import OpDef

_HEADER = '"""Generated from the op declarations by `python -m polyhal.hal.ops.stubs`; do not edit."""\n\n'


def _parameters(function: Callable[..., Any], skip_first: bool, tensor: str) -> str:
    """The parameter list, with types from the declaration's inputs and defaults."""
    op: OpDef | None = getattr(function, "op", None)
    parts = ["self"] if skip_first else []
    source = function if op is None else op.reference
    written = {p.name: str(p.annotation) for p in inspect.signature(source).parameters.values()}
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if i == 0 and skip_first:
            continue
        if op is not None and p.name in op.schema.inputs:
            kind = f"Sequence[{tensor}]" if op.schema.variadic else "Any"
        else:
            kind = written.get(p.name, "Any")
            kind = kind if kind in _WORDS else "Any"
        default = "" if p.default is p.empty else " = ..."
        parts.append(f"{p.name}: {kind}{default}")
    return ", ".join(parts)


_WORDS = ("bool", "int", "float", "str", "int | None", "float | None")
"""Annotations that are copied to the stubs; richer ones would need imports."""


def _result(function: Callable[..., Any], tensor: str) -> str:
    op: OpDef | None = getattr(function, "op", None)
    if op is not None:
        if op.schema.mutates:
            return f"tuple[{tensor}, ...]"
        return tensor if len(op.schema.outputs) == 1 else f"tuple[{', '.join([tensor] * len(op.schema.outputs))}]"
    return f"tuple[{tensor}, ...]" if "tuple" in str(inspect.signature(function).return_annotation) else tensor


def _doc(function: Callable[..., Any], indent: str) -> str:
    first = (function.__doc__ or "").strip().splitlines()[0].replace("\\", "\\\\")
    return f'{indent}"""{first}"""'


def methods_stub() -> str:
    """The text of hal/ops/methods.pyi."""
    lines = [_HEADER + "from collections.abc import Callable\nfrom typing import Any, Self\n"]
    lines += [
        "OPERATORS: dict[str, str]",
        "COMPARISONS: dict[str, str]",
        "UNARY: dict[str, str]\n",
        "def attach(functions: dict[str, Callable[..., Any]], methods: dict[str, Callable[..., Any]]) -> None: ...\n",
        "class Methods:",
        "    __array_ufunc__: None",
        "    def __getitem__(self, index: Any) -> Self: ...",
        "    def __hash__(self) -> int: ...",
    ]
    for operator in OPERATORS:
        lines += [
            f"    def __{operator}__(self, other: Any) -> Self: ...",
            f"    def __r{operator}__(self, other: Any) -> Self: ...",
        ]
    for operator in COMPARISONS:
        ignore = "  # type: ignore[override]" if operator in ("eq", "ne") else ""
        lines.append(f"    def __{operator}__(self, other: Any) -> Self: ...{ignore}")
    lines += [f"    def __{operator}__(self) -> Self: ..." for operator in UNARY]
    for name in sorted(METHODS):
        function = METHODS[name]
        lines.append(f"    def {name}({_parameters(function, True, 'Self')}) -> {_result(function, 'Self')}:")
        lines.append(_doc(function, "        "))
    return "\n".join(lines) + "\n"


def functions_stub() -> str:
    """The text of frontend/functions.pyi."""
    lines = [
        _HEADER + "from collections.abc import Sequence\nfrom typing import Any\n\nfrom polyhal.tensor import Tensor\n"
    ]
    for name in sorted(PUBLIC):
        function = PUBLIC[name]
        lines.append(f"def {name}({_parameters(function, False, 'Tensor')}) -> {_result(function, 'Tensor')}:")
        lines.append(_doc(function, "    "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1], "ops", "methods.pyi").write_text(methods_stub(), encoding="utf-8")
    Path(sys.argv[2], "functions.pyi").write_text(functions_stub(), encoding="utf-8")
