"""Matrix products: the choice of a strategy by shape.

- GPU, up to four rows or columns, contiguous along k: `gemv`.
- GPU, other products that are large enough: `tiles` in workgroup memory, with `split_k` if there are too few tiles.
- CPU, small or thin products, and GPUs whose workgroups are too small for tiles: register `blocks`.

All of them support operands with any strides, so that transposed views are not copied. Operands beyond the binding size
limit are handled by `binding_limit`.
"""

from __future__ import annotations

from functools import partial

from polyhal.backends.common.problems import fused_gemm, gemm
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm import binding_limit, blocks, epilogue, gemv, joined, split_k, tiles
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_SMALL = 1 << 15
"""Minimum multiply-adds for which staging in workgroup memory is faster."""
_THIN = 16
"""Minimum rows or columns for tiles; for fewer, most of a tile would be empty."""


def build(runtime: Runtime, p: Product) -> Launch | Declined:
    """Return the launch of a product, or the reason why its epilogue needs another one."""
    refusal = epilogue.refusal(runtime, p)
    return Declined(refusal) if refusal else _build(runtime, p)


def _build(runtime: Runtime, p: Product) -> Launch:
    halves = binding_limit.halve(runtime, p, _build, split_k.reduce)
    if halves is not None:
        return halves
    if runtime.features.cpu or p.dtype.kind == "bool":
        return blocks.multiply(runtime, p)
    vectors = gemv.build(runtime, p)
    if vectors is not None:
        return vectors
    if min(p.m, p.n) < _THIN or p.count * p.m * p.n * p.k <= _SMALL or not tiles.fit(runtime):
        return blocks.multiply(runtime, p)
    return tiles.multiply(runtime, p, tiles.choose(runtime, p))


def several(runtime: Runtime, p: Product) -> Launch | Declined:
    """Return the launch of a product with several matrices, or a norm before it."""
    assert p.joined is not None
    if runtime.features.cpu:
        return Declined("every group would compute the norm again, which takes as long as a launch on processors")
    if p.sum_class != "float" or len(p.joined.places) >= joined.MAX_MATRICES:
        return Declined(
            f"{1 + len(p.joined.places)} matrices of {p.dtype.name}; the kernel takes {joined.MAX_MATRICES}"
        )
    if joined.buffers(p) > (most := runtime.features.max_buffers):
        return Declined(f"the kernel has {joined.buffers(p)} buffers; the device supports {most}")
    refused = epilogue.refusal(runtime, p)
    launch = None if refused else gemv.build(runtime, p)
    return launch or Declined(refused or "many rows, or matrices that are not whole groups")


batched = partial(gemm.batched, build)
LOWERINGS = {**gemm.lowerings(build, epilogues=True), **fused_gemm.lowerings(build, lambda runtime: ())}
