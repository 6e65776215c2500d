"""Errors of the CUDA backend: typed, with the device's name and a remedy; and the loss of a device."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation
from emulated_driver import EmulatedLibrary
from emulated_processor import Processor

import polyhal as ph
from polyhal.backends.common.cuda_driver import CudaDriver, CudaError
from polyhal.backends.cuda import backend as cuda_backend
from polyhal.backends.cuda import compiler, discovery
from polyhal.backends.cuda.self_check import self_check
from polyhal.hal.capabilities import UnusableDevice
from polyhal.hal.errors import DeviceLostError, DeviceUnavailableError, KernelBuildError, OutOfMemoryError


@pytest.fixture
def found(cores: Processor, monkeypatch: pytest.MonkeyPatch) -> EmulatedLibrary:
    """Two devices that discovery finds."""
    library = EmulatedLibrary(cores, 2)
    monkeypatch.setattr(discovery, "cuda_driver", lambda: CudaDriver(library))
    return library


def test_a_lost_device_is_reported_by_every_later_call(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    x = harness.upload(np.ones(100, np.float32))
    step = backend.record([lambda: backend.fill(1.0, x)])
    step.submit([])
    event = backend.mark()
    assert not backend.is_lost()
    emulation.library.lose()
    calls: list[Any] = [
        backend.synchronize,
        lambda: harness.download(x),
        lambda: harness.upload(np.ones(3, np.float32)),
        lambda: backend.allocate(64),
        lambda: backend.fill(2.0, x),
        lambda: step.submit([]),
        backend.mark,
        event.wait,
        backend.memory_available,
        backend.open_stream,
        lambda: backend.deallocate(x.handle),
        lambda: backend.copy_from_device_async(x.handle, 0, memoryview(bytearray(400))).wait(),
    ]
    for call in calls:
        with pytest.raises(DeviceLostError) as caught:
            call()
        assert "out of bounds; its tensors are gone: open it again with Device(name)" in str(caught.value)
        assert "(on Emulated GPU 0)" in str(caught.value)
    assert backend.is_lost()
    assert event.is_complete()  # of work that failed


@pytest.mark.parametrize(
    ("status", "text"), [(719, "a kernel has crashed"), (999, "the driver reports an unknown error")]
)
def test_other_losses_name_their_cause(emulation: Emulation, status: int, text: str) -> None:
    emulation.library.lose(status=status)
    with pytest.raises(
        DeviceLostError, match=rf"waiting for the device failed with .* \(cuStreamSynchronize\): {text}"
    ):
        emulation.backend.synchronize()


def test_objects_of_a_lost_device_are_collected_in_silence(
    emulation: Emulation, capsys: pytest.CaptureFixture[str]
) -> None:
    device = emulation.device
    x = ph.tensor(np.ones((4, 5), np.float32), device=device)
    result = ph.jit(lambda v: (v.T @ v).sum(0))(x)
    emulation.library.lose()
    with pytest.raises(DeviceLostError):
        result.numpy()
    del x, result
    emulation.backends.clear()
    del emulation.__dict__["device"], device
    gc.collect()
    assert capsys.readouterr().err == ""


def test_a_device_that_was_lost_leaves_the_other_one_usable(emulate: Any) -> None:
    emulation = emulate(2)
    one, other = emulation.backends
    emulation.library.lose(0)
    with pytest.raises(DeviceLostError):
        one.synchronize()
    handle = other.allocate(16)
    other.copy_to_device(memoryview(bytes(range(16))), handle, 0)
    out = bytearray(16)
    other.copy_from_device(handle, 0, memoryview(out))
    assert out == bytes(range(16))


def test_errors_in_the_text_of_a_kernel_show_its_line(emulation: Emulation) -> None:
    text = "\n".join(
        [f"// line {n}" for n in range(1, 20)] + ["__kernel void f(__global float *x) { x[0] = missing; }"]
    )
    with pytest.raises(KernelBuildError) as caught:
        emulation.backend.runtime.programs.build("broken.cl", text)
    assert re.search(r"> broken\.cl:\d+ *\| __kernel void f.*missing", str(caught.value))
    assert "undeclared identifier" in str(caught.value)


def test_an_old_driver_is_refused(cores: Processor) -> None:
    with pytest.raises(CudaError, match=r"11080.* too old, CUDA 12\.0 is needed"):
        CudaDriver(EmulatedLibrary(cores, version=11080))


def test_devices_are_listed_with_their_names_and_addresses(
    found: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "find_compiler", lambda *args: object())
    infos = discovery.probe()
    assert [i.name for i in infos] == ["Emulated GPU 0", "Emulated GPU 1"]
    assert [getattr(i, "id", "") for i in infos] == ["pci/0000:01:00.0", "pci/0000:02:00.0"]
    assert discovery.select("gpu 1").ordinal == 1
    with pytest.raises(DeviceUnavailableError, match=r"no CUDA device '7'.*0 = Emulated GPU 0, 1 = Emulated GPU 1"):
        discovery.select("7")


def test_without_a_compiler_a_device_is_unusable_until_programs_are_cached(
    found: EmulatedLibrary, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "PLATFORM", "a platform that no driver has")
    (first, _) = discovery.probe()
    assert isinstance(first, UnusableDevice)
    assert "OpenCL driver" in first.reason
    assert "which compiles the kernels" in first.fix
    folder = tmp_path / "cuda" / "ptx"
    folder.mkdir(parents=True)
    (folder / "program.bin").write_bytes(b"")
    (first, _) = discovery.probe()
    assert not isinstance(first, UnusableDevice)


def test_a_driver_that_does_not_work_is_reported_with_the_remedy(
    found: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.refused["cuInit"] = 999
    with pytest.raises(RuntimeError, match=r"NVIDIA's driver does not work: cuInit failed with") as caught:
        discovery.probe()
    assert "update NVIDIA's driver" in caught.value.__notes__[0]
    with pytest.raises(DeviceUnavailableError, match="update NVIDIA's driver"):
        cuda_backend.create("0")


def test_a_device_that_computes_wrong_numbers_is_refused(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    self_check(emulation.backend)
    read = type(emulation.backend).copy_from_device

    def wrong(backend: Any, src: Any, offset: int, dst: memoryview) -> None:
        read(backend, src, offset, dst)
        dst[0] ^= 1

    monkeypatch.setattr(type(emulation.backend), "copy_from_device", wrong)
    with pytest.raises(DeviceUnavailableError, match=r"self-check failed: .*wrong.*`opencl`.*Emulated GPU 0"):
        self_check(emulation.backend)


@pytest.mark.parametrize("function", ["cuDevicePrimaryCtxRetain", "cuStreamCreate"])
def test_a_device_that_cannot_be_opened(emulation: Emulation, function: str) -> None:
    emulation.library.refused[function] = 2
    with pytest.raises(
        OutOfMemoryError, match=rf"opening the device failed with CUDA_ERROR_OUT_OF_MEMORY \({function}\)"
    ):
        emulation.open()
