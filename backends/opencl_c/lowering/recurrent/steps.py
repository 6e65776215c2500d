"""Recurrent layers on GPUs: each group runs one or two sequences and reads the whole weight in every time step."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Workspace
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.recurrent.problem import LayerSteps
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Declined, Launch

_MAX_GROUP, _MIN_UNITS = 1024, 32
_MAX_SIZE = 512
"""Maximum units whose states and gradients fit into local memory."""
_MAX_READ = 2 << 20
"""Maximum bytes of weights per compute unit and step, read in the time of a step's launches of ordinary products."""


def _rows(runtime: Runtime, p: LayerSteps) -> int:
    """Return the sequences per group."""
    return 1 if p.batch <= runtime.features.compute_units else 2


def _refusal(runtime: Runtime, p: LayerSteps) -> Declined | None:
    if p.size > _MAX_SIZE:
        return Declined(f"layers of {p.size} units; the kernels take {_MAX_SIZE}")
    rounds = ceil_div(ceil_div(p.batch, _rows(runtime, p)), runtime.features.compute_units)
    if rounds * p.weight_bytes > _MAX_READ:
        return Declined(f"a compute unit would read more than {_MAX_READ >> 20} MiB of weights in each step")
    if p.tensors["weight"][1].strides[1] != 1:
        return Declined("the weight is not contiguous along its rows")
    return None


def _definitions(runtime: Runtime, p: LayerSteps) -> dict[str, str | int | bool]:
    group = power_of_two_at_most(min(_MAX_GROUP, runtime.features.max_group_size))
    units = min(group, max(_MIN_UNITS, power_of_two_at_least(p.size)))
    return {
        "CELL": p.cell,
        "ROWS": _rows(runtime, p),
        "UNITS": units,
        "SLICES": group // units,
        "MAX_SIZE": _MAX_SIZE,
    }


def forward(runtime: Runtime, p: LayerSteps) -> Launch | Declined:
    """Build the launches of a layer: the weight is transposed, then all steps run in one launch."""
    declined = _refusal(runtime, p)
    if declined:
        return declined
    place, weight = p.tensors["weight"]
    turned = weight._replace(shape=weight.shape[::-1], strides=weight.strides[::-1])
    packed, at = contiguous(dtypes.float32, turned.shape), p.first_workspace
    pack = copy.to_workspace(runtime, turned, place, packed, at)
    definitions = {**_definitions(runtime, p), **p.forward_definitions()}
    run = _launch(runtime, "recurrent/steps", definitions, {**p.steps_args(), "packed": Workspace(at)}, p)
    return LaunchSequence((pack, run), (packed.nbytes,))


def gradient(runtime: Runtime, p: LayerSteps) -> Launch | Declined:
    """Build the launch of the sequential part of a layer's gradient."""
    declined = _refusal(runtime, p)
    if declined:
        return declined
    args: Arguments = {**p.steps_grad_args(), "weight": p.weight_rows()}
    return _launch(runtime, "recurrent/steps_grad", _definitions(runtime, p), args, p)


def _launch(
    runtime: Runtime, kernel: str, definitions: dict[str, str | int | bool], args: Arguments, p: LayerSteps
) -> Launch:
    group = int(definitions["UNITS"]) * int(definitions["SLICES"])
    groups = ceil_div(p.batch, int(definitions["ROWS"]))
    return runtime.launch(kernel, definitions, args, (groups * group,), (group,))
