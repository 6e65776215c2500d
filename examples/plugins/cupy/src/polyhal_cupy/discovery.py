"""Discovery of CUDA devices, with install hints if there are none."""

from __future__ import annotations

from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.errors import DeviceUnavailableError, message

_INSTALL_CUPY = "pip install 'polyhal-cupy[cuda13]', or 'polyhal-cupy[cuda12]' for a driver that stops at CUDA 12"
_INSTALL_DRIVER = "install NVIDIA's driver for this card, or check CUDA_VISIBLE_DEVICES"


def probe() -> list[DeviceInfo]:
    """Return all CUDA devices. Raises RuntimeError with install hints in its notes if there are none."""
    runtime = _runtime()
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise _failure(f"CuPy finds no CUDA device: {error}", _INSTALL_DRIVER) from error
    return [describe(i) for i in range(count)]


def select(selector: str) -> int:
    """Return the number of the device for `selector`. Raises DeviceUnavailableError with the candidates."""
    devices = probe()
    if selector.isdigit() and int(selector) < len(devices):
        return int(selector)
    listed = ", ".join(f"{d.selector} = {d.name}" for d in devices)
    raise DeviceUnavailableError(
        message(None, f"there is no CUDA device {selector!r}", expected="a number", fix=f"the devices are {listed}")
    )


def describe(number: int) -> DeviceInfo:
    """Return the identity of one device."""
    runtime = _runtime()
    properties: dict[str, Any] = runtime.getDeviceProperties(number)
    driver = runtime.driverGetVersion()
    return DeviceInfo(
        backend="cupy",
        name=properties["name"].decode(),
        type=DeviceType.INTEGRATED_GPU if properties["integrated"] else DeviceType.GPU,
        memory=int(properties["totalGlobalMem"]),
        driver=f"CUDA {driver // 1000}.{driver % 1000 // 10}",
        # The form is equal to the OpenCL backend's, so that both are recognized as one card.
        id=f"pci/{runtime.deviceGetPCIBusId(number).lower()}",
        selector=str(number),
        vendor="NVIDIA",
    )


def _runtime() -> Any:
    try:
        from cupy.cuda import runtime
    except ImportError as error:
        missing = "CuPy is not installed" if error.name == "cupy" else f"CuPy cannot be imported: {error}"
        raise _failure(missing, _INSTALL_CUPY) from error
    return runtime


def _failure(problem: str, fix: str) -> RuntimeError:
    error = RuntimeError(problem)
    error.add_note(fix)
    return error
