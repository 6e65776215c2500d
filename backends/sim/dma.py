"""The DMA engines: transfers between host and device, within the device, and to other devices, with checksums."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from polyhal.backends.sim.address_space import PageFaultError
from polyhal.backends.sim.faults import FaultKind
from polyhal.backends.sim.packets import Copy, CopyDirection
from polyhal.backends.sim.timing import Engine, local_copy_ns, transfer_ns
from polyhal.hal.errors import BackendError, TransferError, message

if TYPE_CHECKING:
    from polyhal.backends.sim.gpu import SimulatedGPU
    from polyhal.backends.sim.mirror import OpenCLMirror

TRANSFERS = {
    CopyDirection.HOST_TO_DEVICE: "host to device",
    CopyDirection.DEVICE_TO_HOST: "device to host",
    CopyDirection.DEVICE_TO_DEVICE: "device to device",
    CopyDirection.DEVICE_TO_PEER: "device to peer",
}
"""Names of transfers in logs and fault plans."""


class DmaController:
    """The DMA engines of one device."""

    def __init__(self, gpu: SimulatedGPU) -> None:
        self._gpu = gpu
        self._engines = [Engine(f"DMA {i}") for i in range(gpu.profile.dma_engines)]

    def engine(self, direction: CopyDirection) -> Engine:
        """Return the engine for a direction. With two engines, each direction of the link has its own."""
        way = direction if direction is not CopyDirection.DEVICE_TO_DEVICE else 0
        return self._engines[way % len(self._engines)]

    def duration(self, packet: Copy) -> int:
        """Return the duration of a transfer in nanoseconds."""
        gpu = self._gpu
        match packet.direction:
            case CopyDirection.DEVICE_TO_DEVICE:
                ns = local_copy_ns(gpu.profile, packet.nbytes)
            case CopyDirection.DEVICE_TO_PEER:
                ns = transfer_ns(gpu.profile.peer_link, packet.nbytes)
            case _:
                ns = transfer_ns(gpu.profile.link, packet.nbytes)
        fault = gpu.faults.strike(FaultKind.SLOW_LINK, packet.header.sequence, TRANSFERS[packet.direction])
        return round(ns * fault.factor) if fault else ns

    def move(self, packet: Copy) -> tuple[int, BackendError | None]:
        """Copy the bytes.

        Returns the CRC-32 of the source, and an error if the bytes at a device destination differ from it.
        """
        gpu, direction = self._gpu, packet.direction
        source, target = _bytes(gpu, packet.source, packet.nbytes), self._target(packet)
        if target is None:
            return 0, None
        target[:] = 0 if source is None else source
        problem = self._mirrored(packet, gpu.mirror) if gpu.mirror is not None else None
        if direction is CopyDirection.DEVICE_TO_DEVICE:
            return 0, problem
        sent = packet.crc32 if direction is CopyDirection.HOST_TO_DEVICE else zlib.crc32(target.data)
        if gpu.faults.strike(FaultKind.CORRUPT_TRANSFER, packet.header.sequence, TRANSFERS[direction]):
            target[packet.nbytes // 2] ^= 1
        if direction is not CopyDirection.DEVICE_TO_HOST and zlib.crc32(target.data) != sent:
            text = f"the transfer of {packet.nbytes} bytes to the device arrived with a wrong checksum"
            problem = TransferError(message(None, text, fix="write it again", device=gpu.name))
        return sent, problem

    def ends(self, packet: Copy) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the bytes at the source and at the destination; None on a device without storage."""
        return _bytes(self._gpu, packet.source, packet.nbytes), self._target(packet)

    def _target(self, packet: Copy) -> np.ndarray | None:
        """Return the destination; None on a device without storage. Raises PageFaultError."""
        if packet.direction is not CopyDirection.DEVICE_TO_PEER:
            return _bytes(self._gpu, packet.destination, packet.nbytes)
        peer = self._gpu.peers.get(packet.peer)
        if peer is None:
            raise PageFaultError(packet.destination, f"device {packet.peer} of the machine is switched off")
        return _bytes(peer, packet.destination, packet.nbytes)

    def _mirrored(self, packet: Copy, mirror: OpenCLMirror) -> BackendError | None:
        """Perform a copy on the real buffers too. Returns an error if a copy back to the host differs there."""
        find, n = self._gpu.memory.find, packet.nbytes
        match packet.direction:
            case CopyDirection.HOST_TO_DEVICE:
                mirror.write(*find(packet.destination, n), n)
            case CopyDirection.DEVICE_TO_DEVICE:
                mirror.copy(*find(packet.source, n), *find(packet.destination, n), n)
            case _:
                return mirror.difference(*find(packet.source, n), n)
        return None


def _bytes(gpu: SimulatedGPU, address: int, nbytes: int) -> np.ndarray | None:
    """Return a range of host or device memory; None on a device without storage. Raises PageFaultError."""
    if address in gpu.pinned_memory:
        return np.frombuffer(gpu.pinned_memory.at(address), np.uint8, nbytes)
    allocation, offset = gpu.memory.find(address, nbytes)
    return None if allocation.storage is None else allocation.storage[offset : offset + nbytes]
