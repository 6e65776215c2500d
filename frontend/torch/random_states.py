"""States of random numbers in checkpoints: a state of the CPU's numbers that a program stores restores the device's, too.

Libraries store `torch.get_rng_state()` and the states of the devices that they list, which a package's device is not. Therefore
the memory behind a state of the CPU continues with the state of the device. Files have all memory of a tensor; the
tensor itself has PyTorch's elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from polyhal import random
from polyhal.torch import private
from polyhal.torch.device_module.randomness import packed, unpack
from polyhal.torch.steps import active

_MARK = torch.tensor(list(b"polyhal:random:1"), dtype=torch.uint8)
"""Bytes between both states."""
_BYTES = _MARK.numel() + packed(random.default_generator).numel()
_current: Any = WeakIdKeyDictionary()
"""States of this process, which restore only the CPU's numbers, as on other devices."""


def install() -> None:
    """Let `torch.get_rng_state` append the device's state, and `torch.set_rng_state` restore it from a file."""
    for owner in (torch, torch.random):
        for name, make in (("get_rng_state", _with_device), ("set_rng_state", _and_device)):
            function = make(getattr(owner, name))
            private.hide_from_dynamo(function)
            setattr(owner, name, function)


def _with_device(original: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    @functools.wraps(original)
    def get_rng_state() -> torch.Tensor:
        state = original()
        if active.innermost() is not None:
            return state
        with private.without_modes(), private.without_functions():
            found = torch.cat([state, _MARK, packed(random.default_generator)])[: state.numel()]
        _current[found] = None
        return found

    return get_rng_state


def _and_device(original: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    @functools.wraps(original)
    def set_rng_state(new_state: torch.Tensor) -> None:
        original(new_state)
        found = None if new_state in _current else _of_device(new_state)
        if found is not None:
            unpack(random.default_generator, found)

    return set_rng_state


def _of_device(state: torch.Tensor) -> torch.Tensor | None:
    """Return the state of the device in the memory behind a loaded state of the CPU; None if there is none."""
    if state.untyped_storage().nbytes() != state.numel() + _BYTES or state.storage_offset():
        return None
    with private.without_modes(), private.without_functions():
        rest = state.as_strided((_BYTES,), (1,), state.numel())
        return rest[_MARK.numel() :].clone() if torch.equal(rest[: _MARK.numel()], _MARK) else None
