"""Resolution steps on the host: the NumPy reference with downloads and uploads, and constants that are uploaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.errors import FallbackRefusedError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.ops.lowering import HostConstant, OnHost
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.plan import Run
from polyhal.hal.planning.request import Request, Resolved
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.protocol import ComputeBackend
from polyhal.hal.settings import env

if TYPE_CHECKING:
    from polyhal.hal.planning.planner import Planner


def host_constant(planner: Planner, request: Request, strategy: HostConstant) -> Resolved:
    """Upload an array that depends on parameters alone."""
    request.resolution.step, request.resolution.how = ResolutionStep.CORE, "constant uploaded from the host"
    return _upload_run(planner.device.backend, lambda args: strategy.make(request.params)), None


def host_reference(planner: Planner, request: Request) -> Resolved:
    """Run the op in NumPy, if the policy allows that. Raises FallbackRefusedError."""
    op, device, moved = request.op, planner.device, _moved_bytes(request)
    policy = env.fallback_policy()
    reasons = "; ".join(request.resolution.skipped)
    if policy == "error":
        raise FallbackRefusedError(
            message(
                op.name,
                f"{request.resolution.specs} would run on the host and move {moved} bytes: {reasons}",
                fix="set POLYHAL_FALLBACK=warn or allow to permit that",
                device=device,
            )
        )
    if policy == "warn":
        problem = f"runs on the host and moves {moved} bytes a call: {reasons}"
        planner.warn_once(op.name, message(op.name, problem, device=device))
    return _run_reference(planner, request, f"host reference, moving {moved} bytes")


def declared_on_host(planner: Planner, request: Request, strategy: OnHost) -> Resolved:
    """Run the op in NumPy, where it belongs by its declaration: no policy is asked, and nobody is warned."""
    return _run_reference(planner, request, f"on the host, moving {_moved_bytes(request)} bytes: {strategy.reason}")


def _moved_bytes(request: Request) -> int:
    return sum(s.nbytes for s in (*request.inputs, *request.outputs) if isinstance(s, Spec))


def _run_reference(planner: Planner, request: Request, how: str) -> Resolved:
    op, params, device = request.op, request.params, planner.device
    request.resolution.step, request.resolution.how = ResolutionStep.HOST, how

    def compute(args: Sequence[Any]) -> Any:
        return _reference(op, [device.download(x) if isinstance(x, Ref) else x for x in args], params)

    return _upload_run(device.backend, compute), None


def empty_inputs(planner: Planner, request: Request) -> Resolved:
    """Upload the result of an op on empty tensors only, such as a sum of nothing."""
    op, params = request.op, request.params
    request.resolution.step = ResolutionStep.NOTHING
    request.resolution.how = "constant: all inputs are empty"
    arrays = [np.empty(s.shape, s.dtype.numpy) if isinstance(s, Spec) else None for s in request.inputs]
    return _upload_run(planner.device.backend, lambda args: _reference(op, arrays, params)), None


def _upload_run(backend: ComputeBackend, compute: Callable[[Sequence[Any]], Any]) -> Run:
    """A run that computes an array, or a tuple of them, from its arguments and copies it to the outputs."""

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        result = compute(args)
        for array, out in zip(result if isinstance(result, tuple) else (result,), outs, strict=True):
            if out.size:
                dense = np.ascontiguousarray(np.broadcast_to(array, out.shape), dtype=out.dtype.numpy)
                backend.copy_to_device(byte_view(dense), out.handle, out.offset * out.dtype.itemsize)

    return run


def _reference(op: OpDef, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an op's reference. NaN, infinities and means of nothing are ordinary values here, without warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return op.reference(*arrays, **params)
