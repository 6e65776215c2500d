"""NumPy, with the call that its users would write for each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.frameworks import HostRunner, WorkloadRunner
from benchmarks.op_workloads import OpWorkload


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * weight + bias


def _rms_norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * weight


def _embedding(weight: Any, index: Any) -> Any:
    return weight[index]


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "argmax": np.argmax,
    "contiguous": np.ascontiguousarray,
    "embedding": _embedding,
    "exp": np.exp,
    "fourier": lambda z, axes: np.fft.fftn(z, axes=axes),
    "half_fourier": lambda z, axes, length: np.fft.irfft(z, length, axes[-1], norm="forward"),
    "layer_norm": _layer_norm,
    "matmul": np.matmul,
    "max": np.max,
    "real_fourier": lambda x, axes: np.fft.rfftn(x, axes=axes),
    "rms_norm": _rms_norm,
    "softmax": _softmax,
    "sum": np.sum,
}


class NumpyCompetitor:
    settle = 0.2  # OpenBLAS keeps its threads spinning for a tenth of a second

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        function = _FUNCTIONS.get(workload.op)
        if function is None or workload.backward:
            return "NumPy has no such function"
        if workload.dtype != "float32" or workload.precision != "highest":
            return "NumPy multiplies float32 and float64"
        arrays = [a.T if i in workload.transposed and a is not None else a for i, a in enumerate(workload.arrays())]
        if workload.op in ("fourier", "half_fourier"):
            re, im = arrays
            arrays = [np.asarray(re + 1j * im, np.complex64)]
        return HostRunner(lambda: function(*arrays, **workload.params), download=lambda out: np.asarray(out.real))


def competitors() -> dict[str, NumpyCompetitor]:
    """Return NumPy, which is always installed."""
    return {"NumPy": NumpyCompetitor()}
