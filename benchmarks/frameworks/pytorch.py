"""PyTorch on the CPU or a CUDA device, eager."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.frameworks import WorkloadRunner
from benchmarks.frameworks.cuda_graph import as_cuda_graph
from benchmarks.op_workloads import OpWorkload
from benchmarks.timing import SETTLE_SECONDS

_MATH = {"highest": "highest", "high": "highest", "medium": "high"}
"""PyTorch's setting for each precision of Polyhal, whose `high` is as accurate as true float32."""


def _functions(torch: Any) -> Mapping[str, Callable[..., Any]]:
    functional = torch.nn.functional

    def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axis=None: function(x) if axis is None else function(x, dim=axis)

    def attention(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
        if q.shape[:-2] == k.shape[:-2]:
            return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        query, (key, value) = q.flatten(-4, -3), (x.squeeze(-3) for x in (k, v))
        out = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=True)
        return out.view(q.shape)

    return {
        "add": torch.add,
        "argmax": reduction(torch.argmax),
        "attention": attention,
        "batch_norm": lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        "concat": lambda *xs, axis: torch.cat(xs, axis),
        "contiguous": lambda x: x.contiguous(),
        "conv2d": functional.conv2d,
        "cross_entropy_rows": lambda x, target: functional.cross_entropy(x, target, reduction="none"),
        "cumsum": torch.cumsum,
        "embedding": lambda weight, index: functional.embedding(index, weight),
        "exp": torch.exp,
        "fourier": lambda z, axes: torch.fft.fftn(z, dim=axes),
        "fused_elementwise": lambda x, w, b, steps, results: functional.gelu(x * w + b),
        "gelu": functional.gelu,
        "group_norm": lambda x, w, b, groups: functional.group_norm(x, groups, w, b),
        "half_fourier": lambda z, axes, length: torch.fft.irfft(z, length, axes[-1], norm="forward"),
        "layer_norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        "matmul": torch.matmul,
        "max": reduction(torch.amax),
        "max_pool2d": lambda x, kernel, stride: functional.max_pool2d(x, kernel, stride),
        "real_fourier": lambda x, axes: torch.fft.rfftn(x, dim=axes),
        "relu": torch.relu,
        "rms_norm": lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6),
        "softmax": lambda x, axis=-1: torch.softmax(x, axis),
        "sort_pairs": lambda x: torch.sort(x, stable=True)[0],
        "sum": reduction(torch.sum),
        "topk": lambda x, k: torch.topk(x, k)[0],
    }


def _inputs_of(torch: Any, workload: OpWorkload, inputs: list[Any]) -> list[Any]:
    """Return inputs in PyTorch's form: complex numbers are pairs in memory."""
    if workload.op in ("fourier", "half_fourier"):
        return [torch.complex(*inputs)]
    return inputs


class TorchRunner:
    def __init__(self, torch: Any, function: Callable[..., Any], workload: OpWorkload, place: str) -> None:
        self._torch, self._cuda = torch, place == "cuda"
        self._function, self._params = function, dict(workload.params)
        self._math = _MATH[workload.precision]
        self._inputs = []
        for i, array in enumerate(workload.arrays()):
            x = None if array is None else torch.from_numpy(array).to(place)
            if x is not None and i not in workload.indices:
                x = x.to(getattr(torch, workload.dtype))
                x = x.t() if i in workload.transposed else x
                x = x.to(memory_format=torch.channels_last) if workload.channels_last else x
                x = x.detach().requires_grad_(workload.backward)
            self._inputs.append(x)
        self._inputs = _inputs_of(torch, workload, self._inputs)
        self._sources = [x for x in self._inputs if x is not None and x.requires_grad]
        self._out_grad = None
        if self._sources:
            out = self._forward().detach()
            one = torch.ones((), dtype=out.dtype, device=out.device)
            self._out_grad = one.expand(out.shape) if workload.summed else torch.ones_like(out)

    def _forward(self) -> Any:
        return self._function(*self._inputs, **self._params)

    def _once(self) -> Any:
        out = self._forward()
        return out if self._out_grad is None else (out, self._torch.autograd.grad(out, self._sources, self._out_grad))

    @functools.cached_property
    def _graph(self) -> Callable[[], Any]:
        return as_cuda_graph(self._once)

    def _set_precision(self) -> None:
        self._torch.set_float32_matmul_precision(self._math)
        self._torch.backends.cudnn.allow_tf32 = self._math != "highest"

    def _run(self, calls: int) -> None:
        self._set_precision()
        for _ in range(calls):
            self._once()

    def _timed(self, calls: int, call: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if self._cuda:
            self._torch.cuda.synchronize()
        return (time.perf_counter() - begin) / calls

    def wall(self, calls: int) -> float:
        self._set_precision()
        return self._timed(calls, self._once)

    def replayed(self, calls: int) -> float:
        self._set_precision()
        return self._timed(calls, self._graph if self._cuda else self._once)

    def device(self, calls: int) -> float:
        """Time between events around all calls, which the device runs back to back."""
        if not self._cuda:
            return self.wall(calls)
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        self._run(calls)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / calls

    def result(self) -> Any:
        out = self._forward().detach()
        return (out.real if out.is_complex() else out).float().cpu().numpy()


class TorchCompetitor:
    settle = SETTLE_SECONDS

    def __init__(self, torch: Any, place: str) -> None:
        self._torch, self._place = torch, place
        self._functions = _functions(torch)

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        function = self._functions.get(workload.op)
        if function is None:
            return "not translated to PyTorch"
        return TorchRunner(self._torch, function, workload, self._place)


def competitors(gpu: bool) -> dict[str, TorchCompetitor]:
    """Return PyTorch on CUDA if `gpu` is set and CUDA is available, else on the CPU; empty if it is not installed."""
    try:
        import torch
    except ImportError:
        return {}
    place = "cuda" if gpu and torch.cuda.is_available() else "cpu"
    return {f"PyTorch {torch.__version__.partition('+')[0]} {place}": TorchCompetitor(torch, place)}
