"""Matrix products in register blocks, without workgroup memory: on CPUs, and for small or thin matrices on GPUs.

Kernel: shaders/wgsl/gemm/blocks.wgsl.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm import split_k
from polyhal.backends.wgpu.lowering.gemm.arguments import LANES, arguments, definitions, layouts
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.backends.wgpu.shader import Definitions
from polyhal.hal.protocol import Launch

_FEW_ROWS = 4
_WORTH_COMPILING = 1 << 24
"""Minimum multiply-adds for which a CPU uses a kernel that takes seconds to compile."""


@dataclass(frozen=True, slots=True)
class Block:
    """Template variables of lib/gemm_blocks.wgsl: rows and quads of columns per invocation, `down` x `across` invocations."""

    rows: int
    quads: int
    down: int
    across: int
    broadcast: bool = False

    def count(self, m: int, n: int) -> int:
        """Return the number of workgroups that cover a matrix."""
        return ceil_div(m, self.rows * self.down) * ceil_div(n, LANES * self.quads * self.across)

    def covered_area(self, m: int, n: int) -> int:
        """Return the number of results computed, including those out of range."""
        return self.count(m, n) * self.rows * self.down * self.quads * self.across

    def definitions(self) -> Definitions:
        return {
            "ROWS": self.rows,
            "QUADS": self.quads,
            "DOWN": self.down,
            "ACROSS": self.across,
            "BROADCAST": self.broadcast,
        }


def choose(runtime: Runtime, m: int, n: int, k: int) -> Block:
    """Choose the block of a product. On CPUs, large blocks reuse more but take long to compile."""
    features = runtime.features
    if not features.cpu:
        return Block(1, 1, 1, 64) if m == 1 else Block(4, 1, 1, 64) if m <= _FEW_ROWS else Block(4, 1, 4, 16)
    quads = 2 if min(m, n) > 32 and m * n * k >= _WORTH_COMPILING else 1
    if not features.subgroups or features.subgroup_sizes[0] < LANES:
        return Block(8 if m > _FEW_ROWS else _FEW_ROWS, quads, 1, 8)
    return Block(_FEW_ROWS if m <= _FEW_ROWS else 16 * quads, quads, 1, 8, broadcast=True)


def multiply(runtime: Runtime, p: Product) -> Launch:
    """Return the launch of a product, or of its transpose if it covers fewer results out of range."""
    block, transposed = choose(runtime, p.m, p.n, p.k), choose(runtime, p.n, p.m, p.k)
    if transposed.covered_area(p.n, p.m) < 0.75 * block.covered_area(p.m, p.n):
        p, block = p.transposed(), transposed
    groups = block.count(p.m, p.n) * p.count
    logical = p.dtype.kind == "bool"
    # Splits are combined by addition, but boolean products need `or`.
    split = SplitK(1, p.k) if logical else split_k.choose(runtime, p, groups, blocks=True)
    layout = layouts(p)
    if layout["A_LANES"] == 1 or p.m == 1:
        layout |= {"A_MAJOR": "k", "A_LANES": layout["A_LANES"] if layout["A_MAJOR"] == "k" else 1}
    variables = {**definitions(p, split=split.splits > 1), **block.definitions(), **layout, "LOGICAL": logical}
    args = arguments(p, split.terms, split=split.splits > 1)
    launch = runtime.launch("gemm/blocks", variables, args, groups * split.splits)
    return split_k.with_reduction(runtime, p, launch, split.splits)
