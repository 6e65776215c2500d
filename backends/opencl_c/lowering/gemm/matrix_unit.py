"""Matrix products on the matrix units that vendors' profiles declare: 16-bit operands, summed in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import split_k, staging
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.matrix_units import MatrixUnit, UnitTile
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_DEPTH = 32
"""Terms of a k-tile."""
_GROUPS_PER_UNIT = 4
"""Target of split-K in groups per compute unit."""


def candidates(runtime: Runtime, p: Product) -> list[Callable[[], Launch]]:
    """Return the builders of a product on each unit that is in use and supports its dtype, fastest first."""
    if p.sum_class != "float":
        return []
    return [partial(build, runtime, p, unit) for unit in runtime.features.matrix_units if p.dtype in unit.dtypes]


def build(runtime: Runtime, p: Product, unit: MatrixUnit) -> Launch:
    """Build the launch with large tiles if they occupy all compute units, else with small ones. Raises KernelBuildError."""
    tile = unit.large if _count(unit.large, p) >= runtime.features.compute_units else unit.small
    return multiply(runtime, p, unit, tile)


def multiply(runtime: Runtime, p: Product, unit: MatrixUnit, tile: UnitTile) -> Launch:
    """Build the launch with tiles of this shape. Raises KernelBuildError."""
    units, tiles = runtime.features.compute_units, _count(tile, p)
    split = split_k.choose(_GROUPS_PER_UNIT * units if tiles < 2 * units else 0, tiles, p.k, _DEPTH)
    partial_sums = split.splits > 1
    macros, epilogue_args = epilogue(replace(p, bias=None, epilogue=None) if partial_sums else p)
    layouts = staging.definitions(p)
    defined = definitions(
        p,
        macros,
        tile.macros,
        unit.macros,
        DEPTH=_DEPTH,
        SPLIT_K=partial_sums,
        A_K_MAJOR=layouts["A_K_MAJOR"],
        B_K_MAJOR=layouts["B_K_MAJOR"],
        A_CHUNK=layouts["A_BYTES"] // p.dtype.itemsize,
        B_CHUNK=layouts["B_BYTES"] // p.dtype.itemsize,
    )
    target: Arguments = {"partial": Workspace(p.workspace)} if partial_sums else {"out": Tensor(p.out.place)}
    group = unit.lanes * tile.waves
    launch = runtime.launch(
        "gemm/matrix_unit",
        defined,
        {**geometry(p), **epilogue_args, **target, "split_terms": split.terms},
        (tiles // p.count * group, split.splits, p.count),
        (group, 1, 1),
    )
    if not partial_sums:
        return launch
    return LaunchSequence((launch, split_k.reduce(runtime, p, split, p.workspace)), split_k.workspace(p, split))


def _count(tile: UnitTile, p: Product) -> int:
    """Return the number of tiles that cover the results."""
    return ceil_div(p.m, tile.rows) * ceil_div(p.n, tile.columns) * p.count
