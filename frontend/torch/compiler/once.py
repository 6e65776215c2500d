"""Log messages that a program emits once do not split its graph: they are emitted while PyTorch's compiler traces it.

PyTorch's compiler ends a graph at each method of a logger. A method that `functools` caches, such as `logger.warning_once` of
transformers, does nothing when it is called again with equal arguments, so that a call during tracing has the same effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from polyhal.torch.compiler import private

_CACHED = type(functools.lru_cache(lambda: None))


def install() -> None:
    """Let PyTorch's compiler call cached methods of loggers with constant arguments. A second call is a no-op."""
    private.before_logger_calls(_is_cached)


def _is_cached(method: Callable[..., Any]) -> bool:
    """Return whether `functools` caches the calls of a bound method."""
    return isinstance(getattr(method, "__func__", None), _CACHED)
