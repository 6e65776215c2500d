"""The contract on XLA's processor: core members by NumPy, captured steps by programs of XLA."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from polyhal.backends.common.reference.host_members import OPTIONAL, HostMembers
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, GraphProgram, InputSpec, SimpleLaunch
from polyhal_xla.memory import Memory, view
from polyhal_xla.programs import declined, program

_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def probe() -> list[DeviceInfo]:
    """Return JAX's processor."""
    return [
        DeviceInfo("xla", "XLA on the processor", DeviceType.CPU, _MEMORY, f"JAX {jax.__version__}", "xla-cpu", "0")
    ]


class XlaBackend(HostMembers):
    """One device."""

    def __init__(self, selector: str) -> None:
        (self.info,) = probe()
        self.capabilities = OPTIONAL
        self._processor = jax.devices("cpu")[0]
        self._latest: Sequence[Any] = ()
        """Results of the last program."""

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        return self.info.memory

    def allocate(self, nbytes: int) -> Memory:
        if self.info.memory and nbytes > self.info.memory:
            problem = f"{nbytes} bytes requested, the machine has {self.info.memory}"
            raise OutOfMemoryError(message(None, problem, device=self.info.name))
        return Memory(nbytes)

    def deallocate(self, handle: Memory) -> None:
        """Drop the bytes. JAX keeps arrays that enqueued programs use."""
        handle.host = handle.value = None
        handle.is_stale = False

    def copy_to_device(self, src: memoryview, dst: Memory, offset: int) -> None:
        dst.bytes(changed=True)[offset : offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_from_device(self, src: Memory, offset: int, dst: memoryview) -> None:
        np.frombuffer(dst, np.uint8)[:] = src.read(offset, dst.nbytes)

    def synchronize(self) -> None:
        jax.block_until_ready([x for x in self._latest if not x.is_deleted()])

    def view(self, ref: Ref, *, changed: bool = False) -> np.ndarray:
        return view(ref, changed=changed)

    # --- graphs -----------------------------------------------------------------------------------------------------

    def claim_op(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Declined | None:
        reason = declined(op, inputs, outputs, params)
        return Declined(reason) if reason else None

    def compile_graph(self, graph: GraphProgram) -> SimpleLaunch:
        """Return the launch of a program, which XLA compiles when it runs for the first time."""
        run, count = program(graph), len(graph.inputs)

        def launch(*refs: Any) -> None:
            with jax.enable_x64(True), jax.default_device(self._processor):
                self._latest = results = run([x.handle.array(x) if isinstance(x, Ref) else x for x in refs[:count]])
            for out, value in zip(refs[count:], results, strict=True):
                out.handle.store(out, value)

        return SimpleLaunch("XLA", launch)
