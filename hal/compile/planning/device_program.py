"""Resolution step: a program of other ops that all have kernels, with a check of a result that raises the op's error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.compile.planning.decompose import interpreted
from polyhal.hal.compile.planning.host import HostNeededError
from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.execution.op_plan import Run
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.settings.state import settings
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.ops.lowering import OnDevice
from polyhal.hal.protocol import Declined, Feature

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.device import Device


def device_program(planner: Planner, request: Request, strategy: OnDevice) -> Resolved | None:
    """Trace the program and resolve its ops; None if one of them would run on the host."""
    from polyhal.hal.compile.ir.trace import trace

    device, resolution = planner.device, request.resolution
    if not device.features & Feature.LOWERING:
        return None
    program = strategy.rule(request.inputs, request.params)
    if isinstance(program, Declined):
        resolution.skipped.append(f"program of ops: {program.reason}")
        return None
    if program.blocked and device.type is DeviceType.CPU:
        resolution.skipped.append(
            "program of ops: the device is a processor, on which LAPACK divides matrices into blocks"
        )
        return None
    graph = trace(program.function, request.inputs, {}, device.stand_ins)
    status = None
    if program.refuse is not None:
        *outputs, last = graph.outputs
        status = outputs.index(last) if last in outputs else len(outputs)
        graph.outputs = (*outputs, last) if status == len(outputs) else tuple(outputs)
    parts = len(resolution.parts)
    try:
        with settings.restored(("highest", settings.deterministic)):
            run = interpreted(planner, request._replace(on_device=True), graph)
    except HostNeededError as error:
        del resolution.parts[parts:]
        resolution.skipped.append(f"program of ops: {error}")
        return None
    resolution.step, resolution.how = ResolutionStep.COMPOSED, f"program of {len(graph.nodes)} ops"
    if program.refuse is None or status is None:
        return run, None
    resolution.how += ", with a check of the result"
    extra = graph.tensor(graph.outputs[status]) if status == len(request.outputs) else None
    return _checked(device, run, program.refuse, status, extra), None


def _checked(device: Device, run: Run, refuse: Callable[[np.ndarray], None], status: int, extra: Spec | None) -> Run:
    """Return a run that downloads result number `status` and checks it. `extra` is its spec if it is not an output."""
    spec = None if extra is None else contiguous(extra.dtype, extra.shape)

    def run_and_check(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        results = list(outs)
        if spec is not None:
            buffer = device.pool.take(bucket(spec.nbytes))
            results.append(Ref(buffer.handle, spec, 0))
        run(args, results)
        refuse(device.download(results[status]))

    return run_and_check
