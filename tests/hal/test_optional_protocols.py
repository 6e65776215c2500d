"""Every member of every optional protocol is called by the framework: there are no unused members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from recorded_calls import RecordedCalls, RecordsCalls

import polyhal
from polyhal import optim
from polyhal.backends.common.launching.completion import Finished
from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.data import DataLoader
from polyhal.hal.device import Device
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import (
    API_VERSION,
    PROTOCOLS,
    ComputeBackend,
    Declined,
    Feature,
    GraphProgram,
    Handle,
    InputSpec,
    Launch,
    SimpleLaunch,
    UserKernel,
)
from polyhal.hal.system.discovery.validation import methods, validate_backend


class FinishedEvent:
    """The event of completed work, because NumPy computes at once."""

    def wait(self) -> None:
        """No-op: the work is complete."""

    def is_complete(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        callback(None)


class FullBackend(RecordsCalls, NumpyBackend):
    """NumPy with every optional protocol, which records the called members."""

    def __init__(self) -> None:
        super().__init__(create("").info)
        self.capabilities = replace(self.capabilities, unified_memory=False)
        self.called: set[str] = set()

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        self.called.add("lower")
        launch = super().lower(op, inputs, outputs, params)
        return launch if isinstance(launch, Declined) else SimpleLaunch(op, partial(self.enqueue, op, launch))

    def compile_kernel(self, kernel: UserKernel, *args: Any) -> Launch | Declined:
        self.called.add("compile_kernel")
        return super().compile_kernel(kernel, *args)

    def claim_op(self, *args: Any) -> None:
        self.called.add("claim_op")

    def compile_graph(self, graph: GraphProgram) -> Declined:
        self.called.add("compile_graph")
        return Declined("its ops run by launches")

    def copy(self, src: Ref, out: Ref) -> None:
        self.enqueue("copy", super().copy, src, out)

    def fill(self, value: bool | int | float, out: Ref) -> None:
        self.enqueue("fill", super().fill, value, out)

    def flush(self) -> None:
        self.called.add("flush")

    def allocate_pinned(self, nbytes: int) -> memoryview:
        self.called.add("allocate_pinned")
        return memoryview(bytearray(nbytes))

    def copy_to_device_async(self, src: memoryview, dst: Handle, offset: int) -> FinishedEvent:
        self.called.add("copy_to_device_async")
        self.copy_to_device(src, dst, offset)
        return FinishedEvent()

    def copy_from_device_async(self, src: Handle, offset: int, dst: memoryview) -> FinishedEvent:
        self.called.add("copy_from_device_async")
        self.copy_from_device(src, offset, dst)
        return FinishedEvent()

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        self.called.add("can_copy_from")
        return super().can_copy_from(peer)

    def copy_from_peer(self, *args: Any) -> Finished:
        self.called.add("copy_from_peer")
        return super().copy_from_peer(*args)

    def import_memory(self, address: int, nbytes: int) -> Handle:
        self.called.add("import_memory")
        return super().import_memory(address, nbytes)

    def is_lost(self) -> bool:
        self.called.add("is_lost")
        return False

    def start_profiling(self) -> None:
        self.called.add("start_profiling")

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        self.called.add("stop_profiling")
        return []

    def record(self, calls: Sequence[Callable[[], None]]) -> RecordedCalls:
        self.called.add("record")
        return super().record(calls)

    def open_stream(self) -> Any:
        self.called.add("open_stream")
        return object()

    def switch_stream(self, stream: Any) -> Any:
        self.called.add("switch_stream")
        return None

    def mark(self) -> FinishedEvent:
        self.called.add("mark")
        return FinishedEvent()

    def wait_for(self, event: FinishedEvent) -> None:
        self.called.add("wait_for")


def _softmax(device: Device) -> None:
    x = polyhal.ones((2, 4), device=device)
    assert polyhal.softmax(x).tolist() == [[0.25] * 4] * 2


def _optimizer_step(device: Device) -> None:
    weight = polyhal.ones((3,), device=device, requires_grad=True)
    (weight * 2).sum().backward()
    optim.SGD([weight], lr=0.1).step()


def _captured_step(device: Device) -> None:
    step = polyhal.jit(lambda x: polyhal.softmax(x), warm_up=False)
    for n in (1.0, 2.0):
        x = polyhal.tensor([[n, n]], device=device)
        assert step(x).tolist() == [[0.5, 0.5]]


def _loading(device: Device) -> None:
    data = [np.full(3, i, np.float32) for i in range(6)]
    batches = [batch.tolist() for batch in DataLoader(data, 2, device=device)]
    assert batches == [[[i] * 3, [i + 1] * 3] for i in (0, 2, 4)]


def _stream(device: Device) -> None:
    with device.stream():
        assert (polyhal.ones((2,), device=device) + 1).tolist() == [2, 2]


def _reading(device: Device) -> None:
    assert polyhal.ones((2,), device=device).numpy_async().result().tolist() == [1, 1]


def _profile(device: Device) -> None:
    with polyhal.profile(device):
        _softmax(device)


def _transfer(device: Device) -> None:
    x = polyhal.tensor([[1.0, 2.0], [3.0, 4.0]], device="numpy")
    assert x.permute((1, 0)).to(device).tolist() == [[1, 3], [2, 4]]


def _loss(device: Device) -> None:
    assert not device.is_lost


def _shared_memory(device: Device) -> None:
    memory = np.zeros(3, np.float32)
    x = polyhal.from_dlpack(memory, device=device, copy=False)
    x += 1
    assert memory.tolist() == [1, 1, 1]


def _user_kernel(device: Device) -> None:
    double = polyhal.kernel("double", numpy=lambda x: 2 * x)
    assert double(polyhal.ones((2,), device=device)).tolist() == [2, 2]


CALLERS: dict[Feature, Callable[[Device], None]] = {
    Feature.LOWERING: _softmax,
    Feature.FLUSH: _optimizer_step,
    Feature.PINNED_MEMORY: _loading,
    Feature.PROFILING: _profile,
    Feature.COMMAND_BUFFERS: _captured_step,
    Feature.STREAMS: _stream,
    Feature.ASYNC_READ: _reading,
    Feature.USER_KERNELS: _user_kernel,
    Feature.LOSS_DETECTION: _loss,
    Feature.PEER_COPY: _transfer,
    Feature.MEMORY_IMPORT: _shared_memory,
    Feature.GRAPHS: _captured_step,
}
"""Programs that make the framework call all members, by optional protocol."""


def test_the_backend_implements_every_protocol() -> None:
    backend = FullBackend()
    validate_backend(backend, BackendSpec("numpy", list, create, api_version=API_VERSION))
    features = Device.opened("full", backend).features
    assert all(feature in features for feature in PROTOCOLS)


@pytest.mark.parametrize("feature", PROTOCOLS, ids=lambda f: f.name)
def test_every_member_has_a_caller(feature: Feature) -> None:
    backend = FullBackend()
    CALLERS[feature](Device.opened("full", backend))
    assert set(methods(PROTOCOLS[feature])) <= backend.called
