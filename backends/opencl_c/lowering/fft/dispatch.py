"""Fourier transforms along any axes: steps of backends/common/problems/fft.py, each a launch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import as_one
from polyhal.backends.common.problems.fft import HalfSpectrum, Step
from polyhal.backends.common.problems.fft_axes import fourier_plan
from polyhal.backends.opencl_c.lowering.fft import cpu_lanes, half_spectrum, local_stages
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]


def _lower(op: str, runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    dtype = outputs[0].dtype
    if dtype.name == "float64" and not runtime.features.fp64:
        return Declined("the device does not compute in float64")
    limits = (cpu_lanes if runtime.features.cpu else local_stages).limits(runtime.features, dtype)
    plan = fourier_plan(op, inputs, outputs, params, limits)
    if isinstance(plan, Declined):
        return plan
    launches = [_launch(runtime, step, dtype) for step in plan.steps]
    return as_one(launches, tuple(plan.workspace))


def _launch(runtime: Runtime, step: Step, dtype: DType) -> Launch:
    if isinstance(step, HalfSpectrum):
        return half_spectrum.launch(runtime, step, dtype)
    if runtime.features.cpu:
        return cpu_lanes.launch(runtime, step, dtype)
    return local_stages.launch(runtime, step, dtype)


LOWERINGS = {
    "fourier": partial(_lower, "fourier"),
    "real_fourier": partial(_lower, "real_fourier"),
    "half_fourier": partial(_lower, "half_fourier"),
}
