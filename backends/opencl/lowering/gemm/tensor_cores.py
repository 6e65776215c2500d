"""Matrix products on NVIDIA's tensor cores: which instructions, which tiles, and in how many parts float32 is multiplied.

Half precision is multiplied as it is. Float32 at precision `high` is split, on Hopper into three bfloat16 numbers before the
product, elsewhere into two TF32 numbers within it; at `medium` it is rounded to one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm import bf16_split, split_k, staging, tile_configs
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl.lowering.gemm.tile_configs import TEAMS, WARPS, TeamTile, Tile, WarpTile
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.protocol import Launch

_HALVES = (dtypes.float16, dtypes.bfloat16)
_WORTH_SPLITTING = {1: 1 << 31, 3: 1 << 29}
"""Multiplications from which on writing the parts of operands to memory costs less than it saves, by their number."""
_WORTH_COPYING = 512
"""Places of the other operand from which on it pays to copy one, of which each element would be read by itself."""
_WIDE_ENOUGH = 128
"""Rows and columns from which on tiles of wgmma are filled."""


def build(runtime: Runtime, p: Product) -> Launch | None:
    """The fastest way to make a product that the driver takes; None where there is none.

    Warns where the driver refuses one: the next takes its place.
    """
    for way in ways(runtime, p):
        try:
            return way()
        except KernelBuildError as error:
            text = f"a slower kernel takes the place of one that was refused: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return None


def ways(runtime: Runtime, p: Product) -> list[Callable[[], Launch]]:
    """The ways to make a product on tensor cores, the fastest first; none for other dtypes than theirs."""
    if p.sum_class != "float" or p.dtype not in (*_HALVES, dtypes.float32):
        return []
    if p.dtype is dtypes.float32 and p.precision == "highest":
        return []
    hopper = runtime.features.compute_capability == HOPPER and min(p.m, p.n) >= _WIDE_ENOUGH
    tiles: Mapping[WarpTile, float]
    if p.dtype in _HALVES:
        parts, tiles = 1, tile_configs.HALF_TILES
    elif p.precision == "high":
        parts, tiles = 3, tile_configs.SPLIT_TILES
    else:
        parts, tiles = 1, tile_configs.ROUNDED_TILES
    worth = p.dtype in _HALVES or p.count * p.m * p.n * p.k >= _WORTH_SPLITTING[parts]
    by_mma = partial(by_warps, runtime, p, tiles, parts=min(parts, 2))
    return [partial(by_teams, runtime, p, tile_configs.TEAM_TILES[parts]), by_mma] if hopper and worth else [by_mma]


def by_warps(runtime: Runtime, p: Product, tiles: Mapping[WarpTile, float], parts: int = 1) -> Launch:
    """With mma.sync, or its twin; float32 in so many TF32 parts. Raises KernelBuildError."""
    tile, split_terms = tile_configs.choose(runtime, p, WARPS, tiles)
    defined = {"FLOAT32": p.dtype is dtypes.float32, "PARTS": parts}
    steps, sums = _multiply(runtime, "gemm/mma", p, p, tile, split_terms, defined, geometry(p), p.workspace)
    if parts > 1:
        steps.append(bf16_split.repair(runtime, p))
    return LaunchSequence("matmul", steps, sums) if len(steps) > 1 else steps[0]


def by_teams(runtime: Runtime, p: Product, tiles: Mapping[TeamTile, float]) -> Launch:
    """With wgmma, or its twin; float32 in the bfloat16 parts of the tiles. Raises KernelBuildError."""
    tile, split_terms = tile_configs.choose(runtime, p, TEAMS, tiles)
    if p.dtype in _HALVES:
        copies, staged, memory = _in_pieces(runtime, p)
        place = p.workspace + len(copies)
        args = {**geometry(staged, *memory), "a_part": 0, "b_part": 0}
        steps, sums = _multiply(runtime, "gemm/wgmma", p, staged, tile, split_terms, {}, args, place)
        steps = [*(c.launch for c in copies), *steps]
        sizes = (*(c.nbytes for c in copies), *sums)
        return LaunchSequence("matmul", steps, sizes) if len(steps) > 1 else steps[0]
    parts = tile.parts
    left = bf16_split.parts(runtime, p, p.left, (p.m, p.k), parts, p.workspace)
    right = bf16_split.parts(runtime, p, p.right, (p.k, p.n), parts, p.workspace + 1)
    split = replace(p, left=left.matrix, right=right.matrix, dtype=dtypes.bfloat16)
    args = {
        **geometry(split, Workspace(p.workspace), Workspace(p.workspace + 1)), "a_part": left.distance,
        "b_part": right.distance,
    }  # fmt: skip
    steps, sums = _multiply(runtime, "gemm/wgmma", p, split, tile, split_terms, {}, args, p.workspace + 2)
    steps = [left.launch, right.launch, *steps]
    if parts > 1:
        steps.append(bf16_split.repair(runtime, p))
    return LaunchSequence("matmul", steps, (left.nbytes, right.nbytes, *sums))


def _in_pieces(
    runtime: Runtime, p: Product
) -> tuple[list[bf16_split.Parts], Product, tuple[Tensor | Workspace, Tensor | Workspace]]:
    """Copies of the operands of 16-bit elements that would be read one by one, the product of them, and their memory."""
    size = p.dtype.itemsize
    copies: list[bf16_split.Parts] = []
    memory: dict[str, Tensor | Workspace] = {}
    for side, matrix, shape, strides, lengths, others in (
        ("left", p.left, (p.m, p.k), (p.left.row, p.left.column), (p.m, p.k), p.n),
        ("right", p.right, (p.k, p.n), (p.right.column, p.right.row), (p.n, p.k), p.m),
    ):
        memory[side] = Tensor(matrix.place)
        if others < _WORTH_COPYING or staging.walk(matrix, strides, lengths, size, ragged=True).nbytes > size:
            continue
        place = p.workspace + len(copies)
        copy = bf16_split.parts(runtime, p, matrix, shape, 1, place)
        p = replace(p, left=copy.matrix) if side == "left" else replace(p, right=copy.matrix)
        copies.append(copy)
        memory[side] = Workspace(place)
    return copies, p, (memory["left"], memory["right"])


def _multiply(
    runtime: Runtime,
    kernel: str,
    p: Product,
    staged: Product,
    tile: Tile,
    split: SplitK,
    constants: Definitions,
    args: Arguments,
    place: int,
) -> tuple[list[Launch], tuple[int, ...]]:
    """The launches that multiply the operands in `args`, which lie as in `staged`, and their workspace, at `place`."""
    shared = split.splits > 1
    finishing, finishing_args = epilogue(replace(p, bias=None, epilogue=None) if shared else p)
    units = runtime.features.tensor_cores
    stages = staging.definitions(staged, padded=staged.dtype is not p.dtype, ragged=True)
    defined = definitions(
        staged, finishing, constants, tile.constants, stages, WIDTH=2, TENSOR_CORES=units, SPLIT=shared,
        PAIRS=p.n % 2 == 0 and (shared or p.out.aligned),
        SHORT_RESULTS=units and p.out_dtype in _HALVES,
        OCTETS=units and not shared and p.out_dtype in _HALVES and p.n % 8 == 0 and p.out.aligned,
    )  # fmt: skip
    works = tile_configs.count(tile, p) * split.splits
    groups = min(works, runtime.features.compute_units * tile_configs.resident(runtime, tile))
    target = Workspace(place) if shared else Tensor(p.out.place)
    multiply = runtime.launch(
        kernel, kernel, defined, {**args, **finishing_args, "out": target, "terms": split.terms, "works": works},
        (groups * tile.items, 1, 1), (tile.items, 1, 1),
        target=EXTENDED_HOPPER if units and kernel == "gemm/wgmma" else None,
    )  # fmt: skip
    sums = split_k.workspace(p, split)
    return ([multiply, split_k.reduce(runtime, p, split, place)] if shared else [multiply]), sums
