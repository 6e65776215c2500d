"""The contract on a device of OpenVINO: core members by NumPy, captured steps by compiled models."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import openvino

from polyhal.backends.common.reference.host_members import OPTIONAL, HostMembers
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, GraphProgram, InputSpec, SimpleLaunch
from polyhal_openvino.claims import declined
from polyhal_openvino.memory import Memory, view
from polyhal_openvino.programs import Program


class OpenVinoBackend(HostMembers):
    """One device, which OpenVINO calls `name`. Programs count against its memory."""

    def __init__(self, core: openvino.Core, name: str, info: DeviceInfo, storage: frozenset[DType]) -> None:
        self.info = info
        self.capabilities = replace(OPTIONAL, storage=storage, compute=storage, unified_memory=True)
        self._core = core
        self._name = name
        self._used = 0

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        return self.info.memory - self._used

    def allocate(self, nbytes: int) -> Memory:
        self._reserve(nbytes, f"{nbytes} bytes requested")
        return Memory(nbytes)

    def deallocate(self, handle: Memory) -> None:
        """Drop the bytes. Programs keep the weights with which they were compiled."""
        handle.data = np.empty(0, np.uint8)
        handle.writes += 1
        self._release(handle.nbytes)

    def copy_to_device(self, src: memoryview, dst: Memory, offset: int) -> None:
        dst.data[offset : offset + src.nbytes] = np.frombuffer(src, np.uint8)
        dst.writes += 1

    def copy_from_device(self, src: Memory, offset: int, dst: memoryview) -> None:
        np.frombuffer(dst, np.uint8)[:] = src.data[offset : offset + dst.nbytes]

    def synchronize(self) -> None:
        """No-op: every call completes before it returns."""

    def view(self, ref: Ref, *, changed: bool = False) -> np.ndarray:
        return view(ref, changed=changed)

    def _reserve(self, nbytes: int, problem: str) -> None:
        if self.info.memory and nbytes > self.memory_available():
            raise OutOfMemoryError(
                message(None, f"{problem}, {self.memory_available()} available", device=self.info.name)
            )
        self._used += nbytes

    def _release(self, nbytes: int) -> None:
        self._used -= nbytes

    # --- graphs -----------------------------------------------------------------------------------------------------

    def claim_op(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Declined | None:
        reason = declined(op, inputs, outputs, params)
        return Declined(reason) if reason else None

    def compile_graph(self, graph: GraphProgram) -> SimpleLaunch:
        """Return the launch of a program, which OpenVINO compiles when it runs for the first time, with its weights.

        Raises OutOfMemoryError for a program whose weights and temporaries do not fit the device.
        """
        program = Program(self._core, self._name, graph)
        weights, temporaries = program.memory
        needed = f"a program needs {weights} bytes for a copy of its weights and {temporaries} for temporaries"
        self._reserve(weights + temporaries, needed)
        weakref.finalize(program, self._release, weights + temporaries)
        return SimpleLaunch("OpenVINO", program.run)
