"""Names of `polyhal` that are imported at their first use: their modules, and the stub of the package.

Definitions are marked with `top_level` (`hal/ops/top_level.py`) and found by reading the sources. Other names are those that
`frontend/__init__.py` imports.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polyhal
from polyhal.hal.ops import PUBLIC
from polyhal.hal.ops.top_level import top_level, top_level_as

_HEADER = '"""Generated from the definitions marked with `top_level` by `make generate`; do not edit."""\n'
_MARKS = (top_level.__name__, top_level_as.__name__)
_OPS = "from polyhal.functions import *"
_BUILTINS = re.compile(r"\b(bool|float|int)\b")
"""Types whose names are dtypes in the stub."""


def names_module(root: Path) -> str:
    """Return the text of frontend/lazy_names.py."""
    lines = [f'    "{name}": "{module}",' for name, module in sorted(_modules(root).items())]
    head = [_HEADER, "LAZY_NAMES: dict[str, str] = {"]
    return "\n".join([*head, *lines, "}", '"""Name and module, below `polyhal`."""']) + "\n"


def package_stub(root: Path) -> str:
    """Return the text of frontend/__init__.pyi."""
    modules = _modules(root)
    forms = {n: form for n, m in modules.items() if (form := _form(n, m)) is not None}
    eager = [*_eager_imports(root / "frontend/__init__.py")]
    # Ops by name, because type checkers keep the first of two definitions: those that a function replaces are left out.
    replaced = {line.rpartition(" ")[2] for line in eager} | modules.keys()
    ops = [f"from polyhal.functions import {op} as {op}" for op in sorted(PUBLIC) if op not in replaced]
    lines = [part for line in eager for part in (ops if line == _OPS else [line])]
    lines += [f"from polyhal import {name} as {name}" for name in _constant("_PACKAGES")]
    lines += [f"from polyhal.hal.dtypes import {dtype.name} as {name}" for name, dtype in _constant("_DTYPES").items()]
    lines += [f"from polyhal.{module} import {name} as {name}" for name, module in modules.items() if name not in forms]
    head = "import builtins\nfrom collections.abc import Sequence\nfrom typing import Any\n"
    constants = "__array_api_version__: str\n__version__: str\nnewaxis: None\n"
    return "\n".join(
        [_HEADER, head, *dict.fromkeys(lines), "", constants, *(_definition(n, *forms[n]) for n in sorted(forms))]
    )


def _constant(name: str) -> Any:
    """Return a table of the package, which its stub does not have."""
    return vars(polyhal)[name]


def _modules(root: Path) -> dict[str, str]:
    """Return the module of each marked definition, below `polyhal`."""
    found: dict[str, str] = {}
    for folder, package in (("frontend", ""), ("hal", "hal.")):
        for file in sorted((root / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "import top_level" in text:
                parts = file.relative_to(root / folder).with_suffix("").parts
                found |= {name: package + ".".join(parts) for name in _marked(ast.parse(text))}
    return dict(sorted(found.items()))


def _marked(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and any(map(_is_mark, node.decorator_list)):
            yield node.name
        elif isinstance(node, ast.Assign) and _is_mark(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_mark(node: ast.expr) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    return isinstance(node, ast.Name) and node.id in _MARKS


def _eager_imports(file: Path) -> Iterator[str]:
    """Yield the imports of the package's names, which the stub exports."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module != "typing":
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name == "*":
                    yield f"from {node.module} import *"
                elif not name.startswith("_"):
                    yield f"from {node.module} import {alias.name} as {name}"


def _form(name: str, module: str) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return a function of `nn.functional` and its form at the top level, if it has another one."""
    function = getattr(importlib.import_module(f"polyhal.{module}"), name)
    form = getattr(function, "__top_level__", None)
    return None if form is None else (function, form)


def _definition(name: str, function: Callable[..., Any], form: Callable[..., Any]) -> str:
    """Return the definition of a form, with the types of the function's parameters of the same names."""
    types = inspect.get_annotations(function)
    parameters = []
    for p in inspect.signature(form).parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        kind = "builtins.int | str" if p.name == "reduction" else _plain(types.get(p.name, ""))
        parameters.append(f"{p.name}: {kind}" + ("" if p.default is p.empty else " = ..."))
    arguments = "".join(f"    {p},\n" for p in parameters)
    return f'def {name}(\n{arguments}) -> {_plain(types["return"])}:\n    """{str(form.__doc__).splitlines()[0]}"""\n'


def _plain(annotation: str) -> str:
    """Return an annotation for the stub: Any, if it has names that would have to be imported."""
    known = set(re.findall(r"\w+", annotation)) <= {
        "None",
        "Sequence",
        "Tensor",
        "bool",
        "float",
        "int",
        "str",
        "tuple",
    }
    return _BUILTINS.sub(r"builtins.\1", annotation) if annotation and known else "Any"
