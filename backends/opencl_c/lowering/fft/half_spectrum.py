"""Half spectra of real numbers after transforms of several passes."""

from __future__ import annotations

import math

from polyhal.backends.common.problems.fft import HalfSpectrum
from polyhal.backends.common.problems.fft_arguments import half_spectrum_arguments
from polyhal.backends.opencl_c.lowering.fft.operands import memory
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch


def launch(runtime: Runtime, step: HalfSpectrum, dtype: DType) -> Launch:
    """Build the launch. Raises KernelBuildError."""
    arguments = half_spectrum_arguments(step, dtype.itemsize)
    return runtime.launch(
        "fft/half_spectrum",
        {"REAL": real_type(dtype)},
        {
            **memory("source", step.source),
            **memory("target", step.target),
            "table": arguments.table,
            "scale": step.scale,
            **arguments.geometry,
        },
        (math.prod(step.outer) * step.length,),
        (runtime.features.group_size,),
    )
