"""Resolution step: a native kernel of the backend, through `lower`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.execution.op_plan import launch_run
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import BackendError, KernelBuildError, message
from polyhal.hal.ops.opdef import PartOfCall
from polyhal.hal.ops.schema import first_tensor
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Declined, Feature, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner


def native_kernel(planner: Planner, request: Request) -> Resolved | None:
    """Run the whole op as one kernel. Raises KernelBuildError in strict mode."""
    op, inputs, outputs, params, _, resolution, _ = request
    device = planner.device
    if not device.features & Feature.LOWERING:
        resolution.skipped.append("native kernel: the backend does not lower ops")
        return None
    part = op.without_empty(inputs, params) if request.has_empty_input and op.without_empty is not None else None
    if part is not None:
        inputs, outputs = tuple(inputs[i] for i in part.inputs), tuple(outputs[i] for i in part.outputs)
        params = {**part.params}
    elif request.has_empty_input:
        resolution.skipped.append("native kernel: an input is empty")
        return None
    if Trait.ALONG_AXIS in op.traits and not first_tensor(inputs).ndim:
        resolution.skipped.append("native kernel: the tensor is 0-dimensional")
        return None
    if planner.is_quarantined(ResolutionStep.NATIVE, "native kernel", resolution):
        return None
    followed = device.backend.capabilities.settings
    if op.settings and followed:
        params = {**params, **settings.among(op.settings, followed)}
    try:
        launch = device.backend.lower(op.name, inputs, outputs, params)  # type: ignore[attr-defined]
    except KernelBuildError as error:
        if env.strict():
            raise
        _note_build_failure(planner, request, error)
        return None
    if isinstance(launch, Declined):
        resolution.skipped.append(f"native kernel: {launch.reason}")
        return None
    if not planner.is_launch(launch):
        problem = f"lower returned {launch!r}"
        raise BackendError(message(op.name, problem, expected="a Launch, or Declined with a reason", device=device))
    if part is not None:
        launch = _of_part(launch, part, len(request.inputs), len(request.outputs))
    resolution.step, resolution.how = ResolutionStep.NATIVE, f"native kernel {launch.name}"
    resolution.recordable = True
    return launch_run(device, launch), launch


def _of_part(launch: Launch, part: PartOfCall, inputs: int, outputs: int) -> SimpleLaunch:
    """Return the launch of a part of a call, on the arguments of the whole call: `inputs`, `outputs` and workspace."""
    chosen = (*part.inputs, *(inputs + i for i in part.outputs))
    end = inputs + outputs

    def run(*args: Any) -> None:
        launch(*[args[i] for i in chosen], *args[end:])

    return SimpleLaunch(launch.name, run, launch.workspace)


def _note_build_failure(planner: Planner, request: Request, error: KernelBuildError) -> None:
    """Record the driver's message, and warn once per op that its kernel does not build."""
    resolution = request.resolution
    resolution.skipped.append(f"native kernel: it does not build: {error.gist}")
    planner.warn_once(
        f"build {resolution.op}",
        message(
            resolution.op,
            f"the native kernel for ({resolution.specs}) does not build, so a slower implementation runs: {error.gist}",
            fix="set POLYHAL_STRICT=1 to raise the full error",
            device=planner.device,
        ),
    )
