"""Random numbers of the device: Polyhal's default generator, whose numbers are equal on every device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from polyhal import random
from polyhal.hal.core import dispatch
from polyhal.torch import private
from polyhal.torch.device import NAME
from polyhal.torch.device_module.devices import check_index
from polyhal.torch.steps import active

if TYPE_CHECKING:
    from polyhal.torch.call_types import DeviceName

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _require_no_recording(what: str) -> None:
    with active.leaving_if_refused():
        dispatch.require_execution(
            "random",
            f"{what} in a recorded step, each run of which draws new random numbers",
            fix="do it outside of the step",
        )


def as_seed(seed: int) -> int:
    """Convert a seed of PyTorch, which may be negative or have 64 bits, to a seed of Polyhal.

    Raises CaptureError in a recorded step, where a new seed would be lost.
    """
    _require_no_recording("the seed of random numbers is set")
    return int(seed) & (2**63 - 1)


def manual_seed(seed: int) -> None:
    """Restart the random numbers of the device."""
    random.manual_seed(as_seed(seed))


manual_seed_all = manual_seed


def seed() -> int:
    """Restart the random numbers of the device with a seed from the operating system. Returns it."""
    _require_no_recording("the seed of random numbers is set")
    return random.seed()


seed_all = seed


def initial_seed() -> int:
    """Return the current seed."""
    return random.initial_seed()


def get_rng_state(device: DeviceName = NAME) -> torch.Tensor:
    """Return seed and offset of the random numbers, as 16 bytes on the CPU."""
    check_index(device)
    return packed(random.default_generator)


def set_rng_state(new_state: torch.Tensor, device: DeviceName = NAME) -> None:
    """Restore a state of `get_rng_state`."""
    check_index(device)
    unpack(random.default_generator, new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return a list with the state of the only device."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore the states of `get_rng_state_all`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def packed(generator: random.Generator) -> torch.Tensor:
    """Return the state of a generator as 16 bytes on the CPU; in a recorded step, a position that is valid within the step."""
    recorder = dispatch.thread.executor.recorder
    state = generator.get_state() if recorder is None else recorder.random_state(generator)
    with private.without_modes(), private.without_functions():
        return torch.tensor([state["seed"], state["offset"]], dtype=torch.int64, device="cpu").view(torch.uint8)


def unpack(generator: random.Generator, state: torch.Tensor) -> None:
    """Set a generator to a state of `packed`. Raises RuntimeError for anything else, and CaptureError in a recorded step for a
    state from outside.
    """
    if state.device.type != "cpu" or state.dtype is not torch.uint8 or state.numel() != 16:
        raise RuntimeError(
            f"expected a state of {NAME}, 16 bytes on the CPU, and got {state.numel()} elements of {state.dtype}"
        )
    with private.without_modes(), private.without_functions():
        seed, offset = state.contiguous().view(torch.int64).tolist()
    values = {"seed": seed, "offset": offset}
    recorder = dispatch.thread.executor.recorder
    if recorder is not None:
        with active.leaving_if_refused():
            recorder.set_random_state(generator, values)
            return
    watch = active.innermost()
    generator.set_state(values if watch is None else watch.random_state(generator, values))
