"""Arguments to iterate over the terms of a reduction (shaders/wgsl/lib/term_iterator.wgsl)."""

from __future__ import annotations

from collections.abc import Mapping


def members(inner_length: int, step: int, strides: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the arguments for iteration in steps of `step` terms.

    `inner_length` is the length of the inner axis; 0 if there is only one axis. `strides` are (outer, inner) by operand.
    """
    outer_step, inner_step = divmod(step, inner_length) if inner_length else (0, step)
    args = {"inner_length": inner_length, "inner_step": inner_step}
    for name, (outer, inner) in strides.items():
        args |= {
            f"{name}_outer": outer,
            f"{name}_inner": inner,
            f"{name}_step": outer_step * outer + inner_step * inner,
            f"{name}_carry": outer - inner_length * inner,
        }
    return args
