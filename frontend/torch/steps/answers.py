"""Answers to libraries that query, in the middle of a step, whether it is being captured.

Libraries skip checks that read values of tensors while CUDA captures a graph or a compiler traces. Recording a step is such a
capture: the queries of `torch.cuda` and `torch.xpu` return True in the thread that records, and the checks of
`torch.distributions` and `torch._check_tensor_all` are skipped there, as under `torch.compile`.
`torch.compiler.is_compiling` stays False, because PyTorch's optimizers and modules take other ways for its own compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_lock = threading.Lock()
_recording: list[int] = []
"""Identities of the threads that record, once for each recording."""
_restore: list[Callable[[], object]] = []
"""Functions that remove the answers after the last recording."""


def is_recording() -> bool:
    """Return whether this thread is recording a step."""
    return threading.get_ident() in _recording


@contextmanager
def answering() -> Iterator[None]:
    """Answer queries of this thread as in a capture, within the block. Other threads get the answers that they had before."""
    with _lock:
        if not _recording:
            _install()
        _recording.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _recording.remove(threading.get_ident())
            if not _recording:
                while _restore:
                    _restore.pop()()


def _install() -> None:
    for module in (torch.cuda, torch.xpu):
        _replace(module, "is_current_stream_capturing", lambda original: lambda: is_recording() or original())
    _replace(torch, "_check_tensor_all_with", _unless_recording)
    _replace(torch.distributions.Distribution, "_validate_args", _Unvalidated)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute by `make` of it until `_restore` is called, unless a program sets it in between.

    No-op for an attribute that this version of PyTorch does not have.
    """
    if name not in vars(owner):
        return
    original = vars(owner)[name]
    made = make(original)

    def restore() -> None:
        if vars(owner)[name] is made:
            setattr(owner, name, original)

    setattr(owner, name, made)
    _restore.append(restore)


def _unless_recording(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a check that is a no-op while a step is recorded, because it reads a value."""

    def check(*args: Any, **kwargs: Any) -> Any:
        return None if is_recording() else original(*args, **kwargs)

    return check


class _Unvalidated:
    """Default of `validate_args`: False while a step is recorded. An object's own `validate_args` takes precedence."""

    def __init__(self, original: bool) -> None:
        self._original = original

    def __get__(self, instance: Any, owner: type) -> bool:
        return False if is_recording() else self._original
