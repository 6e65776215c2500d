"""tinygrad on OpenCL, with each workload as one function that is compiled and replayed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.frameworks import HostRunner, WorkloadRunner
from benchmarks.op_workloads import OpWorkload
from benchmarks.timing import SETTLE_SECONDS


def _norm(x: Any, weight: Any, bias: Any = None) -> Any:
    centred = x if bias is None else x - x.mean(-1, keepdim=True)
    scaled = centred * ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
    return scaled if bias is None else scaled + bias


def _conv(x: Any, weight: Any, bias: Any, stride: tuple[int, int], padding: tuple[int, int]) -> Any:
    return x.conv2d(weight, bias, stride=stride, padding=padding)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "argmax": lambda x, axis=None: x.argmax(axis),
    "attention": lambda q, k, v, mask, causal: q.scaled_dot_product_attention(k, v, mask, is_causal=causal),
    "contiguous": lambda x: x.contiguous(),
    "conv2d": _conv,
    "embedding": lambda weight, index: weight[index],
    "exp": lambda x: x.exp(),
    "fused_elementwise": lambda x, w, b, steps, results: 0.5 * (x * w + b) * (1 + ((x * w + b) / math.sqrt(2)).erf()),
    "gelu": lambda x: 0.5 * x * (1 + (x / math.sqrt(2)).erf()),
    "layer_norm": _norm,
    "matmul": lambda x, y: x @ y,
    "max": lambda x, axis=None: x.max(axis),
    "rms_norm": _norm,
    "softmax": lambda x, axis=-1: x.softmax(axis),
    "sum": lambda x, axis=None: x.sum(axis),
}


class TinygradCompetitor:
    settle = SETTLE_SECONDS

    def __init__(self, tinygrad: Any) -> None:
        self._tinygrad = tinygrad

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        function = _FUNCTIONS.get(workload.op)
        if function is None or workload.backward or workload.expanded or workload.precision != "highest":
            return "not translated to tinygrad"
        inputs = []
        for i, array in enumerate(workload.arrays()):
            x = None if array is None else self._tinygrad.Tensor(array)
            if x is not None and i not in workload.indices and workload.dtype != "float32":
                x = x.cast(workload.dtype)
            inputs.append(None if x is None else x.realize())

        def call(*arguments: Any) -> Any:
            operands = [x.T if i in workload.transposed else x for i, x in enumerate(arguments)]
            return function(*operands, **workload.params).contiguous().realize()

        compiled = self._tinygrad.TinyJit(call)
        for _ in range(3):  # the first two calls capture
            compiled(*inputs)
        device = self._tinygrad.Device[self._tinygrad.Device.DEFAULT]
        return HostRunner(lambda: compiled(*inputs), device.synchronize, lambda out: out.float().numpy())


def competitors() -> dict[str, TinygradCompetitor]:
    """Return tinygrad's OpenCL device; empty if tinygrad is not installed or does not run."""
    os.environ.setdefault("DEV", "CL")
    try:
        import tinygrad

        tinygrad.Tensor([1.0]).add(1).realize()
    except Exception as error:  # tinygrad and its driver may raise anything
        if not isinstance(error, ImportError):
            print(f"tinygrad does not run: {error}")
        return {}
    return {"tinygrad": TinygradCompetitor(tinygrad)}
