"""The steps that threads are recording, and changes to PyTorch that are in effect only for these threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from polyhal.hal.errors import CaptureError
from polyhal.torch.steps.watch import StepWatch

_lock = threading.Lock()
_steps: dict[int, list[StepWatch]] = {}
"""Steps by thread, the innermost last."""
_replaced: dict[tuple[int, str], Callable[[], object]] = {}
"""Functions that undo the changes, by object and attribute."""
_originals: dict[int, tuple[Any, Any]] = {}
"""Replacements and what they replace, by the identity of the replacement."""


def innermost() -> StepWatch | None:
    """Return the innermost step of this thread, which may have been left."""
    steps = _steps.get(threading.get_ident())
    return steps[-1] if steps else None


def recorded() -> StepWatch | None:
    """Return the step that this thread is recording; None if there is none, or if it was left."""
    watch = innermost()
    return None if watch is None or watch.is_left else watch


@contextmanager
def recording(watch: StepWatch, changes: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Register a step of this thread in a block.

    `changes` change PyTorch by `replace`. They last until no thread records, so that blocks of several threads may end in any
    order.
    """
    thread = threading.get_ident()
    with _lock:
        for change in changes:
            change()
        _steps.setdefault(thread, []).append(watch)
    try:
        yield
    finally:
        with _lock:
            _steps[thread].pop()
            if not _steps[thread]:
                del _steps[thread]
            while not _steps and _replaced:
                _replaced.popitem()[1]()
            if not _steps:
                _originals.clear()


@contextmanager
def leaving_if_refused() -> Iterator[None]:
    """Leave the recorded step if the block raises CaptureError; the caller then continues eagerly.

    Raises the error in a strict step.
    """
    try:
        yield
    except CaptureError as error:
        watch = recorded()
        if watch is None:
            raise
        watch.refuse(error)


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute by `make` of it while steps are recorded, unless a program sets it in between.

    No-op for an attribute that is replaced already, or that this version of PyTorch does not have.
    """
    if name not in vars(owner) or (id(owner), name) in _replaced:
        return
    original = vars(owner)[name]
    made = make(original)

    def restore() -> None:
        if vars(owner)[name] is made:
            setattr(owner, name, original)

    setattr(owner, name, made)
    _replaced[id(owner), name] = restore
    _originals[id(made)] = made, original


def original_of(value: Any) -> Any:
    """Return the attribute that `value` replaces while steps are recorded; `value` itself otherwise."""
    return _originals.get(id(value), (value, value))[1]
