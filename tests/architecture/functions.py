"""Length, branches and parameters of functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.survey import Tree

_BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.Assert, ast.comprehension),
    *(ast.match_case, ast.AsyncFor),
)


def every_function(tree: Tree) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function and method of the source, nested ones too."""
    for nodes in tree.nodes.values():
        yield from (n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def statements_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from `def` to the last statement."""
    return (function.end_lineno or 0) - function.lineno + 1


def branches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the cyclomatic complexity (McCabe 1976): one more than the branches, nested functions left out."""
    total, pending = 1, list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        total += isinstance(node, _BRANCHES)
        total += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        pending += ast.iter_child_nodes(node)
    return total


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of named parameters, `self` and `cls` left out."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))
