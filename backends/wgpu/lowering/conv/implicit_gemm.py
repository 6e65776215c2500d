"""Convolutions as implicit GEMMs: products of a matrix and windows of images, without an im2col matrix.

Kernels: shaders/wgsl/conv/implicit_gemm.wgsl in tiles, for GPUs; implicit_gemm_blocks.wgsl in register blocks, for CPUs,
for groups of few filters, as in depthwise convolution, and for GPUs whose workgroups are too small for tiles.
"""

from __future__ import annotations

import math
from dataclasses import replace

from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.conv import Correlation
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.conv.arguments import arguments, out_lanes
from polyhal.backends.wgpu.lowering.gemm import blocks, split_k, tiles
from polyhal.backends.wgpu.lowering.gemm.arguments import definitions
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

FEW_FILTERS = 4
"""Maximum filters per group for which most of a tile would be empty."""


def multiply(runtime: Runtime, c: Correlation, p: Product, out: Spec) -> Launch:
    """Return the launch of a correlation; `p` is its product, with arguments."""
    in_blocks = c.m <= FEW_FILTERS or runtime.features.cpu or not tiles.fit(runtime)
    shape: tiles.Tile | blocks.Block = tiles.choose(runtime, p)
    if in_blocks:
        shape = replace(blocks.choose(runtime, c.m, c.n, c.k), quads=1)
    groups = c.groups * shape.count(c.m, c.n)
    split = SplitK(1, c.k)
    if c.dense and (p.bias is None or c.groups == 1):
        split = split_k.choose(runtime, p, groups, blocks=in_blocks)
    variables = {
        **definitions(p, split=split.splits > 1),
        **shape.definitions(),
        "OUT_LANES": out_lanes(c, out),
        "MAJOR": "k" if math.prod(c.term_lengths) > math.prod(c.column_lengths) else "n",
    }
    source = "conv/implicit_gemm_blocks" if in_blocks else "conv/implicit_gemm"
    launch = runtime.launch(
        source, variables, arguments(c, p, split.terms, split=split.splits > 1), groups * split.splits
    )
    return split_k.with_reduction(runtime, p, launch, split.splits)
