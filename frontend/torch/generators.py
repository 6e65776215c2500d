"""`torch.Generator(device="polyhal")`: a stream of Polyhal's random numbers behind PyTorch's interface."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import torch

from polyhal.random import Generator as Stream
from polyhal.torch.device import NAME, check_ordinal
from polyhal.torch.device_module.randomness import as_seed, packed, unpack

DEFAULT_SEED = 67280421310721
"""Seed of new generators in PyTorch."""


class DeviceGenerator(torch._C.Generator):
    """A generator of the device. On CPU tensors it draws the numbers of a CPU generator with the same seed.

    To PyTorch's C++ code it is a CPU generator, whose address identifies it.
    """

    _all: ClassVar[weakref.WeakValueDictionary[int, DeviceGenerator]] = weakref.WeakValueDictionary()
    """Generators by the address of the C++ object: kernels receive new Python objects around it."""

    def __new__(cls, device: str = NAME) -> DeviceGenerator:
        return super().__new__(cls)

    def __init__(self, device: str = NAME) -> None:
        """Create a generator. Raises RuntimeError for another device than the first."""
        check_ordinal(torch.device(device))
        self.stream = Stream(DEFAULT_SEED)
        self._all[self._cdata] = self  # type: ignore[attr-defined]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """`polyhal:0`"""
        return torch.device(NAME, 0)

    def manual_seed(self, seed: int) -> DeviceGenerator:
        """Restart with a seed."""
        super().manual_seed(seed)
        self.stream.manual_seed(as_seed(seed))
        return self

    def seed(self) -> int:
        """Restart with a seed from the operating system. Returns it."""
        seed = super().seed()
        self.stream.manual_seed(as_seed(seed))
        return seed

    def get_state(self) -> torch.Tensor:
        """Return seed and offset, as 16 bytes on the CPU."""
        return packed(self.stream)

    def set_state(self, new_state: torch.Tensor) -> DeviceGenerator:
        """Restore a state of `get_state`."""
        unpack(self.stream, new_state)
        return self

    def clone_state(self) -> DeviceGenerator:
        """Return another generator that draws the same numbers."""
        copied = DeviceGenerator()
        copied.manual_seed(self.initial_seed())
        copied.stream.set_state(self.stream.get_state())
        return copied

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Any) -> DeviceGenerator:
        """Take over the seed and the offset of another generator of the device."""
        return self.set_state(state.get_state())

    def get_offset(self) -> int:
        """Return the number of blocks of random numbers drawn since the seed was set."""
        return self.stream.offset

    def set_offset(self, offset: int) -> DeviceGenerator:
        """Move to another offset in the stream."""
        self.stream.set_state({"seed": self.stream.seed, "offset": offset})
        return self

    def __reduce__(self) -> Any:
        return _restored, (self.initial_seed(), self.get_state())

    def __deepcopy__(self, memo: Any) -> DeviceGenerator:
        return self.clone_state()


def _restored(seed: int, state: torch.Tensor) -> DeviceGenerator:
    generator = DeviceGenerator().manual_seed(seed)
    return generator.set_state(state)


class _Kind(type(torch._C.Generator)):  # type: ignore[misc]
    """Metaclass of a replacement for `torch.Generator`: instance checks accept all generators, and a call chooses by device."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, torch._C.Generator)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, torch._C.Generator)

    def __call__(cls, device: Any = None) -> torch._C.Generator:
        if device is not None and torch.device(device).type == NAME:
            return DeviceGenerator(device)
        return torch._C.Generator(device) if device is not None else torch._C.Generator()


class GeneratorStandIn(torch._C.Generator, metaclass=_Kind):
    """Replacement of `torch.Generator`, which PyTorch supports only for devices written in C++."""


def stream_of(generator: Any) -> Stream | None:
    """Return Polyhal's generator behind a generator that a kernel received; None for a CPU generator."""
    found = DeviceGenerator._all.get(generator._cdata)
    return None if found is None else found.stream


def install() -> None:
    """Replace `torch.Generator`."""
    torch.Generator = GeneratorStandIn  # type: ignore[misc]
