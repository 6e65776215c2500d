"""netcl on OpenCL, its eager functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.frameworks import HostRunner, Runner
from benchmarks.measure import SETTLE_SECONDS
from benchmarks.workloads import Workload


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


class _Competitor:
    settle = SETTLE_SECONDS

    def __init__(self, netcl: Any, queue: Any) -> None:
        self._netcl, self._queue = netcl, queue
        self._functions = _functions(netcl)

    def prepare(self, workload: Workload) -> Runner | str:
        function = self._functions.get(workload.op)
        if function is None or workload.backward or workload.dtype != "float32" or workload.precision != "highest":
            return "not translated to netcl"
        if workload.turned and workload.op != "contiguous":
            return "netcl has no transposed views"
        make = self._netcl.core.tensor.Tensor.from_host
        inputs = [None if a is None else make(self._queue, a) for a in workload.arrays()]

        def call() -> Any:
            out = function(*inputs, **workload.params)
            return out[0] if isinstance(out, tuple) else out

        return HostRunner(call, self._queue.finish, lambda out: out.to_host())


def competitors() -> dict[str, _Competitor]:
    """netcl on the OpenCL device that it chooses; nothing where it is not installed or does not run."""
    try:
        import netcl
        import netcl.core.tensor
        from netcl.core.device import manager

        found = manager.default()
    except Exception as error:  # it raises what its parts raise
        if not isinstance(error, ImportError):
            print(f"netcl does not run: {error}")
        return {}
    return {f"netcl on {found.platform_name}": _Competitor(netcl, found.queue)} if found else {}
