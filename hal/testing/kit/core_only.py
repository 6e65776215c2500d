"""A device reduced to the required members of the contract, on which every op runs its decomposition."""

from __future__ import annotations

from dataclasses import replace

from polyhal.hal.compile.planning.quarantine import EMPTY
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import (
    REQUIRED_BINARY,
    REQUIRED_REDUCE,
    REQUIRED_UNARY,
    ComputeBackend,
    Feature,
    Handle,
    Number,
)


class CoreOnlyBackend:
    """A wrapper of a backend without its native kernels and optional names of the contract.

    It may also have fewer dtypes, and checks that no member is called with others. Both backends share handles, so that
    tensors can be passed between them.
    """

    def __init__(self, inner: ComputeBackend, storage: frozenset[DType] | None = None) -> None:
        """Wrap `inner`; `storage` are the remaining dtypes, None for all."""
        self.inner = inner
        self.info = inner.info
        capabilities = inner.capabilities
        storage = capabilities.storage if storage is None else storage & capabilities.storage
        self.capabilities = replace(
            capabilities,
            storage=storage,
            compute=storage & capabilities.compute,
            unary=frozenset(),
            binary=frozenset(),
            reduce=frozenset(),
        )

    def _check(self, *refs: Ref) -> None:
        """Raise AssertionError for a dtype that the framework must not use on this device."""
        for ref in refs:
            if ref.dtype not in self.capabilities.storage:
                raise AssertionError(f"a member received {ref.spec}; the contract guarantees a dtype in `storage`")

    def memory_available(self) -> int:
        return self.inner.memory_available()

    def allocate(self, nbytes: int) -> Handle:
        return self.inner.allocate(nbytes)

    def deallocate(self, handle: Handle) -> None:
        self.inner.deallocate(handle)

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        self.inner.copy_to_device(src, dst, offset)

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        self.inner.copy_from_device(src, offset, dst)

    def synchronize(self) -> None:
        self.inner.synchronize()

    def fill(self, value: Number, out: Ref) -> None:
        self._check(out)
        self.inner.fill(value, out)

    def copy(self, src: Ref, out: Ref) -> None:
        self._check(src, out)
        self.inner.copy(src, out)

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        self.inner.unary(op, x, out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        self.inner.binary(op, a, b, out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._check(cond, a, b, out)
        self.inner.where(cond, a, b, out)

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        self.inner.reduce(op, x, out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        self.inner.matmul(a, b, out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        self._check(index, x, out)
        self.inner.gather(index, x, out)

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        self._check(index, src, out)
        self.inner.scatter_add(index, src, out)


def has_more(device: Device) -> bool:
    """Return whether a device has native kernels, or optional names of the contract."""
    capabilities = device.capabilities
    optional = capabilities.unary | capabilities.binary | capabilities.reduce
    return bool(device.features & Feature.LOWERING or optional - REQUIRED_UNARY - REQUIRED_BINARY - REQUIRED_REDUCE)


def core_only(device: Device, storage: frozenset[DType] | None = None) -> Device:
    """Open a second device around the same backend, with the required members only, and only the dtypes in `storage`."""
    backend = CoreOnlyBackend(device.backend, storage)
    reduced = Device.opened(f"{device.name} (required members only)", backend, device.origin)
    reduced.planner.quarantine = EMPTY
    return reduced
