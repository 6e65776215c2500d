"""Training checkpoints: model, optimizer, schedule, position in the data, and random numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.nn.module import Module
from polyhal.random import default_generator
from polyhal.serialize.files import load, save


class Stateful(Protocol):
    """Anything with a state, such as optimizers, schedulers and data loaders."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a tree of tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any:
        """Restore what `state_dict` returned."""


def save_checkpoint(
    path: str | os.PathLike[str],
    model: Module | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Save everything that training needs to continue exactly, the default random generator included.

    `extra` is returned by `load_checkpoint`. See `save` for what it may contain, for the form of `path`, and for errors.
    """
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    state: dict[str, Any] = {name: part.state_dict() for name, part in parts.items() if part is not None}
    return save({**state, "random": default_generator.get_state(), "extra": dict(extra or {})}, path)


def load_checkpoint(
    path: str | os.PathLike[str],
    model: Module | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
    strict: bool = True,
    restore_random: bool = True,
) -> Any:
    """Load a checkpoint of `save_checkpoint` into these objects, on whatever devices they are, and return `extra`.

    Tensors in `extra` are on the NumPy device. Raises IncompatibleFileError if a part that is asked for was not saved,
    StateDictError if one does not fit, and the errors of `load`.
    """
    state = load(path, Device("numpy"), lazy=True)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    absent = [name for name, part in parts.items() if part is not None and name not in state]
    if absent:
        raise IncompatibleFileError(
            message("load_checkpoint", f"{path} holds {list(state)}", expected=f"also {', '.join(absent)}")
        )
    for name, part in parts.items():
        if isinstance(part, Module):
            part.load_state_dict(state[name], strict)
        elif part is not None:
            part.load_state_dict(eager(state[name]))
    if restore_random and "random" in state:
        default_generator.set_state(state["random"])
    return eager(state["extra"]) if "extra" in state else {}


def eager(value: Any) -> Any:
    """Read everything in a lazy state."""
    if isinstance(value, Mapping):
        return {k: eager(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(eager(v) for v in value)
    return value
