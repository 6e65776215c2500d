"""Switching the tape on and off, as context managers and as decorators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from polyhal.hal.core import dispatch

F = TypeVar("F", bound=Callable[..., Any])


class GradMode(ContextDecorator):
    """Records on the tape, or not, inside the block or the decorated function."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(dispatch.thread.grad_enabled)
        dispatch.thread.grad_enabled = self._enabled

    def __exit__(self, *exc: Any) -> None:
        dispatch.thread.grad_enabled = self._previous.pop()

    def _recreate_cm(self) -> GradMode:
        """Return a new context for each call of a decorated function, because several threads may call it at the same time."""
        return GradMode(self._enabled)


class _SwitchedGradMode(GradMode):
    """A mode that begins when it is made, not only when its block is entered."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(enabled)
        super().__enter__()
        self._entered = False

    def __enter__(self) -> None:
        if self._entered:
            super().__enter__()
        self._entered = True

    def __call__(self, function: F) -> F:
        """Decorate `function`; the mode outside stays as it was."""
        self.__exit__()
        return super().__call__(function)


def no_grad() -> GradMode:
    """Record nothing in this thread inside the block, or inside the decorated function."""
    return GradMode(False)


def inference_mode(mode: bool = True) -> GradMode:
    """Record nothing inside the block, as `no_grad`; there is no faster mode."""
    return GradMode(not mode and dispatch.thread.grad_enabled)


def enable_grad() -> GradMode:
    """Record again inside a `no_grad` block."""
    return GradMode(True)


def set_grad_enabled(mode: bool) -> GradMode:
    """Switch recording in this thread on or off, at once. As a context manager, only until the end of the block.

    As a decorator it changes the decorated function only.
    """
    return _SwitchedGradMode(mode)


def is_grad_enabled() -> bool:
    """Return whether ops on tensors that require gradients are recorded in this thread."""
    return dispatch.thread.grad_enabled
