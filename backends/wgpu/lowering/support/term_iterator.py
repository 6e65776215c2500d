"""The parameters with which kernels iterate over the terms of a reduction (shaders/wgsl/lib/term_iterator.wgsl)."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.wgpu.launch import Parameter


def members(inner_length: int, step: int, *strides: tuple[int, int]) -> list[Parameter]:
    """Return the parameters for iteration in steps of `step` terms.

    `inner_length` is the length of the inner axis; 0 if there is only one axis. `strides` are (outer, inner) per operand.
    """
    outer_step, inner_step = divmod(step, inner_length) if inner_length else (0, step)
    numbers = [inner_length, inner_step]
    for outer, inner in strides:
        numbers += [outer, inner, outer_step * outer + inner_step * inner, outer - inner_length * inner]
    return [Constant(n, "uint") for n in numbers]
