"""Translate Polyhal's errors to the types that PyTorch raises for the same mistakes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from polyhal.hal import errors
from polyhal.hal.layout import AxisRangeError

TYPES: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (errors.OutOfMemoryError, torch.OutOfMemoryError),
    (errors.LinAlgError, torch.linalg.LinAlgError),  # type: ignore[attr-defined]
    (errors.UnsupportedDTypeError, TypeError),
    (errors.UnsupportedOpError, NotImplementedError),
    (errors.FallbackRefusedError, NotImplementedError),
    (errors.PolyhalError, RuntimeError),
)
"""Pairs of Polyhal's and PyTorch's types, in the order in which they are tried."""


REFUSALS = (errors.PolyhalError, ValueError, TypeError)
"""Errors of Polyhal's functions for invalid arguments. PyTorch's kernels raise RuntimeError for most of them."""


def translated(error: Exception) -> Exception:
    """Return the error that users of PyTorch expect, with the same message."""
    if isinstance(error, AxisRangeError) or isinstance(error.__cause__, AxisRangeError):
        return IndexError(str(error))
    if not isinstance(error, errors.PolyhalError):
        return RuntimeError(str(error))
    kind = next(theirs for ours, theirs in TYPES if isinstance(error, ours))
    return kind(str(error))


def as_pytorch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises Polyhal's errors as PyTorch's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            raise translated(error) from error

    return call
