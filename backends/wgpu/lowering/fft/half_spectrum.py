"""Half spectra of real numbers after transforms of several passes."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.fft import HalfSpectrum
from polyhal.backends.common.problems.fft_arguments import half_spectrum_arguments
from polyhal.backends.wgpu.lowering.fft.arguments import bound
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Launch


def launch(runtime: Runtime, step: HalfSpectrum) -> Launch:
    """Build the launch. Raises KernelBuildError."""
    rows, size = math.prod(step.outer), runtime.features.group_size
    arguments = half_spectrum_arguments(step, 4)
    return runtime.launch(
        "fft/half_spectrum",
        {"HALF_TARGET": 1, "GROUP": size},
        bound(step.source, step.target, arguments, rows, step.scale),
        ceil_div(rows * step.length, size),
    )
