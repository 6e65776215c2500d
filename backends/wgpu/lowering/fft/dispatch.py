"""Fourier transforms along any axes: steps of backends/common/problems/fft.py, each a launch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems.fft import HalfSpectrum, Step
from polyhal.backends.common.problems.fft_axes import fourier_plan
from polyhal.backends.wgpu.lowering.fft import half_spectrum, local_stages
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]


def _lower(op: str, runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    if outputs[0].dtype is not dtypes.float32:
        return Declined("the kernels compute in float32")
    if too_large(runtime, *outputs, *(s for s in inputs if isinstance(s, Spec))):
        return OPERAND_TOO_LARGE
    plan = fourier_plan(op, inputs, outputs, params, local_stages.limits(runtime.features))
    if isinstance(plan, Declined):
        return plan
    if any(nbytes > runtime.features.max_binding for nbytes in plan.workspace):
        return Declined("temporary memory exceeds the device's maximum binding size")
    return LaunchSequence([_launch(runtime, step) for step in plan.steps], tuple(plan.workspace))


def _launch(runtime: Runtime, step: Step) -> Launch:
    if isinstance(step, HalfSpectrum):
        return half_spectrum.launch(runtime, step)
    return local_stages.launch(runtime, step)


LOWERINGS = {
    "fourier": partial(_lower, "fourier"),
    "real_fourier": partial(_lower, "real_fourier"),
    "half_fourier": partial(_lower, "half_fourier"),
}
