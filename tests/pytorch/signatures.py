"""Compare arguments of PyTorch's functions and classes with arguments of their namesakes here."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from polyhal.hal.ops.keywords import SPELLINGS
from tests.pytorch.names import Status, all_names
from tests.pytorch.signature_differences import ACCEPTED, BY_POSITION, LEFT_OUT

_SCHEMAS = {"special": "special_", "linalg": "linalg_", "fft": "fft_"}
"""Prefixes of the names of operators that PyTorch implements in C++."""
_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter. `default` is `_UNSET` where it cannot be compared."""

    name: str
    keyword_only: bool = False
    default: Any = _UNSET


@functools.cache
def differences() -> tuple[tuple[str, str], ...]:
    """Return existing names with differences in their arguments, except arguments left out or renamed everywhere."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in all_names():
            if name.status is Status.THERE:
                theirs, ours = (_find(package, name.namespace, name.name) for package in ("torch", "polyhal"))
                if callable(theirs) and callable(ours):
                    qualified = name.name if name.namespace == "torch" else f"{name.namespace}.{name.name}"
                    found += [(qualified, text) for text in _compared(name.namespace, name.name, theirs, ours)]
    return tuple(found)


def unexplained() -> list[str]:
    """Differences without a declared reason."""
    return [
        f"{name}: {text}"
        for name, text in differences()
        if not any(re.fullmatch(p, f"{name}: {text}") for p in ACCEPTED)
    ]


def needless() -> list[str]:
    """Declared patterns that no difference matches."""
    found = [f"{name}: {text}" for name, text in differences()]
    return [p for p in ACCEPTED if not any(re.fullmatch(p, f) for f in found)]


def _find(package: str, namespace: str, name: str) -> Any:
    if namespace == "Tensor":
        return getattr(importlib.import_module(package).Tensor, name, None)
    module = importlib.import_module(package if namespace == "torch" else f"{package}.{namespace}")
    return getattr(module, name, None)


def _compared(namespace: str, name: str, theirs: Callable[..., Any], ours: Callable[..., Any]) -> Iterator[str]:
    accepted = _parameters(ours)
    if accepted is None:
        return
    names = {p.name for p in accepted}
    positional = [p for p in accepted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if namespace == "Tensor":
        del positional[:1]
    passes_on = any(p.kind is p.VAR_KEYWORD for p in accepted)
    gathers = any(p.kind is p.VAR_POSITIONAL for p in accepted)
    seen: set[str] = set()
    for form in _forms(namespace, name, theirs):
        for i, argument in enumerate(form):
            if argument.name in LEFT_OUT or argument.name.startswith("_") or (i == 0 and _is_subject(argument)):
                continue
            text = ""
            if argument.keyword_only or i >= len(positional):
                if argument.name not in names and not passes_on and (argument.keyword_only or not gathers):
                    text = f"`{argument.name}` is not accepted"
            elif not _is_same(argument.name, positional[i].name) and not passes_on:
                text = f"`{argument.name}`, argument {i + 1}, is `{positional[i].name}`"
            elif _differs(argument.default, positional[i].default):
                text = f"`{argument.name}` is {argument.default!r} by default, not {positional[i].default!r}"
            if text and text not in seen:
                seen.add(text)
                yield text


def _is_subject(argument: Argument) -> bool:
    """Return whether this is a name of the tensor that a function is about, always given by position."""
    return argument.name in ("self", "input", "tensors", "A", "x")


def _is_same(theirs: str, ours: str) -> bool:
    return theirs == ours or SPELLINGS.get(ours) == theirs or ours in BY_POSITION.get(theirs, ())


def _differs(theirs: Any, ours: Any) -> bool:
    """Return whether two plain defaults differ; 0 and 0.0 do not."""
    plain = (bool, int, float, str, tuple, type(None))
    return isinstance(theirs, plain) and isinstance(ours, plain) and theirs != ours


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return found


def _forms(namespace: str, name: str, function: Callable[..., Any]) -> Iterator[list[Argument]]:
    """The ways in which a function of PyTorch can be called: from its signature, or from the schemas of its overloads."""
    parameters = _parameters(function)
    if parameters is not None:
        yield [
            Argument(p.name, p.kind is p.KEYWORD_ONLY, p.default)
            for p in parameters[namespace == "Tensor" :]
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        return
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{_SCHEMAS.get(namespace, '')}{name}"):
        arguments = [Argument(a.name, a.kwarg_only) for a in schema.arguments]
        if not _is_internal(schema):
            yield arguments[1:] if namespace == "Tensor" else arguments


def _is_internal(schema: Any) -> bool:
    """Return whether an overload is for `out`, named tensors, or TorchScript's numbers and lists."""
    first = schema.arguments[0] if schema.arguments else None
    numbers = ("int", "float", "complex", "bool", "str", "Scalar", "number")
    kinds = [str(a.type) for a in schema.arguments]
    return (
        any(a.is_out for a in schema.arguments)
        or "Dimname" in str(schema)
        or (bool(kinds) and kinds[0] in numbers and "Tensor" not in kinds)
        or (first is not None and first.name in ("a", "l", "t", "list"))
    )
