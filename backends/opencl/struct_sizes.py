"""Sizes that drivers require for structs passed to kernels by value."""

from __future__ import annotations

import numpy as np
import pyopencl as cl


def taken(kernel: cl.Kernel, place: int, layout: np.dtype[np.void]) -> int:
    """Return the size that the driver accepts for a struct argument: the C type's size, or the size without tail padding.

    OpenCL requires the size of the type, and most drivers accept only it, or any size. One driver omitted the padding
    and refused the full size; a later version refuses the other. No query reports it, so the sizes are tried with
    zeros.
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
