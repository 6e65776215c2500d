"""NVIDIA's driver library in Python: kernels run on the host's processor.

In a lazy library, the work of a stream runs when the host waits for it: a backend that forgets to wait reads bytes that were
never written. Work that accesses memory which is not allocated, or belongs to another device, makes its device fail and is
listed in `violations`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emulated_devices import DeviceFunctions
from emulated_graphs import GraphFunctions
from emulated_machine import EmulatedDevice, Machine
from emulated_memory import MemoryFunctions
from emulated_processor import Processor
from emulated_programs import ProgramFunctions
from emulated_statuses import ILLEGAL_ADDRESS, NOT_SUPPORTED, Refused
from emulated_streams import StreamFunctions
from emulated_virtual_memory import VirtualMemoryFunctions

from polyhal.backends.common.cuda_driver import ffi

_CALLBACKS: list[Any] = []
"""C functions of all libraries, which finalizers may call until the process ends."""


class EmulatedLibrary:
    """The functions of the driver, called like those of `ffi.dlopen`: arguments are converted by cffi."""

    def __init__(
        self,
        processor: Processor,
        devices: int = 1,
        *,
        lazy: bool = False,
        capacity: int = 1 << 30,
        peers: bool = True,
        version: int = 12080,
    ) -> None:
        """`capacity` is the memory of each device in bytes; `peers` lets devices access each other's memory."""
        self.machine = machine = Machine(devices, capacity, lazy=lazy, peers=peers)
        self.refused: dict[str, int] = {}
        """Functions that fail, with their status."""
        self.calls: list[str] = []
        """Names of the functions that were called."""
        self._lock = threading.RLock()
        self._methods: dict[str, Callable[..., None]] = {}
        programs = ProgramFunctions(machine, processor)
        parts = (
            DeviceFunctions(machine, version),
            MemoryFunctions(machine),
            VirtualMemoryFunctions(machine),
            StreamFunctions(machine),
            programs,
            GraphFunctions(machine, programs),
        )
        for name, kind in _declared().items():
            methods = (getattr(part, name, None) for part in parts)
            setattr(self, name, self._function(name, kind, next(filter(None, methods), _not_supported)))

    @property
    def devices(self) -> list[EmulatedDevice]:
        """All devices."""
        return self.machine.devices

    @property
    def violations(self) -> list[str]:
        """Accesses of memory that no correct program makes, so far."""
        return [*self.machine.violations, *self.machine.memory.overrun()]

    def lose(self, device: int = 0, status: int = ILLEGAL_ADDRESS) -> None:
        """Make all later calls that concern a device fail."""
        self.devices[device].context.lost = status

    def finish(self) -> None:
        """Run the pending work of all devices."""
        for device in self.devices:
            device.context.finish()

    @contextmanager
    def logged(self) -> Iterator[list[str]]:
        """Return a list that, at the end of the block, has the functions called in it."""
        start, found = len(self.calls), list[str]()
        yield found
        found += self.calls[start:]

    def _function(self, name: str, kind: str, method: Callable[..., None]) -> Callable[..., int]:
        """Return a function that checks and converts its arguments as C does, and returns a status."""
        problems = threading.local()
        self._methods[name] = method
        itself = weakref.ref(self)

        def status(*args: Any) -> int:
            library = itself()
            if library is None:
                return 0  # a finalizer calls, after the last test of the library
            with library._lock:
                library.calls.append(name)
                try:
                    if name in library.refused:
                        return library.refused[name]
                    library._methods[name](*args)
                except Refused as refusal:
                    return refusal.status
                except BaseException as problem:
                    problems.found = problem
                return 0

        native = ffi.callback(kind, status)
        _CALLBACKS.append(native)

        def function(*args: Any) -> int:
            result = int(native(*args))
            if (problem := getattr(problems, "found", None)) is not None:
                problems.found = None
                raise problem  # a defect of the emulation
            return result

        return function


def _not_supported(*args: Any) -> None:
    """Refuse a call."""
    raise Refused(NOT_SUPPORTED, "the emulated driver lacks the function")


def _declared() -> dict[str, str]:
    """Return the C type of each function of the driver."""
    declared: dict[str, Any] = ffi._parser._declarations
    return {
        name.removeprefix("function "): kind.get_c_name()
        for name, (kind, _) in declared.items()
        if name.startswith("function ")
    }
