"""Memory of tensors that exist only while a step is recorded: they have a spec and a place on the tape, and no data."""

from __future__ import annotations

from typing import Any

from polyhal.hal.core.memory.buffer import Buffer


class FakeHandle:
    """Stands for a backend's handle in fake tensors."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "no memory yet"


FAKE_HANDLE: Any = FakeHandle()


class FakeBuffer(Buffer):
    """The buffer of a fake tensor. It has a version for the tape, and takes no memory."""

    __slots__ = ()

    def __init__(self, nbytes: int) -> None:
        self.handle = FAKE_HANDLE
        self.nbytes = nbytes
        self.version = 0

    def __del__(self) -> None:
        """No pool gets it back."""
