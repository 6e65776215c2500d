"""Vectors of neighbouring elements in kernels that compute one element per work-item on GPUs."""

from __future__ import annotations

import math

from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType


def vector_of(runtime: Runtime, dtype: DType, length: int) -> int:
    """Return how many elements of lines of `length` a work-item moves at a time: a vector on processors, one on GPUs.

    Work-items of processors compute one after another where their compiler does not join them in vectors, as it does not if
    they call functions. A vector ends within its line.
    """
    if not runtime.features.cpu or runtime.features.vector_width < 4:
        return 1
    return math.gcd(length, max(2, runtime.features.vector_width * 4 // max(4, dtype.itemsize)))
