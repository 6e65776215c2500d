"""Fourier transforms on several devices and in other frameworks: rates, ratios, and fractions of a copy's rate.

A rate counts each number of the operand and of the result once, as a transform in one pass over memory reads and writes
them. Frameworks, clocks and options are those of the benchmark `kernels`; with `--size gpu` PyTorch is on CUDA (cuFFT).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.op_workloads import OpWorkload, Shape
from benchmarks.suite import kernels

_LINES: tuple[tuple[str, Shape, tuple[int, ...]], ...] = (
    ("1024 rows of 1024", (1024, 1024), (1,)),
    ("4096 rows of 4096", (4096, 4096), (1,)),
    ("1024 columns of 1024", (1024, 1024), (0,)),
    ("2^20", (1 << 20,), (0,)),
    ("2^22", (1 << 22,), (0,)),
    ("1024 x 1024 in 2-D", (1024, 1024), (0, 1)),
    ("1000 rows of 1000", (1000, 1000), (1,)),
)
_PRIME: Shape = (64, 16381)


def workloads(size: str) -> list[OpWorkload]:
    """Return transforms of complex and of real numbers, there and back; the same for every size of device."""
    found = [_complex(f"complex {name}", shape, axes) for name, shape, axes in _LINES]
    found.append(_complex("complex 64 rows of the prime 16381", _PRIME, (1,)))
    for name, shape, axes in _LINES:
        found.append(OpWorkload(f"real {name}", "real_fourier", (shape,), {"axes": axes}))
        if len(axes) == 1:
            found.append(_to_real(f"to real {name}", shape, axes[0]))
    return found


def _complex(name: str, shape: Shape, axes: tuple[int, ...]) -> OpWorkload:
    return OpWorkload(name, "fourier", (shape, shape), {"axes": axes})


def _to_real(name: str, shape: Shape, axis: int) -> OpWorkload:
    n = shape[axis]
    half = (*shape[:axis], n // 2 + 1, *shape[axis + 1 :])
    params: dict[str, Any] = {"axes": (axis,), "length": n}
    return OpWorkload(name, "half_fourier", (half, half), params)


def main(arguments: Sequence[str]) -> int:
    return kernels.run("fft", __doc__, workloads, arguments)
