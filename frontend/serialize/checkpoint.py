"""Training checkpoints: state of the model, optimizer, scheduler, data loader and random generator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.module import Module
from polyhal.random import default_generator
from polyhal.serialize.files import load, save
from polyhal.serialize.readers.stored import damage_reported


class Stateful(Protocol):
    """An object with a state, such as an optimizer, scheduler or data loader."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a tree of tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any:
        """Restore a state that `state_dict` returned."""


@top_level
def save_checkpoint(
    path: str | os.PathLike[str],
    model: Module | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Save the state from which training continues exactly, including the default random generator.

    `load_checkpoint` returns `extra`. See `save` for its types, for the form of `path`, and for errors.
    """
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    state: dict[str, Any] = {name: part.state_dict() for name, part in parts.items() if part is not None}
    return save({**state, "random": default_generator.get_state(), "extra": dict(extra or {})}, path)


@top_level
def load_checkpoint(
    path: str | os.PathLike[str],
    model: Module | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
    strict: bool = True,
    restore_random: bool = True,
) -> Any:
    """Load a checkpoint of `save_checkpoint` into these objects, on any devices, and return `extra`.

    Everything is read before anything is changed, and a load that raises restores all objects; only a device that fails while
    weights are copied to it can leave some of them loaded. Tensors in `extra` are on the NumPy device.

    Raises IncompatibleFileError if a requested part was not saved, StateDictError if one does not fit, and the errors of
    `load`.
    """
    state = load(path, Device("numpy"), lazy=True)
    if not isinstance(state, Mapping):
        raise IncompatibleFileError(message("load_checkpoint", f"{path} is not a checkpoint", expected="parts by name"))
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    absent = [name for name, part in parts.items() if part is not None and name not in state]
    if absent:
        raise IncompatibleFileError(
            message("load_checkpoint", f"{path} contains {list(state)}", expected=f"also {', '.join(absent)}")
        )
    read = {name: eager(state[name]) for name, part in parts.items() if part is not None}
    extra = eager(state["extra"]) if "extra" in state else {}
    random = default_generator.get_state()
    known: set[int] = {id(model)}
    undo = [undone for name, part in parts.items() if name in read for undone in _undo(part, known)]
    try:
        for name in ("optimizer", "scheduler", "loader"):
            if name in read:
                with _damage_named(path, name):
                    parts[name].load_state_dict(read[name])  # type: ignore[union-attr]
        if restore_random and "random" in state:
            with _damage_named(path, "random"):
                default_generator.set_state(state["random"])
        if model is not None:  # last, because it writes nothing unless all of the state fits
            with _damage_named(path, "model"):
                model.load_state_dict(read["model"], strict)
    except BaseException:
        for undone in undo:
            undone()
        default_generator.set_state(random)
        raise
    return extra


def _undo(part: Any, known: set[int]) -> Iterator[Callable[[], None]]:
    """Snapshot the attributes of an object with a state and of the stateful objects that it holds, except for `known` ones.

    Yields functions that restore them.
    """
    if id(part) in known:
        return
    known.add(id(part))
    attributes = getattr(part, "__dict__", {})
    yield partial(_refill, attributes, dict(attributes))
    for group in attributes.get("param_groups", ()):
        yield partial(_refill, group, dict(group))
    for value in attributes.values():
        for held in value if isinstance(value, tuple) else (value,):
            if hasattr(held, "load_state_dict") and not isinstance(held, Module):
                yield from _undo(held, known)


def _refill(target: dict[str, Any], content: dict[str, Any]) -> None:
    target.clear()
    target.update(content)


def _damage_named(path: str | os.PathLike[str], part: str) -> AbstractContextManager[None]:
    """Report the file and the part whose structure differs from the object into which it is loaded."""
    return damage_reported(f"{part} of {path} cannot be loaded", "load_checkpoint")


def eager(value: Any) -> Any:
    """Read all tensors of a lazy state, such as `load(path, lazy=True)` returns, also in its lists and dictionaries."""
    if isinstance(value, Mapping):
        return {k: eager(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(eager(v) for v in value)
    return value
