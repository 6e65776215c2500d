"""Names of the tensors and floats among the arguments of a call, for exported inputs and numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal.steps.signature import CallArguments
from polyhal.steps.tree import TREE
from polyhal.tensor import Tensor


class ArgumentNames(NamedTuple):
    """Names in the order in which a call is flattened: the parameter's, followed by keys and positions within it."""

    tensors: list[str]
    floats: list[str]


def argument_names(function: Callable[..., Any], call: CallArguments) -> ArgumentNames:
    """Return the names of a call's tensors and floats, such as `batch.x` for `step({"x": x})` of a parameter `batch`."""
    found = ArgumentNames([], [])
    for name, value in zip(_positional(function, len(call.args)), call.args, strict=True):
        _add(name, value, found)
    for name, value in call.kwargs.items():
        _add(name, value, found)
    return found


def _add(name: str, value: Any, found: ArgumentNames) -> None:
    node = TREE.kinds[type(value)]
    if node is not None:
        keys: Any = node.keys(value)
        for key, child in zip(range(keys) if isinstance(keys, int) else keys, node.children(value), strict=True):
            _add(f"{name}.{key}", child, found)
    elif isinstance(value, Tensor):
        found.tensors.append(name)
    elif type(value) is float:
        found.floats.append(name)


def _positional(function: Callable[..., Any], count: int) -> list[str]:
    """Return names of `count` arguments by position; of functions without a signature, `input0` and so on."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [f"input{i}" for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    others = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "input")
    return [*names[:count], *(f"{others}.{i}" for i in range(count - len(names)))]
