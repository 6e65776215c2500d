"""Resolution steps on the host: the NumPy reference with downloads and uploads, and constants that are uploaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.dispatch.host_work import HOST_WORK, check_policy, warn_of_host_work
from polyhal.hal.core.execution.op_plan import Run
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.lowering import HostConstant, OnHost
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import ComputeBackend

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.ops.schema import Params


class HostNeededError(Exception):
    """A part of a device program has no kernel. The planner catches it."""


def host_constant(planner: Planner, request: Request, strategy: HostConstant) -> Resolved:
    """Upload an array that depends on parameters only."""
    request.resolution.step, request.resolution.how = ResolutionStep.CORE, "constant uploaded from the host"
    return _upload_run(planner.device.backend, lambda args: strategy.make(request.params)), None


def host_reference(planner: Planner, request: Request) -> Resolved:
    """Run the op in NumPy if the policy permits it. Raises FallbackRefusedError."""
    return _run_reference(planner, request, "host reference", "; ".join(request.resolution.skipped), False)


def declared_on_host(planner: Planner, request: Request, strategy: OnHost) -> Resolved:
    """Run an op that is declared to run in NumPy, if the policy permits it. Raises FallbackRefusedError."""
    return _run_reference(planner, request, "on the host", strategy.reason, True)


def _moved_bytes(request: Request) -> int:
    return sum(s.nbytes for s in (*request.inputs, *request.outputs) if isinstance(s, Spec))


def _run_reference(planner: Planner, request: Request, how: str, reason: str, declared: bool) -> Resolved:
    op, params, device, moved = request.op, request.params, planner.device, _moved_bytes(request)
    if request.on_device:
        raise HostNeededError(
            f"{op.name}({request.resolution.specs}) has no kernel: {'; '.join(request.resolution.skipped)}"
        )
    problem = f"{request.resolution.specs} would run on the host and move {moved} bytes: {reason}"
    check_policy(op.name, device, problem, declared)
    warn_of_host_work(op.name, device, moved, reason)
    request.resolution.step = ResolutionStep.HOST
    request.resolution.how = f"{how}, moving {moved} bytes" + (f": {reason}" if declared else "")

    def compute(args: Sequence[Any]) -> Any:
        check_policy(op.name, device, problem, declared)  # the policy may change while a plan is kept
        HOST_WORK.count(op.name, moved)
        return _reference(op, [device.download(x) if isinstance(x, Ref) else x for x in args], params)

    return _upload_run(device.backend, compute), None


def empty_inputs(planner: Planner, request: Request) -> Resolved:
    """Upload the result of an op whose tensors are all empty, such as a sum over no elements."""
    op, params = request.op, request.params
    request.resolution.step = ResolutionStep.NOTHING
    request.resolution.how = "constant: all inputs are empty"
    arrays = [np.empty(s.shape, s.dtype.numpy) if isinstance(s, Spec) else None for s in request.inputs]
    return _upload_run(planner.device.backend, lambda args: _reference(op, arrays, params)), None


def _upload_run(backend: ComputeBackend, compute: Callable[[Sequence[Any]], Any]) -> Run:
    """Return a run that computes an array, or a tuple of arrays, from its arguments and uploads it to the outputs."""

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        result = compute(args)
        for array, out in zip(result if isinstance(result, tuple) else (result,), outs, strict=True):
            if out.size:
                dense = np.ascontiguousarray(np.broadcast_to(array, out.shape), dtype=out.dtype.numpy)
                backend.copy_to_device(byte_view(dense), out.handle, out.offset * out.dtype.itemsize)

    return run


def _reference(op: OpDef, arrays: Sequence[Any], params: Params) -> Any:
    """Return the result of an op's reference, without NumPy's warnings about NaN, infinities and means of empty arrays."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return op.reference(*arrays, **params)
