"""The numbers with which kernels walk the terms of a reduction (see shaders/wgsl/lib/runs.wgsl)."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.wgpu.launch import Parameter


def members(length: int, step: int, *strides: tuple[int, int]) -> list[Parameter]:
    """`members` of lib/runs.wgsl: runs of `length` terms, or one run of any length where that is 0, walked `step` at a time.

    `strides` are, per operand, the elements from one run, and from one term of a run, to the next.
    """
    runs, turn = divmod(step, length) if length else (0, step)
    numbers = [length, turn]
    for outer, inner in strides:
        numbers += [outer, inner, runs * outer + turn * inner, outer - length * inner]
    return [Constant(n, "uint") for n in numbers]
