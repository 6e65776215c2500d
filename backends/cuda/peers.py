"""Copies between CUDA devices, by the driver: over NVLink or PCIe where the cards reach each other, else through the host."""

from __future__ import annotations

from polyhal.backends.cuda.events import CudaRead
from polyhal.backends.cuda.runtime import CudaRuntime
from polyhal.hal.protocol import CompletionEvent


class CudaPeerCopies:
    """Copies of one device from its peers."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime

    def copy(self, peer: CudaRuntime, source: int, target: int, nbytes: int) -> CompletionEvent:
        """Start a copy between addresses, after and before the work of both streams (see `SupportsPeerCopy`)."""
        own = self._runtime
        stream, sender = own.streams.current(), peer.streams.current()
        action = f"copying {nbytes} bytes from {peer.info.name}"
        if sender is not stream:
            with peer.calling(action):
                sent = sender.mark()
            with own.calling(action):
                own.driver.call("cuStreamWaitEvent", stream.handle, sent.handle, 0)
        with own.calling(action):
            own.driver.call(
                "cuMemcpyPeerAsync",
                target,
                own.context.handle,
                source,
                peer.context.handle,
                nbytes,
                stream.handle,
            )
            done = stream.mark()
        if sender is not stream:
            with peer.calling(action):
                peer.driver.call("cuStreamWaitEvent", sender.handle, done.handle, 0)
        return CudaRead(own.context, own.errors, done, stream.completer)
