"""The exchange of collectives as operations of emulated streams, in NumPy: processors cannot run kernels that wait for others.

Like the kernel, each participant writes to its slots in the windows of the others, raises its flags there, waits for theirs in
its own window, and combines what has arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from emulated_processor import Parameter
from emulated_programs import EmulatedFunction

from polyhal.hal import dtypes

if TYPE_CHECKING:
    import pytest
    from emulated_machine import EmulatedContext, Machine

    from polyhal.backends.cuda.backend import CudaBackend

_COMBINE: dict[str, Any] = {"sum": np.add, "largest": np.maximum, "smallest": np.minimum}
_COUNTER = 31
"""Word of a window's header with the last step of its owner; those before it are the flags of the others."""
_HEADER = 128
_PATIENCE = 1000
"""Rounds after which an exchange gives up."""


class EmulatedExchanges:
    """Runs the exchanges of the devices of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._running: list[Iterator[None]] = []

    def install(self, backend: CudaBackend, patch: pytest.MonkeyPatch) -> None:
        """Replace the kernel of exchanges on one device."""
        programs = backend.runtime.programs
        context = self._machine.devices[backend.runtime.ordinal].context
        native = programs.kernel

        def kernel(file: str, name: str, definitions: Any, *options: Any, **folding: Any) -> Any:
            if file != "collective/exchange.cl":
                return native(file, name, definitions, *options, **folding)
            members = int(definitions["MEMBERS"])
            pointer, number = Parameter("global", "uchar*", 8), Parameter("", "ulong", 8)
            parts = Parameter("", "Parts", 8 * (4 * members + 3) + 16)
            parameters = (pointer, number, pointer, number, *[pointer] * members, parts)

            def run(arguments: Sequence[bytes]) -> None:
                self._finish(self._run(context, definitions, arguments))

            function = EmulatedFunction(
                SimpleNamespace(context=context),  # type: ignore[arg-type]
                name,
                parameters,
                None,  # type: ignore[arg-type]
                {0: 1024, 1: 0, 8: 0},
                (0, 0, 0),
                0,
                folded=False,
                in_python=run,
            )
            handle = self._machine.handles.new("CUfunction", function)
            return SimpleNamespace(
                name=name, function=handle, largest_group=1024, shared=0, folded=False, dependent=False
            )

        patch.setattr(programs, "kernel", kernel)

    def _finish(self, own: Iterator[None]) -> None:
        """Run an exchange to its end, and others that run or come next on their streams while it waits for them."""
        self._running.append(own)
        for _ in range(_PATIENCE):
            for running in [*self._running]:
                if next(running, self) is self:
                    self._running.remove(running)
            if own not in self._running:
                return
            self._machine.advance()
        raise AssertionError("the other participants have not enqueued their exchanges")

    def _run(self, context: EmulatedContext, definitions: Any, arguments: Sequence[bytes]) -> Iterator[None]:
        """Run an exchange; yield while it waits."""
        count = int(definitions["MEMBERS"])
        members = range(count)
        name = definitions["DTYPE"] if definitions["REDUCES"] else f"uint{128 // int(definitions['LANES'])}"
        dtype = dtypes.as_dtype(name).numpy
        numbers = [int.from_bytes(a, "little") for a in arguments[:-1]]
        start = [numbers[k] + numbers[k + 1] * np.dtype(dtype).itemsize for k in (0, 2)]
        windows = numbers[4:]
        words = struct.unpack(f"<{4 * count + 3}Q4I", arguments[-1])
        send, receive = ([*zip(words[k : k + count], words[k + count :], strict=False)][:count] for k in (0, 2 * count))
        result_start, me = words[4 * count], words[4 * count + 3]
        reduces, gathers = bool(definitions["REDUCES"]), bool(definitions["GATHERS"])

        def view(address: int, size: int, kind: Any = dtype) -> np.ndarray:
            if not size:
                return np.empty(0, kind)
            nbytes = size * np.dtype(kind).itemsize
            self._machine.memory.check(context, address, nbytes, "an exchange")
            block = self._machine.memory.find(address)
            assert block is not None
            return block.bytes[address - block.address :][:nbytes].view(kind)

        flags = [view(w, _COUNTER + 1, np.uint32) for w in windows]
        step = int(flags[me][_COUNTER])

        def part(base: int, first: int, size: int) -> np.ndarray:
            return view(base + first * np.dtype(dtype).itemsize, size)

        def swap(outgoing: list[np.ndarray]) -> Generator[None, None, list[np.ndarray]]:
            """Send an array to each participant, and return the arrays of all; its own is not sent."""
            nonlocal step
            step += 1
            slot = lambda m, sender: windows[m] + _HEADER + (2 * sender + step % 2) * 4096  # noqa: E731
            for m in members:
                if m != me:
                    view(slot(m, me), 1, np.int64)[0] = outgoing[m].size
                    view(slot(m, me) + 16, outgoing[m].size)[:] = outgoing[m]
                    flags[m][me] = step
            while any(flags[me][m] < step for m in members if m != me):
                yield
            sizes = [int(view(slot(me, m), 1, np.int64)[0]) for m in members]
            return [outgoing[me] if m == me else view(slot(me, m) + 16, sizes[m]).copy() for m in members]

        arrived = yield from swap([part(start[0], *r).copy() for r in send])
        if reduces:
            total = arrived[0]
            for other in arrived[1:]:
                total = _COMBINE[definitions["OPERATION"]](total, other)
            part(start[1], result_start, total.size)[:] = total
            arrived = (yield from swap([total for _ in members])) if gathers else []
        for m, values in enumerate(arrived):
            if not (reduces and m == me):
                part(start[1], receive[m][0], values.size)[:] = values
        flags[me][_COUNTER] = step
