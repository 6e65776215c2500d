"""Split-K: several workgroups compute partial sums of each result if there are too few results; a second launch adds them.

Kernel: shaders/wgsl/gemm/split_k_reduce.wgsl.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Workspace
from polyhal.backends.common.launching.split_k import SplitK, split_k
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm.arguments import definitions, targets
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Launch

MIN_TERMS = 256
"""Minimum terms per split for which split-K is faster, for tiles."""
_MIN_BLOCK_TERMS = 64
"""Minimum terms per split for which split-K is faster, for register blocks."""
BUSY_GROUPS = 192
"""Workgroups that keep a large GPU busy; WebGPU does not report the number of compute units."""
_BUSY_BLOCKS = 1024
_BUSY_CPU = 4
_MULTIPLE = 16
"""Terms per split are a multiple of this, a common multiple of the k-tiles of all kernels."""
_GROUP = 64
_LOOPS = 2
"""Largest number of iterations per term: the loop over terms, and the loops over elements of a block."""


def choose(runtime: Runtime, p: Product, groups: int, *, blocks: bool) -> SplitK:
    """Return the splits for `groups` workgroups per split that keep the device busy, within its limit for loops."""
    busy = _BUSY_CPU if runtime.features.cpu else _BUSY_BLOCKS if blocks else 2 * BUSY_GROUPS
    min_terms = _MIN_BLOCK_TERMS if blocks else MIN_TERMS
    if limit := runtime.features.quirks.loop_limit // _LOOPS:
        busy = max(busy, groups * ceil_div(p.k, limit))
    max_splits = runtime.features.max_binding // (p.count * p.m * p.n * p.sum_dtype.itemsize)
    return split_k(p.k, groups, busy, max_splits, min_terms=min_terms, multiple=_MULTIPLE)


def reduce(runtime: Runtime, p: Product, splits: int) -> Launch:
    """Return the launch that adds the partial sums in the first workspace."""
    size = p.count * p.m * p.n
    variables = {**definitions(p, split=False), "GROUP": _GROUP, "OUT_LANES": 1}
    args: Arguments = {
        "partial": Workspace(p.workspace),
        **targets(p),
        "m": p.m,
        "n": p.n,
        "size": size,
        "splits": splits,
    }
    return runtime.launch("gemm/split_k_reduce", variables, args, ceil_div(size, _GROUP))


def with_reduction(runtime: Runtime, p: Product, multiply: Launch, splits: int) -> Launch:
    """Return `multiply`, followed by the reduction of its splits if there are several."""
    if splits == 1:
        return multiply
    nbytes = splits * p.count * p.m * p.n * p.sum_dtype.itemsize
    return LaunchSequence((multiply, reduce(runtime, p, splits)), (nbytes,))
