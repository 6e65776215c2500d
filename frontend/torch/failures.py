"""Translate Polyhal's errors to the types that PyTorch raises for the same mistakes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyhal.hal import errors
from polyhal.hal.core.dispatch.bounds import IndexRangeError
from polyhal.hal.layout import AxisRangeError
from polyhal.torch.device import NAME
from polyhal.torch.tensors import ElsewhereError

TYPES: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (errors.OutOfMemoryError, torch.OutOfMemoryError),
    (errors.LinAlgError, torch.linalg.LinAlgError),  # type: ignore[attr-defined]
    (errors.UnsupportedDTypeError, TypeError),
    (errors.UnsupportedOpError, NotImplementedError),
    (errors.FallbackRefusedError, NotImplementedError),
    (errors.PolyhalError, RuntimeError),
)
"""Pairs of Polyhal's and PyTorch's types, in the order in which they are tried."""


REFUSALS = (errors.PolyhalError, ValueError, TypeError, IndexRangeError, ElsewhereError)
"""Errors of Polyhal's functions for invalid arguments. PyTorch's kernels raise RuntimeError for most of them."""


def translated(error: Exception) -> Exception:
    """Return the error that users of PyTorch expect, with the same message."""
    if isinstance(error, AxisRangeError) or isinstance(error.__cause__, AxisRangeError):
        return IndexError(str(error))
    if not isinstance(error, errors.PolyhalError):
        return RuntimeError(str(error))
    kind = next(theirs for ours, theirs in TYPES if isinstance(error, ours))
    return kind(str(error))


def of_call(error: Exception, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception:
    """Return the error that users of PyTorch expect from a call of an overload, which it names."""
    if isinstance(error, IndexRangeError):
        return error.named(op._schema.name.removeprefix("aten::"))
    if isinstance(error, ElsewhereError):
        return _elsewhere(op, args, kwargs) or error
    return translated(error)


def _elsewhere(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    """Return the error that names the first argument on another device; None for tensors in lists."""
    name = op._schema.name.removeprefix("aten::")
    parameters = op._schema.arguments
    given = {**{a.name: x for a, x in zip(parameters, args, strict=False)}, **kwargs}
    placed = {k: x for k, x in given.items() if isinstance(x, torch.Tensor)}
    away = {k: x for k, x in placed.items() if x.device.type != NAME and (x.ndim or x.device.type != "cpu")}
    here = [k for k, x in placed.items() if x.device.type == NAME]
    if not away or not here:
        return None
    argument, x = next(iter(away.items()))
    problem = f"`{argument}`, of shape {tuple(x.shape)}, is on {x.device}, and `{here[0]}` on {NAME}:0"
    rule = f"Expected all tensors to be on the same device, {NAME}:0, but found one on {x.device}"
    return RuntimeError(errors.message(name, f"{rule}: {problem}", fix=f"move it with {argument}.to({NAME!r})"))


def as_pytorch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises Polyhal's errors as PyTorch's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            raise translated(error) from error

    return call
