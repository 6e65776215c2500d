"""Self-check of an opened device: kernels that depend on the rewriting of PTX must compute right results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import DeviceUnavailableError, PolyhalError, message
from polyhal.hal.layout import Ref, contiguous

if TYPE_CHECKING:
    from polyhal.backends.cuda.backend import CudaBackend

_ROWS, _COLUMNS = 37, 1025
"""A shape whose reduction needs several groups, each with barriers and local memory."""


def self_check(backend: CudaBackend) -> None:
    """Sum rows of small integers, which is exact in any order. Raises DeviceUnavailableError for a wrong result."""
    values = np.arange(_ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS) % 97
    x, out = contiguous(dtypes.float32, values.shape), contiguous(dtypes.float32, (_ROWS,))
    result = np.empty(_ROWS, np.float32)
    try:
        memory = [backend.allocate(s.nbytes) for s in (x, out)]
        backend.copy_to_device(values.data.cast("B"), memory[0], 0)
        backend.reduce("sum", Ref(memory[0], x, 0), Ref(memory[1], out, 0))
        backend.copy_from_device(memory[1], 0, result.data.cast("B"))
        for handle in memory:
            backend.deallocate(handle)
    except PolyhalError as error:
        raise _refused(backend, str(error)) from error
    if not np.array_equal(result, values.sum(1)):
        raise _refused(backend, "sums of rows are wrong")


def _refused(backend: CudaBackend, problem: str) -> DeviceUnavailableError:
    fix = "use the card by OpenCL, `opencl`, and report this with the output of `polyhal doctor`"
    return DeviceUnavailableError(message(None, f"the self-check failed: {problem}", fix=fix, device=backend.info.name))
