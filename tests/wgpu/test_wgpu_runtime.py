"""Memory, transfers, recording, splitting, profiling, discovery and errors."""

from __future__ import annotations

import dataclasses
import gc
import threading
from typing import Any

import numpy as np
import pytest
from native_harness import Harness

from polyhal.backends.common.launching.kernel_arguments import KernelArgumentError
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.wgpu import discovery, encoder, native
from polyhal.backends.wgpu.backend import WGPUBackend, create, open_adapter
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.error_mapping import AdapterErrors
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, DeviceLostError, DeviceUnavailableError, KernelBuildError, OutOfMemoryError
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Feature, features_of


def test_too_large_an_allocation_is_a_typed_error(device: Any) -> None:
    with pytest.raises(OutOfMemoryError, match="MiB"):
        device.backend.allocate(device.backend.capabilities.limits.max_allocation + 4096)


def test_launches_are_recorded_and_submitted_as_one_batch(device: Any) -> None:
    x = device.upload(np.ones(10, np.float32))
    device.backend.synchronize()
    before = device.backend.runtime.encoder.submissions
    for _ in range(encoder.MAX_DISPATCHES - 1):
        device.backend.binary("add", x, x, x)
    assert device.backend.runtime.encoder.submissions == before
    device.backend.flush()
    assert device.backend.runtime.encoder.submissions == before + 1
    device.backend.flush()
    assert device.backend.runtime.encoder.submissions == before + 1
    assert (device.download(x) == 2.0 ** (encoder.MAX_DISPATCHES - 1)).all()


def test_more_groups_than_fit_on_one_axis(device: Any) -> None:
    group = device.backend.features.group_size
    for extra in (0, 1, group):
        size = 65535 * group + extra
        x = device.upload(np.arange(size, dtype=np.uint32) % 251)
        y = device.empty(dtypes.uint8, (size,))
        z = device.empty(dtypes.uint32, (size,))
        device.backend.unary("not", x, z)
        device.backend.copy(x, y)
        np.testing.assert_array_equal(device.download(z), ~(np.arange(size, dtype=np.uint32) % 251))
        np.testing.assert_array_equal(device.download(y), np.arange(size, dtype=np.uint32) % 251)
        for ref in (x, y, z):
            device.backend.deallocate(ref.handle)


@pytest.fixture(scope="module")
def narrow(found: discovery.WGPUAdapter) -> Harness:
    """Open a device with a maximum binding size of 64 KiB."""
    return Harness(open_adapter(found, binding_limit=1 << 16))


def test_elementwise_work_beyond_the_binding_limit_is_split(narrow: Harness, rng: np.random.Generator) -> None:
    a = rng.standard_normal((300, 401)).astype(np.float32)
    b = rng.standard_normal(401).astype(np.float32)
    x, y = narrow.upload(a), narrow.upload(b)
    np.testing.assert_array_equal(narrow.run("add", [x, y], dtypes.float32, a.shape), a + b)
    turned = narrow.view(x, (401, 300), (1, 401))
    np.testing.assert_array_equal(narrow.run("multiply", [turned, 2.0], dtypes.float32, (401, 300)), a.T * 2)
    np.testing.assert_array_equal(narrow.run("less", [x, 0.0], dtypes.bool_, a.shape), a < 0)


def test_a_small_view_of_a_large_buffer(narrow: Harness, rng: np.random.Generator) -> None:
    a = rng.standard_normal((300, 401)).astype(np.float32)
    x = narrow.upload(a)
    for row in (0, 7, 299):
        part = narrow.view(x, (401,), (1,), row * 401)
        np.testing.assert_array_equal(narrow.run("negative", [part], dtypes.float32, (401,)), -a[row])


def test_parameters_through_the_uniform_ring(found: discovery.WGPUAdapter, rng: np.random.Generator) -> None:
    """The path of devices without immediates, with more launches than the ring holds."""
    backend = open_adapter(found)
    plain = Harness(_without_immediates(backend, found))
    data = rng.standard_normal(100).astype(np.float32)
    x = plain.upload(data)
    results = [plain.run("multiply", [x, float(k)], dtypes.float32, (100,)) for k in range(3)]
    for k, result in enumerate(results):
        np.testing.assert_array_equal(result, data * np.float32(k))
    total = plain.upload(np.zeros(100, np.float32))
    for _ in range(700):
        plain.backend.binary("add", total, x, total)
    np.testing.assert_allclose(plain.download(total), 700 * data, rtol=1e-3)


def _without_immediates(backend: WGPUBackend, found: discovery.WGPUAdapter) -> WGPUBackend:
    from polyhal.backends.wgpu.encoder import CommandEncoder
    from polyhal.backends.wgpu.shader import PipelineCache

    runtime = backend.runtime
    features: WGPUFeatures = dataclasses.replace(runtime.features, immediates=0)
    runtime.features = features
    runtime.encoder = CommandEncoder(runtime.device, AdapterErrors(found.info.name))
    runtime.pipelines = PipelineCache(runtime.device, features, runtime.encoder.ring.layout, found.info.name)
    return backend


def test_public_and_native_calls_agree(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = device.upload(np.arange(100, dtype=np.float32))
    fast = device.run("multiply", [x, 3.0], dtypes.float32, (100,))
    device.backend.synchronize()
    monkeypatch.setattr(native, "binding", lambda *_: None)
    runtime = device.backend.runtime
    assert native.waiter(runtime.device) is None
    monkeypatch.setattr(runtime, "_wait", runtime._read_fence)
    monkeypatch.setattr(runtime.encoder, "_encoding", native.encoding(runtime.device))
    monkeypatch.setattr(runtime.encoder, "_record_all", native.recorder(runtime.encoder.ring))
    result = device.run("multiply", [x, 3.0], dtypes.float32, (100,))
    device.backend.synchronize()
    np.testing.assert_array_equal(result, fast)


def test_threads_may_launch_at_once(device: Any) -> None:
    failures: list[str] = []

    def work(k: int) -> None:
        x = device.upload(np.full(1000, k, np.float32))
        for _ in range(50):
            out = device.run("multiply", [x, 2.0], dtypes.float32, (1000,))
            if not (out == 2 * k).all():
                failures.append(f"thread {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_shader_that_does_not_compile_shows_its_text(device: Any) -> None:
    definitions = {"COMPUTE": ["let r2 = nonsense;"]}
    problem = r"(?s)'pointwise_elementwise' does not compile.*\n +\d+ \| .*nonsense"
    with pytest.raises(KernelBuildError, match=problem) as caught:
        device.backend.runtime.launch("pointwise/elementwise", definitions, {}, 1)
    assert "nonsense" in caught.value.gist


def test_a_launch_with_an_argument_of_no_parameter_is_an_error(device: Any) -> None:
    args = {"a0": Tensor(0), "a1": Tensor(1), "a2": Tensor(2), "inner": 1, "chunk": 1, "chunks": 1, "items": 1}
    with pytest.raises(
        KernelArgumentError, match=r"\[pointwise_elementwise\] the argument 'chunk' is not a parameter .* chunks; see"
    ):
        device.backend.runtime.launch("pointwise/elementwise", {"GROUP": 32}, args, 1)


def test_a_refused_launch_names_its_kernel(device: Any) -> None:
    """Validation reports the whole submission; the error names the launch that caused it."""
    recorder = device.backend.runtime.encoder
    x = device.upload(np.ones(10, np.float32))
    device.backend.binary("add", x, x, x)
    args = {"words": Workspace(0), "word": 0, "mask": 0, "bits": 0}
    launch = device.backend.runtime.launch("lib/patch", {}, args, 1)
    launch._grid = (65536, 1)
    launch(device.backend.runtime.memory.allocate(4))
    with pytest.raises(BackendError, match=r"\[lib_patch\] launching 65536 x 1 groups"):
        recorder.flush()
    device.backend.binary("add", x, x, x)
    assert (device.download(x) >= 2).all()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Parent device is lost", DeviceLostError),
        ("Not enough memory left.", OutOfMemoryError),
        ("Validation Error", BackendError),
    ],
)
def test_native_errors_become_typed_ones(words: str, expected: type[Exception]) -> None:
    error = AdapterErrors("a device").translate(RuntimeError(words), "softmax", "submitting 3 launches")
    assert type(error) is expected
    assert str(error).startswith(f"[softmax] submitting 3 launches failed with RuntimeError: {words}")


def test_launches_are_named_after_their_shaders(device: Any) -> None:
    x, total = contiguous(dtypes.float32, (8, 40)), contiguous(dtypes.float32, ())
    lower = device.backend.lower
    assert lower("softmax", (x,), (x,), {"axis": -1}).name == "rowwise_softmax"
    assert lower("log_softmax", (x,), (x,), {"axis": -1}).name == "rowwise_softmax"
    assert lower("sum_of_squares", (x, x), (total,), {}).name == "optim_sum_of_squares, reduction_rows"


def test_profiling_releases_its_timestamps(device: Any) -> None:
    if not features_of(device.backend) & Feature.PROFILING:
        pytest.skip("no timestamps on this device")
    x = device.upload(np.ones(1 << 16, np.float32))
    device.backend.start_profiling()
    device.backend.unary("exp", x, x)
    assert len(device.backend.stop_profiling()) == 1
    assert not device.backend.runtime.encoder.timestamps


def test_tensors_that_die_in_a_cycle_leave_usable_memory(found: discovery.WGPUAdapter) -> None:
    """A reference cycle finalizes a tensor and its buffer in any order; the pool then reuses the memory."""
    device = Device.opened("wgpu:cycle", open_adapter(found))
    for _ in range(3):
        holder: list[Any] = [device.upload(np.ones(1000, np.float32), dtypes.float32) for _ in range(4)]
        holder.append(holder)
        del holder
        gc.collect()
    _, ref = device.upload(np.arange(1000, dtype=np.float32), dtypes.float32)
    np.testing.assert_array_equal(device.download(ref), np.arange(1000, dtype=np.float32))


def test_an_unknown_device_lists_the_known_ones() -> None:
    if not discovery.devices():
        pytest.skip("no adapter")
    with pytest.raises(DeviceUnavailableError, match="no wgpu device matches 'nonsense'; expected one of 0 = "):
        create("nonsense")


def test_one_physical_device_is_listed_once() -> None:
    listed = [f.info.id for f in discovery.devices()]
    assert len(listed) == len(set(listed))
    assert len(discovery.devices(every_api=True)) >= len(listed)


def test_software_rasterisers_are_cpus() -> None:
    for f in discovery.devices(every_api=True):
        if "llvmpipe" in f.info.name.lower():
            assert f.info.type == "cpu"


def test_a_quirk_is_forced_for_a_reopened_device(device: Any) -> None:
    forced = device.with_quirk(loop_limit=1 << 12, fixed_subgroup_size=8).backend
    assert forced.features.quirks.loop_limit == 1 << 12
    assert "loop_limit = 4096" in forced.capabilities.quirks
    with pytest.raises(TypeError, match="no_such_quirk"):
        device.with_quirk(no_such_quirk=True)
