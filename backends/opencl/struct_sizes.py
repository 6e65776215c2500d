"""Structs that kernels get by value: how many of their bytes a driver asks for."""

from __future__ import annotations

import numpy as np
import pyopencl as cl


def taken(kernel: cl.Kernel, place: int, layout: np.dtype[np.void]) -> int:
    """Return the size that the kernel takes for a struct: that of the C type, or without the padding at its end.

    OpenCL asks for the size of the type, and most drivers take nothing else or anything. One forgot the padding and refused
    that size, until a later version that refuses the other. No query tells it, so the kernel is given zeros.
    """
    end = max(field[1] + field[0].itemsize for field in (layout.fields or {}).values())
    if end < layout.itemsize:
        try:
            kernel.set_arg(place, bytes(layout.itemsize))
        except cl.Error as error:
            if error.code != cl.status_code.INVALID_ARG_SIZE:
                raise
            return end
    return layout.itemsize
