"""Device information that pyopencl cannot decode."""

from __future__ import annotations

import ctypes
from typing import Any


def raw_info(device: Any, parameter: int, size: int) -> bytes | None:
    """Return the answer of clGetDeviceInfo, up to `size` bytes; None if the driver refuses or cannot be called."""
    library = loader()
    address = getattr(device, "int_ptr", None)
    if library is None or address is None:
        return None
    buffer = ctypes.create_string_buffer(size)
    status = library.clGetDeviceInfo(ctypes.c_void_p(address), parameter, size, buffer, None)
    return buffer.raw if status == 0 else None


def loader() -> Any:
    """Return the OpenCL loader that pyopencl's extension module is linked to; None if its symbols are not accessible."""
    from pyopencl import _cl

    try:
        library = ctypes.CDLL(_cl.__file__)
        library.clGetDeviceInfo.restype = ctypes.c_int
    except (OSError, AttributeError):
        return None
    return library
