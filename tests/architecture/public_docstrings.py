"""Omissions of public docstrings: information beyond the name, shapes or dtypes of tensors, and the errors that the
code raises.

The errors are read off the source: what a function, or a class's constructor and call, raises itself.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.architecture.public_modules import APPLICATIONS, LIBRARY

MODULES = (*LIBRARY, "polyhal.signal.windows", *APPLICATIONS)
_CALLED = ("__init__", "__new__", "__call__", "forward", "step")
"""Methods whose errors a class's docstring, or their own, names."""
_IMPLIED = {"NotImplementedError", "StopIteration", "AssertionError", "AttributeError"}
"""Errors of the language's protocols."""
_TENSORS = {"x", "y", "a", "b", "input", "other", "target", "weight", "query", "tensor", "tensors", "logits"}
"""Parameters without a type that are tensors."""
_SHAPES = re.compile(
    r"""shape|\bax[ei]s\b|\bdims?\b|broadcast|matri|vector|scalar|element|\.\.\.,|\([A-Z]\w*[,)]|batch|channel|sequence|
    row|column|diagonal|square|image|pixel|length|each|every|size|any\ number|
    dtype|float|int(eger|32|64)|bool|complex|numbers?\b|parameters|module|model|distribution|samples|gradient""",
    re.IGNORECASE | re.VERBOSE,
)
_DETAILED = re.compile(r"`nn\.functional\.\w+`")
"""The docstring that has the details, where a function is another with its arguments in another order."""
_FORMULA = re.compile(r"`[^`]*[-+*/|<>=(][^`]*`")
_SMALL = {"a", "an", "the", "of", "is", "to", "with", "by", "in", "for", "as", "and", "or", "its", "x", "see", "that"}


def public() -> Iterator[tuple[str, Any]]:
    """Return every public function and class by its first dotted name."""
    seen: set[int] = set()
    for module in map(importlib.import_module, MODULES):
        for name in _names(module):
            value = getattr(module, name)
            if (inspect.isroutine(value) or inspect.isclass(value)) and id(value) not in seen:
                seen.add(id(value))
                if value.__module__.startswith("polyhal"):
                    yield f"{module.__name__}.{name}", value


def _names(module: ModuleType) -> list[str]:
    if module.__name__ == "polyhal" or not hasattr(module, "__all__"):
        return sorted(name for name in dir(module) if not name.startswith("_"))
    return sorted(module.__all__)


def lacks(name: str, value: Any) -> list[str]:
    """Return the omissions of a public docstring."""
    doc = _text(value)
    missing = [] if _says_more(name.rpartition(".")[2], doc) else ["more than its name"]
    missing += [] if not _takes_tensors(value) or _SHAPES.search(doc) or _DETAILED.search(doc) else ["shapes"]
    return missing + sorted(error for error in _raised(value) if error not in doc)


def _text(value: Any) -> str:
    """Return the docstring; for a class with those of its constructor and call."""
    docs = [inspect.getdoc(value) or ""]
    if inspect.isclass(value):
        docs += [vars(value)[m].__doc__ or "" for m in _CALLED if inspect.isfunction(vars(value).get(m))]
    return "\n".join(docs)


def _says_more(name: str, doc: str) -> bool:
    """Return whether the first paragraph has a formula, or a word that is neither small nor part of the name."""
    first = doc.split("\n\n")[0].strip()
    words = {w.lower() for w in re.findall(r"\w+", first)} - _SMALL
    restated = {w for w in words if len(w) > 2 and w.rstrip("s") in name.lower().replace("_", "")}
    return first[-1:] in (".", ":") and (_FORMULA.search(first) is not None or (len(words) > 1 and words != restated))


def _takes_tensors(value: Any) -> bool:
    """Return whether a function takes a tensor, by its annotations, or by its names where it has none."""
    if inspect.isclass(value):
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return False
    return any("Tensor" in str(p.annotation) or p.name in _TENSORS for p in parameters)


def _raised(value: Any) -> set[str]:
    """Return the errors that a function, or a class's constructor and call, raises by name."""
    node = _definitions(sys.modules[value.__module__]).get(value.__qualname__) if _in_file(value) else None
    if node is None:
        return set()
    if isinstance(node, ast.ClassDef):
        bodies = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in _CALLED]
    else:
        bodies = [node]
    raised = {_error(n.exc) for body in bodies for n in ast.walk(body) if isinstance(n, ast.Raise) and n.exc}
    return {error for error in raised if error} - _IMPLIED


def _in_file(value: Any) -> bool:
    return getattr(sys.modules.get(value.__module__), "__file__", None) is not None


def _error(raised: ast.expr) -> str:
    """Return the name of an error class; of a function that makes the error, nothing."""
    made = raised.func if isinstance(raised, ast.Call) else raised
    name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return name if name[:1].isupper() else ""


@functools.cache
def _definitions(module: ModuleType) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Return the functions and classes of a module by qualified name."""
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found[prefix + child.name] = child
                pending.append((f"{prefix}{child.name}.", child))
    return found
