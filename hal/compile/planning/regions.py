"""Resolution step: fills and copies of regions of the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.execution.op_plan import launch_run
from polyhal.hal.layout import Ref, Spec, View, place
from polyhal.hal.ops.lowering import OutputRegion, Regions
from polyhal.hal.protocol import ComputeBackend, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner


def output_regions(planner: Planner, request: Request, strategy: Regions) -> Resolved:
    """Run the op as fills and copies. Regions that an in-place output already stores are left out."""
    _, inputs, outputs, params, aliases, resolution, _ = request
    whole = View(outputs[0].shape, outputs[0].strides)
    regions = [
        r
        for r in strategy.rule(inputs, outputs, params)
        if 0 not in r.target.shape and not (aliases and r.source == aliases[0] and (r.target, r.view) == (whole, None))
    ]
    resolution.recordable = True
    resolution.step, resolution.how = ResolutionStep.CORE, f"{len(regions)} core fills and copies"
    launch = SimpleLaunch(resolution.how, _region_run(planner.device.backend, regions, len(inputs), outputs[0]))
    return launch_run(planner.device, launch), launch


def _region_run(
    backend: ComputeBackend, regions: Sequence[OutputRegion], count: int, output: Spec
) -> Callable[..., None]:
    """Return a run that fills or copies every region of the output, which follows `count` inputs. Regions are not empty."""
    fill, copy = backend.fill, backend.copy
    placed = [(region, place(output, region.target)) for region in regions]

    def run(*args: Any) -> None:
        out = args[count]
        for region, spec in placed:
            target = Ref(out.handle, spec, out.offset + region.target.offset)
            x = region.value if region.source is None else args[region.source]
            if not isinstance(x, Ref):
                fill(x if region.of is None else region.of(x), target)
            elif region.view is None:
                copy(x, target)
            else:
                copy(Ref(x.handle, place(x.spec, region.view), x.offset + region.view.offset), target)

    return run
