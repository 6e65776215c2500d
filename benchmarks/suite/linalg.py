"""Factors, solutions and spectra of matrices: batches of small ones and large ones, also by NumPy and PyTorch.

A call includes the wait for its result, and for `solve`, `cholesky` and `inverse` the check that raises an error for singular
matrices. PyTorch runs on the CPU and, if it has CUDA, on its device. Competitors alternate.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import SETTLE_SECONDS, TimingSummary, alternate
from polyhal import Device, linalg, tensor

_BATCHES = ((1024, 16, 16), (4096, 32, 32), (256, 64, 64))
_BATCHED = ("solve", "cholesky", "lu", "qr", "inverse", "eigh", "svd")
_SQUARES = {"cpu": ((1024, 1024),), "gpu": ((1024, 1024), (4096, 4096))}
_LARGE = ("solve", "cholesky", "lu", "qr", "triangular solve")
_SAMPLE_SECONDS = 0.02
_MAX_SECONDS = 20.0
"""A competitor whose call takes longer is left out."""
_POSITIVE_DEFINITE = ("cholesky", "eigh")

Call = Callable[[], object]


class Workload(NamedTuple):
    """A function of a batch of matrices of `shape`."""

    function: str
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.function} {' x '.join(map(str, self.shape))}"

    def operands(self, dtype: str) -> tuple[np.ndarray, ...]:
        """Return matrices, and for solutions right sides of one column each, or of all columns for triangular ones."""
        rng = np.random.default_rng(0)
        n = self.shape[-1]
        a = rng.standard_normal(self.shape, dtype=np.float32)
        if self.function in _POSITIVE_DEFINITE:
            a = a @ np.swapaxes(a, -2, -1) + np.float32(n) * np.eye(n, dtype=np.float32)
        elif self.function == "triangular solve":
            a = np.tril(a) / np.float32(math.sqrt(n)) + 4 * np.eye(n, dtype=np.float32)
        if self.function in ("solve", "triangular solve"):
            columns = n if self.function == "triangular solve" else 1
            return a.astype(dtype), rng.standard_normal((*self.shape[:-1], columns)).astype(dtype)
        return (a.astype(dtype),)


def _functions(library: Any) -> Mapping[str, Callable[..., Any]]:
    """Return the functions of `polyhal.linalg` or `torch.linalg` by name."""
    return {
        "solve": library.solve,
        "cholesky": library.cholesky,
        "lu": library.lu_factor_ex,
        "qr": library.qr,
        "inverse": library.inv,
        "eigh": library.eigh,
        "svd": lambda a: library.svd(a, full_matrices=False),
        "triangular solve": lambda a, b: library.solve_triangular(a, b, upper=False),
    }


_NUMPY: Mapping[str, Callable[..., Any]] = {
    "solve": np.linalg.solve,
    "cholesky": np.linalg.cholesky,
    "qr": np.linalg.qr,
    "inverse": np.linalg.inv,
    "eigh": np.linalg.eigh,
    "svd": lambda a: np.linalg.svd(a, full_matrices=False),
}


def _ours(device: Device, workload: Workload, dtype: str) -> Call:
    function = _functions(linalg)[workload.function]
    operands = [tensor(x, device=device) for x in workload.operands(dtype)]

    def call() -> None:
        function(*operands)
        device.synchronize()

    return call


def _numpy(workload: Workload, dtype: str) -> Call | None:
    function = _NUMPY.get(workload.function)
    operands = workload.operands(dtype)
    return None if function is None else lambda: function(*operands)


def _pytorch(workload: Workload, dtype: str, place: str) -> Call:
    import torch

    function = _functions(torch.linalg)[workload.function]
    operands = [torch.from_numpy(x).to(place) for x in workload.operands(dtype)]

    def call() -> None:
        function(*operands)
        if place == "cuda":
            torch.cuda.synchronize()

    return call


def competitors(devices: Sequence[Device], workload: Workload, dtype: str, without: Sequence[str]) -> dict[str, Call]:
    """Return a call for each device and framework whose name contains none of `without`."""
    makers: dict[str, Callable[[], Call | None]] = {
        device.name: (lambda device=device: _ours(device, workload, dtype)) for device in devices
    }
    makers["NumPy"] = lambda: _numpy(workload, dtype)
    if importlib.util.find_spec("torch") is not None:
        import torch

        makers["PyTorch"] = lambda: _pytorch(workload, dtype, "cpu")
        if torch.cuda.is_available():
            makers["PyTorch CUDA"] = lambda: _pytorch(workload, dtype, "cuda")
    calls = {name: make() for name, make in makers.items() if not any(part in name for part in without)}
    return {name: call for name, call in calls.items() if call is not None and _is_quick(call)}


def _is_quick(call: Call) -> bool:
    call()  # builds kernels
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin < _MAX_SECONDS


def workloads(size: str) -> list[Workload]:
    """Return the workloads for the size of a device: `cpu` or `gpu`."""
    small = [Workload(function, shape) for shape in _BATCHES for function in _BATCHED]
    return small + [Workload(function, shape) for shape in _SQUARES[size] for function in _LARGE]


def _row(workload: Workload, dtype: str, timings: Mapping[str, TimingSummary]) -> dict[str, Any]:
    seconds = {name: [t.median, t.low, t.high] for name, t in timings.items()}
    return {"function": workload.function, "shape": list(workload.shape), "dtype": dtype, "seconds": seconds}


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("linalg", __doc__)
    parser.add_argument("--size", choices=tuple(_SQUARES), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--only", default="", help="workloads whose name contains one of these, comma-separated")
    parser.add_argument("--without", default="", help="leave out competitors whose name contains one of these")
    parser.add_argument("--repetitions", type=int, default=10)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    without = [part for part in args.without.split(",") if part]
    result: dict[str, Any] = {"benchmark": "linalg", **describe_machine(devices), "rows": []}
    for workload in workloads(args.size):
        if not any(part in workload.name for part in args.only.split(",")):
            continue
        calls = competitors(devices, workload, args.dtype, without)
        timings = alternate(
            calls, args.repetitions, settle=lambda: time.sleep(SETTLE_SECONDS), min_seconds=_SAMPLE_SECONDS
        )
        text = "   ".join(f"{name} {t.text(1e3, 'ms')}" for name, t in timings.items())
        print(f"{workload.name:<32} {text}", flush=True)
        result["rows"].append(_row(workload, args.dtype, timings))
        write(args.json, result)
    return 0
