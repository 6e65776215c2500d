"""netcl on OpenCL, with its eager functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.frameworks import HostRunner, WorkloadRunner
from benchmarks.op_workloads import OpWorkload
from benchmarks.timing import SETTLE_SECONDS


def _functions(netcl: Any) -> Mapping[str, Callable[..., Any]]:
    from netcl.ops.attention import flash_attention
    from netcl.ops.norm_rope import rms_norm
    from netcl.ops.transpose import transpose2d

    return {
        "add": lambda x, y: x + y,
        "attention": lambda q, k, v, mask, causal: flash_attention(q, k, v, causal=causal),
        "contiguous": transpose2d,
        "conv2d": lambda x, weight, bias, stride, padding: netcl.conv2d(
            x, weight, bias, stride=stride[0], pad=padding[0]
        ),
        "matmul": netcl.matmul,
        "rms_norm": rms_norm,
        "softmax": netcl.softmax,
        "sum": netcl.reduce_sum,
    }


class NetclCompetitor:
    settle = SETTLE_SECONDS

    def __init__(self, netcl: Any, queue: Any) -> None:
        self._netcl, self._queue = netcl, queue
        self._functions = _functions(netcl)

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        function = self._functions.get(workload.op)
        if (
            function is None
            or workload.backward
            or workload.expanded
            or workload.dtype != "float32"
            or workload.precision != "highest"
        ):
            return "not translated to netcl"
        if workload.transposed and workload.op != "contiguous":
            return "netcl has no transposed views"
        make = self._netcl.core.tensor.Tensor.from_host
        inputs = [None if a is None else make(self._queue, a) for a in workload.arrays()]

        def call() -> Any:
            out = function(*inputs, **workload.params)
            return out[0] if isinstance(out, tuple) else out

        return HostRunner(call, self._queue.finish, lambda out: out.to_host())


def competitors() -> dict[str, NetclCompetitor]:
    """Return netcl on the OpenCL device that it chooses; empty if it is not installed or does not run."""
    try:
        import netcl
        import netcl.core.tensor
        from netcl.core.device import manager

        device = manager.default()
    except Exception as error:  # netcl and its driver may raise anything
        if not isinstance(error, ImportError):
            print(f"netcl does not run: {error}")
        return {}
    return {f"netcl on {device.platform_name}": NetclCompetitor(netcl, device.queue)} if device else {}
