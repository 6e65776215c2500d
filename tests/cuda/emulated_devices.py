# ruff: noqa: N802 - the names are those of the library
"""Devices and contexts of the emulated driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulated_statuses import (
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_VALUE,
    NAMES,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
    Refused,
)

from polyhal.backends.common.cuda_driver import NULL, ffi

if TYPE_CHECKING:
    from emulated_machine import Machine


class DeviceFunctions:
    """The driver's functions for errors, devices and contexts."""

    def __init__(self, machine: Machine, version: int) -> None:
        self._machine = machine
        self._version = version
        self._words = {status: [ffi.new("char[]", word.encode()) for word in words] for status, words in NAMES.items()}

    def cuInit(self, flags: int) -> None:
        if flags:
            raise Refused(INVALID_VALUE, f"flags {flags}")

    def cuDriverGetVersion(self, version: Any) -> None:
        version[0] = self._version

    def cuGetErrorName(self, status: int, name: Any) -> None:
        self._word(status, 0, name)

    def cuGetErrorString(self, status: int, text: Any) -> None:
        self._word(status, 1, text)

    def _word(self, status: int, place: int, out: Any) -> None:
        if status not in self._words:
            out[0] = NULL
            raise Refused(INVALID_VALUE, f"there is no status {status}")
        out[0] = self._words[status][place]

    def cuDeviceGetCount(self, count: Any) -> None:
        count[0] = len(self._machine.devices)

    def cuDeviceGet(self, device: Any, ordinal: int) -> None:
        device[0] = self._machine.device(ordinal).ordinal

    def cuDeviceGetByPCIBusId(self, device: Any, address: Any) -> None:
        text = ffi.string(address).decode().lower()
        found = [d.ordinal for d in self._machine.devices if d.address.lower() == text]
        if not found:
            raise Refused(INVALID_DEVICE, f"there is no device at {text}")
        device[0] = found[0]

    def cuDeviceGetName(self, name: Any, length: int, device: int) -> None:
        _write(name, length, self._machine.device(device).name)

    def cuDeviceGetPCIBusId(self, address: Any, length: int, device: int) -> None:
        _write(address, length, self._machine.device(device).address)

    def cuDeviceTotalMem_v2(self, nbytes: Any, device: int) -> None:
        nbytes[0] = self._machine.device(device).pool.capacity

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> None:
        facts = self._machine.device(device).facts
        if attribute not in facts:
            raise Refused(INVALID_VALUE, f"the emulated device has no attribute {attribute}")
        value[0] = facts[attribute]

    def cuDeviceCanAccessPeer(self, able: Any, device: int, peer: int) -> None:
        one, other = self._machine.device(device), self._machine.device(peer)
        able[0] = self._machine.peers and one is not other

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:
        found = self._machine.device(device).context
        if found.lost:
            raise Refused(found.lost, f"{found.device.name} was lost")
        found.retained += 1
        context[0] = found.handle

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        found = self._machine.device(device).context
        if not found.retained:
            raise Refused(INVALID_CONTEXT, f"the context of {found.device.name} is not retained")
        found.retained -= 1

    def cuCtxPushCurrent_v2(self, context: Any) -> None:
        self._machine.stack.append(self._machine.context(context))

    def cuCtxPopCurrent_v2(self, context: Any) -> None:
        if not self._machine.stack:
            raise Refused(INVALID_CONTEXT, "no context is current on this thread")
        popped = self._machine.stack.pop()
        if context != NULL:
            context[0] = popped.handle

    def cuCtxGetCurrent(self, context: Any) -> None:
        context[0] = self._machine.stack[-1].handle if self._machine.stack else NULL

    def cuCtxSetCurrent(self, context: Any) -> None:
        """Replace the current context."""
        del self._machine.stack[-1:]
        if context != NULL:
            self._machine.stack.append(self._machine.context(context))

    def cuCtxSynchronize(self) -> None:
        context = self._machine.current()
        context.finish()
        if context.lost:
            raise Refused(context.lost, f"{context.device.name} was lost")

    def cuCtxEnablePeerAccess(self, peer: Any, flags: int) -> None:
        context, other = self._machine.current(), self._machine.context(peer)
        if not self._machine.peers or other is context or flags:
            raise Refused(PEER_ACCESS_UNSUPPORTED, f"{context.device.name} cannot access {other.device.name}")
        if other in context.peers:
            raise Refused(PEER_ACCESS_ALREADY_ENABLED, f"{context.device.name} accesses {other.device.name} already")
        context.peers.add(other)


def _write(out: Any, length: int, text: str) -> None:
    """Write a string and a final zero, cut to the caller's length."""
    encoded = text.encode()[: length - 1] + b"\0"
    ffi.memmove(out, encoded, len(encoded))
