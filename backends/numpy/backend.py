"""The contract in NumPy: device memory is host memory, and every call computes before it returns.

It is the smallest complete backend with native kernels, and the reference for all other backends.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.launching.completion import Finished
from polyhal.backends.common.reference import members
from polyhal.backends.common.reference.arrays import in_range, view_memory
from polyhal.backends.common.reference.functions import BINARY, REDUCE, UNARY
from polyhal.backends.numpy.row_updates import ROW_UPDATES, row_update
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType, Limits
from polyhal.hal.core.memory.host_bytes import host_bytes
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import OnHost
from polyhal.hal.peer_memory import DeviceAddress
from polyhal.hal.protocol import (
    REQUIRED_BINARY,
    REQUIRED_REDUCE,
    REQUIRED_UNARY,
    ComputeBackend,
    Declined,
    Handle,
    InputSpec,
    Launch,
    Number,
    SimpleLaunch,
    UserKernel,
)

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _total_memory() -> int:
    """Return the bytes of memory of this machine; 0 if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 0


def _info(selector: str) -> DeviceInfo:
    name = f"NumPy on {platform.processor() or platform.machine()}"
    return DeviceInfo(
        "numpy",
        name,
        DeviceType.CPU,
        _total_memory(),
        f"NumPy {np.__version__}",
        f"numpy{selector and '-' + selector}",
        selector,
    )


def probe() -> Sequence[DeviceInfo]:
    """Return the only device, which exists on every machine."""
    return [_info("")]


def create(selector: str) -> CoreNumpyBackend:
    """Open the device for "" or "0"; `no_f64`, `contiguous_only`, `tiny_mem` and `small` are restricted variants for tests."""
    if selector in ("", "0"):
        return NumpyBackend(_info(""))
    if selector == "no_f64":
        return NumpyBackend(_info(selector), missing=frozenset({dtypes.float64}))
    if selector == "contiguous_only":
        return CoreNumpyBackend(_info(selector))
    if selector == "tiny_mem":
        return NumpyBackend(_info(selector), memory=1 << 20)
    if selector == "small":
        return CoreNumpyBackend(_info(selector), missing=frozenset(dtypes.ALL) - dtypes.REQUIRED, memory=64 << 20)
    raise ValueError(
        f"NumPy has no device {selector!r}; expected no_f64, contiguous_only, tiny_mem, small or an empty selector"
    )


class CoreNumpyBackend:
    """Only the required members of the contract.

    It neither stores nor computes in dtypes that are `missing`, and checks that the arguments of core methods are
    contiguous and not empty, as the contract promises. `memory` limits the bytes that can be allocated; 0: no limit but
    the host's memory.
    """

    _minimal = True

    def __init__(
        self,
        info: DeviceInfo,
        *,
        missing: frozenset[dtypes.DType] = frozenset(),
        memory: int = 0,
    ) -> None:
        self.info = info if not memory else replace(info, memory=memory)
        supported, minimal = frozenset(dtypes.ALL) - missing, self._minimal
        self.capabilities = Capabilities(
            storage=supported,
            compute=supported,
            unary=frozenset() if minimal else frozenset(UNARY) - REQUIRED_UNARY,
            binary=frozenset() if minimal else frozenset(BINARY) - REQUIRED_BINARY,
            reduce=frozenset() if minimal else frozenset(REDUCE) - REQUIRED_REDUCE,
            unified_memory=True,
            limits=Limits(max_allocation=memory // 2),
            suballocation=True,
            reference=True,
        )
        self._memory = memory
        self._allocated = 0
        self._live: set[int] = set()
        """`id` of each live handle."""
        self._imported: set[int] = set()
        """`id` of each handle of imported memory."""

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        """Return the unused bytes of the limit, or else of this machine's total memory, ignoring other programs."""
        return (self._memory or self.info.memory) - self._allocated

    def allocate(self, nbytes: int) -> Handle:
        """Allocate an array of bytes. Raises OutOfMemoryError."""
        limit = self.capabilities.limits.max_allocation
        if self._memory and (nbytes > limit or nbytes > self.memory_available()):
            problem = f"{nbytes} bytes requested, {self.memory_available()} available"
            raise OutOfMemoryError(message(None, problem, device=self.info.name))
        try:
            handle = _aligned(nbytes)
        except MemoryError as error:
            raise OutOfMemoryError(
                message(None, f"the host cannot allocate {nbytes} bytes", device=self.info.name)
            ) from error
        self._live.add(id(handle))
        self._allocated += nbytes
        return handle

    def deallocate(self, handle: Handle) -> None:
        """Release an allocation; the garbage collector frees its memory. Raises BackendError if it was already released."""
        if id(handle) not in self._live:
            raise BackendError(message(None, "this memory was released before", device=self.info.name))
        self._live.remove(id(handle))
        if id(handle) in self._imported:
            self._imported.remove(id(handle))
        else:
            self._allocated -= handle.nbytes

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        dst[offset : offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[offset : offset + dst.nbytes]

    def synchronize(self) -> None:
        """No-op: every call completes before it returns."""

    # --- core -------------------------------------------------------------------------------------------------------

    def fill(self, value: Number, out: Ref) -> None:
        self._check_dtypes(out)
        with np.errstate(over="ignore"):  # numbers beyond the range of half precision become infinite
            array(out)[...] = in_range(value, out.dtype)

    def copy(self, src: Ref, out: Ref) -> None:
        self._check_dtypes(src, out)
        members.copy(array(src), array(out))

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        members.unary(op, array(x), array(out))

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        members.binary(op, array(a), array(b), array(out))

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._check(cond, a, b, out)
        members.where(array(cond), array(a), array(b), array(out))

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        members.reduce(op, array(x), array(out))

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        members.matmul(array(a), array(b), array(out))

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        self._check(index, x, out)
        members.gather(array(index), array(x), array(out))

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        self._check(index, src, out)
        members.scatter_add(array(index), array(src), array(out))

    def _check(self, *refs: Ref) -> None:
        """Raise AssertionError if the framework violates its guarantees to a minimal device."""
        if self._minimal:
            self._check_dtypes(*refs)
            for ref in refs:
                if not ref.is_contiguous or not ref.size:
                    raise AssertionError(
                        f"a core method received {ref}; the contract guarantees contiguous and non-empty"
                    )

    def _check_dtypes(self, *refs: Ref) -> None:
        """Raise AssertionError for a dtype that the device does not store."""
        if self._minimal:
            for ref in refs:
                if ref.dtype not in self.capabilities.storage:
                    raise AssertionError(f"a core method received {ref}, whose dtype the device does not store")


class NumpyBackend(CoreNumpyBackend):
    """The NumPy device: core methods with all optional names, on any layout, and every op as one kernel."""

    _minimal = False

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether `peer` is also a NumPy device."""
        return isinstance(peer, CoreNumpyBackend)

    def copy_from_peer(
        self, peer: ComputeBackend, src: Handle, src_offset: int, dst: Handle, dst_offset: int, nbytes: int
    ) -> Finished:
        """Copy at once."""
        dst[dst_offset : dst_offset + nbytes] = src[src_offset : src_offset + nbytes]
        return Finished()

    def device_address(self, handle: Handle) -> DeviceAddress:
        """Return the address of an allocation in the host's memory."""
        return DeviceAddress(1, 0, handle.ctypes.data)

    def allocate_addressable(self, nbytes: int) -> Handle:
        """Allocate memory. All memory of this device is addressable."""
        return self.allocate(nbytes)

    def import_memory(self, address: int, nbytes: int) -> Handle:
        """Return the bytes at an address as an array."""
        handle = host_bytes(address, nbytes)
        self._live.add(id(handle))
        self._imported.add(id(handle))
        return handle

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Run any op by its reference function. Half precision is computed in float32 and rounded once, when stored."""
        definition = OPS[op]
        if op in ROW_UPDATES:
            return row_update(op)
        plain = definition.family in ("elementwise", "movement", "creation") or op == "add_rows"
        if plain and definition.strategy(OnHost) is None:
            return Declined("the core methods are equally fast")
        return _launch(op, definition.reference, inputs, params)

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Params,
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Run a user kernel by its NumPy function."""
        function = kernel.sources.get("numpy")
        if function is None:
            return Declined(f"{kernel.name} has no NumPy function")
        return _launch(kernel.name, function, inputs, params)


def _aligned(nbytes: int) -> Handle:
    """Return bytes that begin at a multiple of 64: a cache line, and the alignment from which JAX imports without a copy."""
    memory = np.empty(nbytes + 63, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return memory[start : start + nbytes]


def _launch(
    name: str, function: Callable[..., Any], inputs: tuple[InputSpec | None, ...], params: Params
) -> SimpleLaunch:
    """Return a launch that stores the results of a function of arrays."""
    is_tensor = [isinstance(spec, Spec) for spec in inputs]
    count = len(inputs)

    def run(*args: Any) -> None:
        arrays = [array(x) if t else x for t, x in zip(is_tensor, args[:count], strict=True)]
        members.run_function(function, params, arrays, [array(out) for out in args[count:]])

    return SimpleLaunch(f"numpy {name}", run)


def array(ref: Ref) -> np.ndarray:
    """Return the elements of `ref` as a view of its memory."""
    return view_memory(ref.spec, ref.handle, ref.offset)
