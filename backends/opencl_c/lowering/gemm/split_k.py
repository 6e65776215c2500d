"""Split-K for matrix products: groups divide a tile's terms, and a second launch reduces their partial results."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Argument, Tensor, Workspace
from polyhal.backends.common.launching.split_k import SplitK, split_k
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions
from polyhal.backends.opencl_c.lowering.support.epilogue import aligned, epilogue
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_MIN_TERMS = 256
"""Minimum terms of a split that saves more than it costs."""
_MAX_SPLITS = 128
_PER_ITEM = 4
"""Adjacent results that a work-item reduces at a time."""


def choose(groups: int, tiles: int, k: int, depth: int) -> SplitK:
    """Split `k` terms so that `tiles` tiles occupy up to `groups` groups, in multiples of `depth` terms."""
    return split_k(k, tiles, groups, _MAX_SPLITS, min_terms=_MIN_TERMS, multiple=depth)


def workspace(p: Product, split: SplitK) -> tuple[int, ...]:
    """Return the bytes of the workspace for partial results, and row sums behind them; empty without a split."""
    size = p.count * p.m * p.n + (0 if p.row_sums is None else p.m)
    return (split.splits * size * p.sum_dtype.itemsize,) if split.splits > 1 else ()


def reduce(runtime: Runtime, p: Product, split: SplitK, place: int) -> Launch:
    """Build the launch that reduces the partial results in workspace `place`, applies the epilogue and stores."""
    macros, epilogue_args = epilogue(p)
    size = p.count * p.m * p.n
    width = _PER_ITEM if aligned(p, _PER_ITEM) else 1
    rows: dict[str, Argument] = {} if p.row_sums is None else {"row_sums": Tensor(p.row_sums)}
    return runtime.launch(
        "gemm/split_k_reduce",
        definitions(p, macros, WIDTH=width, ROW_SUMS=bool(rows)),
        {
            "partial": Workspace(place),
            **epilogue_args,
            "out": Tensor(p.out.place),
            "size": size,
            "n": p.n,
            "splits": split.splits,
            "m": p.m,
            "batch1": p.batch[1],
            "batch2": p.batch[2],
            **rows,
        },
        (size // width + (p.m if rows else 0),),
        (runtime.features.group_size,),
    )
