"""Products with too few tiles for a GPU: groups share out the terms of a tile, and a second launch adds up their sums."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm.arguments import definitions
from polyhal.backends.opencl.lowering.support.epilogue import aligned, epilogue
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_LEAST_TERMS = 256
"""Below so many terms, a share costs more than it saves."""
_MOST_SHARES = 128
_TOGETHER = 4
"""Results that a work-item adds up side by side."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How many groups work on a tile, and how many terms each takes."""

    count: int
    terms: int

    def workspace(self, p: Product) -> tuple[int, ...]:
        """The bytes of the sums that wait for each other."""
        return (self.count * p.count * p.m * p.n * p.sum_dtype.itemsize,) if self.count > 1 else ()


def share_out(groups: int, tiles: int, k: int, depth: int) -> Shares:
    """Shares of whole strips of `depth` terms, so that `tiles` tiles employ up to `groups` groups."""
    wanted = max(1, min(groups // tiles, k // _LEAST_TERMS, _MOST_SHARES))
    terms = round_up(ceil_div(k, wanted), depth)
    return Shares(ceil_div(k, terms), terms)


def total(runtime: Runtime, p: Product, shares: Shares, place: int) -> Launch:
    """The launch that adds up the sums in workspace `place`, finishes and stores them."""
    finishing, finishing_args = epilogue(p)
    size = p.count * p.m * p.n
    width = _TOGETHER if aligned(p, _TOGETHER) else 1
    return runtime.launch(
        "matmul_sum", "gemm/split_k_reduce", definitions(p, finishing, WIDTH=width),
        {
            "partial": Workspace(place), **finishing_args, "out": Tensor(p.out.place), "size": size, "n": p.n,
            "splits": shares.count, "m": p.m, "batch1": p.batch[1], "batch2": p.batch[2],
        },
        (size // width,), (runtime.features.group_size,),
    )  # fmt: skip
