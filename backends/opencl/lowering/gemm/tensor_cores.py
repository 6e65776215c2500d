"""Matrix products on NVIDIA's tensor cores: which instructions, which tiles, and how float32 is represented.

16-bit operands are multiplied as they are. Float32 at precision `high` is split: on Hopper into three bfloat16 terms before the
product (bf16x3), elsewhere into two TF32 terms within it (3xTF32). At precision `medium` it is rounded to TF32 or bfloat16.
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
from polyhal.backends.opencl.lowering.gemm.tile_configs import MMA, WGMMA, TensorCoreTile, WarpgroupTile, WarpTile
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.protocol import Launch

_HALVES = (dtypes.float16, dtypes.bfloat16)
_MIN_MULTIPLY_ADDS = {1: 1 << 31, 3: 1 << 29}
"""Multiply-adds from which on writing float32 operands as that many bfloat16 terms costs less than wgmma saves."""
_MIN_REUSE = 512
"""Rows of a, or columns of b, from which on it pays to repack the other operand if it would be loaded element by element."""
_MIN_WGMMA = 128
"""Rows and columns from which on the tiles of wgmma are filled."""
Memory = Tensor | Workspace


def build(runtime: Runtime, p: Product) -> Launch | None:
    """Build the fastest launch that the driver compiles; None for dtypes and precisions without tensor cores.

    Warns if the driver refuses a kernel and the next takes its place.
    """
    for candidate in candidates(runtime, p):
        try:
            return candidate()
        except KernelBuildError as error:
            text = f"a slower kernel takes the place of one that was refused: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return None


def candidates(runtime: Runtime, p: Product) -> list[Callable[[], Launch]]:
    """Return the builders of a product on tensor cores, fastest first."""
    if p.sum_class != "float" or p.dtype not in (*_HALVES, dtypes.float32):
        return []
    if p.dtype is dtypes.float32 and p.precision == "highest":
        return []
    hopper = runtime.features.compute_capability == HOPPER and min(p.m, p.n) >= _MIN_WGMMA
    tiles: Mapping[WarpTile, float]
    if p.dtype in _HALVES:
        bf16_terms, tiles = 1, tile_configs.HALF_TILES
    elif p.precision == "high":
        bf16_terms, tiles = 3, tile_configs.TF32X3_TILES
    else:
        bf16_terms, tiles = 1, tile_configs.TF32_TILES
    worth_splitting = p.dtype in _HALVES or p.count * p.m * p.n * p.k >= _MIN_MULTIPLY_ADDS[bf16_terms]
    mma = partial(by_mma, runtime, p, tiles, tf32_terms=min(bf16_terms, 2))
    if not (hopper and worth_splitting):
        return [mma]
    return [partial(by_wgmma, runtime, p, tile_configs.WGMMA_TILES[bf16_terms]), mma]


def by_mma(runtime: Runtime, p: Product, tiles: Mapping[WarpTile, float], tf32_terms: int = 1) -> Launch:
    """Build the launch by mma.sync, or its portable fallback. Raises KernelBuildError."""
    tile, split = tile_configs.choose(runtime, p, MMA, tiles)
    macros = {"FLOAT32": p.dtype is dtypes.float32, "TF32_TERMS": tf32_terms}
    launches, workspace = _multiply(runtime, "gemm/mma", p, p, tile, split, macros, geometry(p), p.workspace)
    if tf32_terms > 1:
        launches.append(bf16_split.repair(runtime, p))
    return LaunchSequence("matmul", launches, workspace) if len(launches) > 1 else launches[0]


def by_wgmma(runtime: Runtime, p: Product, tiles: Mapping[WarpgroupTile, float]) -> Launch:
    """Build the launch by wgmma, or its portable fallback. Raises KernelBuildError."""
    tile, split = tile_configs.choose(runtime, p, WGMMA, tiles)
    if p.dtype in _HALVES:
        copies, staged, (a, b) = _repacked(runtime, p)
        args = {**geometry(staged, a, b), "a_term_stride": 0, "b_term_stride": 0}
        place = p.workspace + len(copies)
        launches, workspace = _multiply(runtime, "gemm/wgmma", p, staged, tile, split, {}, args, place)
        launches = [*(copy.launch for copy in copies), *launches]
        workspace = (*(copy.nbytes for copy in copies), *workspace)
        return LaunchSequence("matmul", launches, workspace) if len(launches) > 1 else launches[0]
    left = bf16_split.split(runtime, p, p.left, (p.m, p.k), tile.bf16_terms, p.workspace)
    right = bf16_split.split(runtime, p, p.right, (p.k, p.n), tile.bf16_terms, p.workspace + 1)
    staged = replace(p, left=left.matrix, right=right.matrix, dtype=dtypes.bfloat16)
    args = {
        **geometry(staged, Workspace(p.workspace), Workspace(p.workspace + 1)), "a_term_stride": left.term_stride,
        "b_term_stride": right.term_stride,
    }  # fmt: skip
    launches, workspace = _multiply(runtime, "gemm/wgmma", p, staged, tile, split, {}, args, p.workspace + 2)
    launches = [left.launch, right.launch, *launches]
    if tile.bf16_terms > 1:
        launches.append(bf16_split.repair(runtime, p))
    return LaunchSequence("matmul", launches, (left.nbytes, right.nbytes, *workspace))


def _repacked(runtime: Runtime, p: Product) -> tuple[list[bf16_split.SplitOperand], Product, tuple[Memory, Memory]]:
    """Repack 16-bit operands that would be loaded element by element.

    Returns the copies, the product of the operands that are then staged, and their memory.
    """
    size = p.dtype.itemsize
    a, b = p.left, p.right
    a_memory: Memory = Tensor(a.place)
    b_memory: Memory = Tensor(b.place)
    copies: list[bf16_split.SplitOperand] = []
    a_bytes = staging.choose(a, (a.row, a.column), (p.m, p.k), size, ragged=True).nbytes
    if p.n >= _MIN_REUSE and a_bytes <= size:
        copies.append(bf16_split.split(runtime, p, a, (p.m, p.k), 1, p.workspace))
        a, a_memory = copies[-1].matrix, Workspace(p.workspace)
    b_bytes = staging.choose(b, (b.column, b.row), (p.n, p.k), size, ragged=True).nbytes
    if p.m >= _MIN_REUSE and b_bytes <= size:
        place = p.workspace + len(copies)
        copies.append(bf16_split.split(runtime, p, b, (p.k, p.n), 1, place))
        b, b_memory = copies[-1].matrix, Workspace(place)
    return copies, replace(p, left=a, right=b), (a_memory, b_memory)


def _multiply(
    runtime: Runtime,
    kernel: str,
    p: Product,
    staged: Product,
    tile: TensorCoreTile,
    split: SplitK,
    macros: Definitions,
    args: Arguments,
    place: int,
) -> tuple[list[Launch], tuple[int, ...]]:
    """Build the launches that multiply the operands in `args`, laid out as in `staged`, with a workspace at `place`."""
    partial_sums = split.splits > 1
    epilogue_macros, epilogue_args = epilogue(replace(p, bias=None, epilogue=None) if partial_sums else p)
    tensor_cores = runtime.features.tensor_cores
    layouts = staging.definitions(staged, padded=staged.dtype is not p.dtype, ragged=True)
    halves = tensor_cores and p.out_dtype in _HALVES
    defined = definitions(
        staged, epilogue_macros, macros, tile.macros, layouts, WIDTH=2, TENSOR_CORES=tensor_cores, SPLIT_K=partial_sums,
        PAIRS=p.n % 2 == 0 and (partial_sums or p.out.aligned), SHORT_RESULTS=halves,
        OCTETS=halves and not partial_sums and p.n % 8 == 0 and p.out.aligned,
    )  # fmt: skip
    work_tiles = tile_configs.count(tile, p) * split.splits
    groups = min(work_tiles, runtime.features.compute_units * tile_configs.resident(runtime, tile))
    out = Workspace(place) if partial_sums else Tensor(p.out.place)
    multiply = runtime.launch(
        kernel, kernel, defined,
        {**args, **epilogue_args, "out": out, "split_terms": split.terms, "work_tiles": work_tiles},
        (groups * tile.items, 1, 1), (tile.items, 1, 1),
        target=EXTENDED_HOPPER if tensor_cores and kernel == "gemm/wgmma" else None,
    )  # fmt: skip
    launches = [multiply, split_k.reduce(runtime, p, split, place)] if partial_sums else [multiply]
    return launches, split_k.workspace(p, split)
