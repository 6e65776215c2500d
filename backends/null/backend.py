"""Every member of the contract as a no-op: launches return at once, and downloads are zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Handle, InputSpec, Launch, Number

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_INFO = DeviceInfo("null", "computes nothing", DeviceType.CPU, 1 << 40, "none", "null", "")


def probe() -> Sequence[DeviceInfo]:
    """Return the only device."""
    return [_INFO]


def create(selector: str) -> NullBackend:
    """Open the device; the selector is ignored."""
    return NullBackend()


class NullLaunch:
    """A no-op launch, named after its op."""

    __slots__ = ("name",)
    workspace: tuple[int, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> None:
        pass


class NullBackend:
    """The null device. A handle is a number without memory."""

    def __init__(self) -> None:
        self.info = _INFO
        self.capabilities = Capabilities()
        self._next = 0

    def memory_available(self) -> int:
        return self.info.memory

    def allocate(self, nbytes: int) -> Handle:
        """Return the next number. Never out of memory."""
        self._next += 1
        return self._next

    def deallocate(self, handle: Handle) -> None:
        pass

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        pass

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        """Fill `dst` with zeros."""
        dst[:] = bytes(dst.nbytes)

    def synchronize(self) -> None:
        pass

    def fill(self, value: Number, out: Ref) -> None:
        pass

    def copy(self, src: Ref, out: Ref) -> None:
        pass

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        pass

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        pass

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        pass

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        pass

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        pass

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        pass

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        pass

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Accept every op, so that no op is decomposed."""
        return NullLaunch(op)
