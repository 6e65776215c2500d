"""The CUDA devices of this machine, in the order of the driver."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.cuda_driver import LIBRARIES, CudaDriver, CudaError, cuda_driver
from polyhal.backends.cuda.capabilities import kind
from polyhal.backends.cuda.compiler import KernelCompiler, find_compiler
from polyhal.hal.capabilities import DeviceInfo, UnusableDevice
from polyhal.hal.core.settings import env
from polyhal.hal.errors import DeviceUnavailableError, message

_NAME_LENGTH, _ADDRESS_LENGTH = 256, 32
_NO_COMPILER = (
    "install the part of NVIDIA's driver with OpenCL (Debian, Ubuntu: nvidia-opencl-icd or libnvidia-compute-VERSION), "
    "which compiles the kernels"
)


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device of the driver, and the compiler for it; None where only cached programs run."""

    driver: CudaDriver
    ordinal: int
    info: DeviceInfo
    compiler: KernelCompiler | None


def probe() -> list[DeviceInfo | UnusableDevice]:
    """Return the descriptions of all devices; none without NVIDIA's driver, which other GPUs do not need.

    Raises RuntimeError for a driver that does not work.
    """
    found: list[DeviceInfo | UnusableDevice] = []
    driver = _driver()
    if driver is None:
        return found
    for ordinal in range(driver.value("cuDeviceGetCount", "int *")):
        info, problem = describe(driver, ordinal), _compiler(driver, ordinal)
        if isinstance(problem, str) and not _has_cached_programs():
            found.append(UnusableDevice(info.name, f"there is no compiler for its kernels: {problem}", _NO_COMPILER))
        else:
            found.append(info)
    return found


def select(selector: str) -> ListedDevice:
    """Return the device with that index, or the first device whose name contains `selector`.

    Raises DeviceUnavailableError with the candidates.
    """
    try:
        driver = _driver()
    except RuntimeError as error:
        fix = "; ".join(getattr(error, "__notes__", ()))
        raise DeviceUnavailableError(message(None, str(error), fix=fix)) from error
    if driver is None:
        problem = f"there is no NVIDIA driver ({LIBRARIES[0]} was not found)"
        fix = 'for an NVIDIA GPU, install NVIDIA\'s driver; for another GPU, did you mean "gpu"?'
        raise DeviceUnavailableError(message(None, problem, fix=fix))
    infos = [describe(driver, i) for i in range(driver.value("cuDeviceGetCount", "int *"))]
    for ordinal, info in enumerate(infos):
        by_name = not selector.isdigit() and (selector.lower() in info.name.lower() or selector == info.id)
        if selector == info.selector or by_name:
            compiler = _compiler(driver, ordinal)
            return ListedDevice(driver, ordinal, info, None if isinstance(compiler, str) else compiler)
    listed = ", ".join(f"{i.selector} = {i.name}" for i in infos) or "none"
    raise DeviceUnavailableError(
        message(
            None,
            f"there is no CUDA device {selector!r}",
            expected="an index or part of a device's name",
            fix=f"the devices are {listed}",
        )
    )


def describe(driver: CudaDriver, ordinal: int) -> DeviceInfo:
    """Return the description of a device."""
    device = driver.value("cuDeviceGet", "CUdevice *", ordinal)
    version = f"{driver.version // 1000}.{driver.version % 1000 // 10}"
    return DeviceInfo(
        backend="cuda",
        name=driver.text("cuDeviceGetName", _NAME_LENGTH, device),
        type=kind(driver, device),
        memory=int(driver.value("cuDeviceTotalMem_v2", "size_t *", device)),
        driver=f"NVIDIA CUDA {version}",
        id=f"pci/{pci_address(driver, device)}",
        vendor="NVIDIA Corporation",
        selector=str(ordinal),
    )


def pci_address(driver: CudaDriver, device: int) -> str:
    """Return the PCI address of a device, such as `0000:1a:00.0`."""
    domain, bus, rest = driver.text("cuDeviceGetPCIBusId", _ADDRESS_LENGTH, device).lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{rest}"


def _compiler(driver: CudaDriver, device: int) -> KernelCompiler | str:
    return find_compiler(driver, device, pci_address(driver, device))


def _has_cached_programs() -> bool:
    folder = env.cache_dir() / "cuda" / "ptx"
    return not env.no_program_cache() and folder.is_dir() and any(folder.iterdir())


def _driver() -> CudaDriver | None:
    """Return the driver, None if none is installed. Raises RuntimeError, with the remedy as a note, if it does not work."""
    try:
        return cuda_driver()
    except OSError:
        return None
    except CudaError as error:
        problem = RuntimeError(f"NVIDIA's driver does not work: {error}")
        problem.add_note("update NVIDIA's driver, or restart the machine after an update")
        raise problem from error
