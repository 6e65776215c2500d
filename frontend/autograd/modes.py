"""Switching the tape on and off, as context managers and as decorators."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from polyhal.hal import dispatch


class _GradMode(ContextDecorator):
    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(dispatch.thread.grad_enabled)
        dispatch.thread.grad_enabled = self._enabled

    def __exit__(self, *exc: Any) -> None:
        dispatch.thread.grad_enabled = self._previous.pop()


def no_grad() -> _GradMode:
    """Record nothing in this thread inside the block, or inside the decorated function."""
    return _GradMode(False)


def enable_grad() -> _GradMode:
    """Record again inside a `no_grad` block."""
    return _GradMode(True)


def set_grad_enabled(enabled: bool) -> _GradMode:
    """`enable_grad` or `no_grad` by a flag."""
    return _GradMode(enabled)


def is_grad_enabled() -> bool:
    """Whether ops on tensors that require gradients are recorded in this thread."""
    return dispatch.thread.grad_enabled
