"""Type stubs of the functions and methods generated from op declarations.

The text is formatted like `ruff format`, so that the committed stubs equal the output of this module.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from polyhal.hal.ops import METHODS, PUBLIC
from polyhal.hal.ops.methods import COMPARISONS, OPERATORS, UNARY
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.results import NAMED
from polyhal.hal.ops.returns import declared_returns
from polyhal.tensor.inplace_ops import IN_PLACE

_HEADER = '"""Generated from the op declarations by `make generate`; do not edit."""\n'
_LINE_LENGTH = 120
_DOC_LENGTH = 112
_PLAIN_TYPES = ("bool", "int", "float", "str", "int | None", "float | None")
"""Annotations that are copied to the stubs; richer ones would need imports."""


def methods_stub() -> str:
    """Return the text of hal/ops/methods.pyi."""
    head = [
        _HEADER,
        "from collections.abc import Callable\nfrom typing import Any, Self\n",
        "\n".join(_imports(METHODS.values())) + "\n",
        "OPERATORS: dict[str, str]\nCOMPARISONS: dict[str, str]\nUNARY: dict[str, str]\n",
        "def attach(functions: dict[str, Callable[..., Any]], methods: dict[str, Callable[..., Any]]) -> None: ...\n",
    ]
    return "\n".join([*head, "class Methods:", *_operators(), *_methods()]) + "\n"


def functions_stub(functions: Mapping[str, Callable[..., Any]] = PUBLIC, *imports: str) -> str:
    """Return the text of frontend/functions.pyi, or of the stub of a package with these functions and further imports."""
    texts = [f"{_definition(n, functions[n], 'Tensor')}\n    {_doc(functions[n])}\n" for n in sorted(functions)]
    of_sequences = "from collections.abc import Sequence\n" if any("Sequence[" in text for text in texts) else ""
    lines = [*_imports(functions.values()), *imports, "from polyhal.tensor import Tensor"]
    head = [
        _HEADER,
        f"{of_sequences}from typing import Any\n",
        "\n".join(sorted(lines, key=lambda line: line.split()[1])) + "\n",
    ]
    return "\n".join([*head, *texts])


def imports_stub(source: str) -> str:
    """Return the stub of a package that publishes the public names it imports; `source` is the text of its module."""
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    names = [(node.module, a.name) for node in imports for a in node.names if not (a.asname or "").startswith("_")]
    lines = [f"from {module} import {name} as {name}" for module, name in names]
    return (
        "\n".join(['"""Generated from the imports of the package by `make generate`; do not edit."""\n', *lines]) + "\n"
    )


def in_place_stub() -> str:
    """Return the text of frontend/tensor/inplace_ops.pyi."""
    head = [
        _HEADER,
        "from collections.abc import Callable\nfrom typing import Any, Self\n",
        "IN_PLACE: dict[str, Callable[..., Any]]\n",
        "class InPlaceOps:",
    ]
    lines = []
    for name, function in sorted(IN_PLACE.items()):
        if name.startswith("__"):
            lines.append(f"    def {name}(self, other: Any) -> Self: ...")
        else:
            lines += [_definition(name, function, "Self", indent="    "), f"        {_doc(function)}"]
    return "\n".join([*head, *lines]) + "\n"


def _operators() -> Iterator[str]:
    yield "    __array_ufunc__: Any"
    yield "    def __getitem__(self, index: Any) -> Self: ..."
    yield "    def __hash__(self) -> int: ..."
    for operator in OPERATORS:
        yield f"    def __{operator}__(self, other: Any) -> Self: ..."
        yield f"    def __r{operator}__(self, other: Any) -> Self: ..."
    for operator in COMPARISONS:
        ignore = "  # type: ignore[override]" if operator in ("eq", "ne") else ""
        yield f"    def __{operator}__(self, other: Any) -> Self: ...{ignore}"
    for operator in UNARY:
        yield f"    def __{operator}__(self) -> Self: ..."


def _methods() -> Iterator[str]:
    for name in sorted(METHODS):
        yield _definition(name, METHODS[name], "Self", indent="    ")
        yield f"        {_doc(METHODS[name])}"


def _definition(name: str, function: Callable[..., Any], tensor: str, *, indent: str = "") -> str:
    """Return the first line of a definition, with parameters on separate lines if it is too long."""
    parameters = list(_parameters(function, tensor, method=bool(indent)))
    end = f") -> {_result(function, tensor)}:"
    line = f"{indent}def {name}({', '.join(parameters)}{end}"
    if len(line) <= _LINE_LENGTH:
        return line
    inner = f"{indent}    {', '.join(parameters)}"
    if len(inner) > _LINE_LENGTH:
        inner = "\n".join(f"{indent}    {p}," for p in parameters)
    return f"{indent}def {name}(\n{inner}\n{indent}{end}"


def _parameters(function: Callable[..., Any], tensor: str, *, method: bool) -> Iterator[str]:
    """Yield the parameters, with types from the declaration's inputs and the annotations of its reference."""
    op: OpDef | None = getattr(function, "op", None)
    annotated = inspect.signature(function if op is None else op.reference).parameters.values()
    annotations = {p.name: str(p.annotation) for p in annotated}
    keyword_only = False
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if i == 0 and method:
            yield "self"
            continue
        if p.kind is p.VAR_POSITIONAL:
            keyword_only = True
            yield f"*{p.name}: Any"
            continue
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        if op is not None and p.name in op.schema.inputs:
            kind = f"Sequence[{tensor}]" if op.schema.variadic else "Any"
        else:
            annotation = "bool" if isinstance(p.default, bool) else annotations.get(p.name, "Any")
            kind = annotation if annotation in _PLAIN_TYPES else "Any"
        yield f"{p.name}: {kind}" if p.default is p.empty else f"{p.name}: {kind} = ..."


def _result(function: Callable[..., Any], tensor: str) -> str:
    named = _named_result(function)
    if named is not None:
        return named.__name__
    op: OpDef | None = getattr(function, "op", None)
    if op is None:
        return f"tuple[{tensor}, ...]" if "tuple" in str(inspect.signature(function).return_annotation) else tensor
    if op.schema.mutates or op.schema.variadic_outputs:
        return f"tuple[{tensor}, ...]"
    count = len(op.schema.outputs)
    return tensor if count == 1 else f"tuple[{', '.join([tensor] * count)}]"


def _named_result(function: Callable[..., Any]) -> type[Any] | None:
    """Return the class of named results; None for other results."""
    op: OpDef | None = getattr(function, "op", None)
    if op is not None:
        return NAMED.get(op.schema.outputs)
    annotation = inspect.signature(function).return_annotation
    found = inspect.unwrap(function).__globals__.get(annotation) if isinstance(annotation, str) else annotation
    return found if hasattr(found, "_fields") else None


def _imports(functions: Iterable[Callable[..., Any]]) -> Iterator[str]:
    """Yield the lines that import the classes of named results."""
    classes = {c for c in map(_named_result, functions) if c is not None}
    for module in sorted({c.__module__ for c in classes}):
        names = sorted((c.__name__ for c in classes if c.__module__ == module), key=str.lower)
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= _LINE_LENGTH:
            yield line
        else:
            yield "\n".join([f"from {module} import (", *(f"    {n}," for n in names), ")"])


def _doc(function: Callable[..., Any]) -> str:
    first = (function.__doc__ or "").strip().splitlines()[0].replace("\\", "\\\\")
    sentence = f" {declared_returns(function).value}".rstrip()
    return f'"""{first}{sentence if len(first) + len(sentence) < _DOC_LENGTH else ""}"""'
