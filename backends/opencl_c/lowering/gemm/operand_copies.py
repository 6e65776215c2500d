"""Copies of operands whose rows and columns both have gaps or are broadcast, as the gradient of a sum is, on GPUs.

Kernels stage such operands one element at a time. A copy is contiguous; batches along which an operand is broadcast remain
broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_MIN_SIDE = 64
"""Minimum number of rows and of columns of the results for which a copy is faster: each reads an operand again."""
_MIN_WORK = 1 << 24
"""Minimum number of multiply-adds."""


def with_contiguous_lines(runtime: Runtime, p: Product, build: Callable[[Runtime, Product], Launch]) -> Launch:
    """Build the launch of a product after copies of operands without contiguous lines. Raises KernelBuildError."""
    if runtime.features.cpu or min(p.m, p.n) < _MIN_SIDE or p.count * p.m * p.n * p.k < _MIN_WORK:
        return build(runtime, p)
    steps: list[Launch] = []
    copied: dict[int, Spec] = {}
    for side, lengths in (("left", (p.m, p.k)), ("right", (p.k, p.n))):
        matrix: Matrix = getattr(p, side)
        if 1 in (matrix.row, matrix.column):
            continue
        kept = (*(n if step else 1 for n, step in zip(p.batch, matrix.batch, strict=True)), *lengths)
        target = contiguous(p.dtype, kept)
        source = Spec(p.dtype, kept, (*matrix.batch, matrix.row, matrix.column), matrix.aligned)
        steps.append(copy.to_workspace(runtime, source, matrix.place, target, p.workspace))
        copied[p.workspace] = target
        b0, b1, b2 = (new if step else 0 for new, step in zip(target.strides[:3], matrix.batch, strict=True))
        turned: dict[str, Any] = {side: Matrix(p.workspace, lengths[1], 1, (b0, b1, b2), aligned=True)}
        p = replace(p, workspace=p.workspace + 1, **turned)
    if not copied:
        return build(runtime, p)
    product = build(runtime, p)

    def run(*args: Any) -> None:
        product(*(Ref(x, copied[i]) if i in copied else x for i, x in enumerate(args)))

    nbytes = tuple(target.nbytes for target in copied.values())
    return LaunchSequence((*steps, SimpleLaunch(product.name, run)), (*nbytes, *product.workspace))
