"""Matrix products on NVIDIA's tensor cores: which instructions, which tiles, and in how many parts float32 is multiplied.

Half precision is multiplied as it is. Float32 at precision `high` is split, on Hopper into three bfloat16 numbers before the
product, elsewhere into two TF32 numbers within it; at `medium` it is rounded to one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.products import Product
from polyhal.backends.common.templating import Definitions
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering import matmul_shares, matmul_split, matmul_staging
from polyhal.backends.opencl.lowering.epilogue import epilogue
from polyhal.backends.opencl.lowering.matmul_arguments import definitions, longs, operands, uints
from polyhal.backends.opencl.lowering.matmul_shares import Shares
from polyhal.backends.opencl.ptx import Target
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.protocol import Launch

_HOPPER = 90
"""Compute capability times ten. wgmma exists there and nowhere else."""
_EXTENDED = Target("sm_90a")
_HALVES = (dtypes.float16, dtypes.bfloat16)
_LINE = 64
"""Terms of a strip of wgmma."""
_WORTH_SPLITTING = 1 << 29
"""Multiplications from which on writing the parts of operands to memory costs less than it saves."""
_WIDE_ENOUGH = 128
"""Rows and columns from which on tiles of wgmma are filled."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a result that a group makes, and how fast it does, compared with the others of its list."""

    rows: int
    columns: int
    speed: float
    local_memory: int
    items: int
    depth: int
    constants: tuple[tuple[str, int], ...]

    def count(self, p: Product) -> int:
        """How many of them cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count


def warp_tile(
    itemsize: int, rows: int, columns: int, warp: tuple[int, int], depth: int, stages: int, speed: float
) -> Tile:
    """A tile of matmul_mma.cl."""
    # The longer of what lines along terms and along places take, with the padding that keeps banks apart.
    nbytes = stages * sum(max(n * (depth * itemsize + 16), depth * (n * itemsize + 32)) for n in (rows, columns))
    constants = {
        "TILE_ROWS": rows, "TILE_COLUMNS": columns, "WARP_ROWS": warp[0], "WARP_COLUMNS": warp[1], "DEPTH": depth,
        "STAGES": stages,
    }  # fmt: skip
    items = 32 * (rows // warp[0]) * (columns // warp[1])
    return Tile(rows, columns, speed, nbytes, items, depth, tuple(constants.items()))


def team_tile(teams: int, columns: int, stages: int, parts: int, speed: float) -> Tile:
    """A tile of matmul_wgmma.cl."""
    nbytes = stages * parts * (64 * teams + columns) * _LINE * 2
    constants = {"TEAMS": teams, "WIDE": columns, "STAGES": stages, "PARTS": parts}
    return Tile(64 * teams, columns, speed, nbytes, 128 * teams, _LINE, tuple(constants.items()))


HALF_TILES = (
    warp_tile(2, 128, 256, (64, 64), 64, 3, 1.0), warp_tile(2, 128, 128, (64, 64), 64, 3, 0.95),
    warp_tile(2, 128, 128, (64, 64), 32, 4, 0.9), warp_tile(2, 64, 64, (32, 32), 64, 3, 0.6),
)  # fmt: skip
ROUNDED_TILES = (
    warp_tile(4, 128, 128, (64, 64), 32, 3, 1.0), warp_tile(4, 128, 128, (64, 64), 16, 4, 0.95),
    warp_tile(4, 64, 64, (32, 32), 32, 3, 0.6),
)  # fmt: skip
SPLIT_TILES = (
    warp_tile(4, 128, 128, (64, 32), 32, 3, 1.0), warp_tile(4, 128, 64, (64, 32), 16, 4, 0.95),
    warp_tile(4, 64, 64, (32, 32), 16, 3, 0.7),
)  # fmt: skip
TEAM_TILES = {
    1: (team_tile(2, 256, 4, 1, 1.0), team_tile(2, 128, 5, 1, 0.75), team_tile(1, 128, 4, 1, 0.6)),
    3: (team_tile(2, 128, 2, 3, 1.0), team_tile(1, 128, 2, 3, 0.6)),
}
"""By the number of parts."""


def choose(runtime: Runtime, p: Product, tiles: tuple[Tile, ...]) -> tuple[Tile, Shares]:
    """The tile, of those that the device can hold, and the shares of its terms, that finish first."""
    units = runtime.features.compute_units
    most = runtime.features.static_local_memory
    fitting = [t for t in tiles if t.local_memory <= most] or [min(tiles, key=lambda t: t.local_memory)]

    def shares(tile: Tile) -> Shares:
        return matmul_shares.share_out(units, tile.count(p), p.k, tile.depth)

    def time(tile: Tile) -> float:
        shared = shares(tile)
        return ceil_div(tile.count(p) * shared.count, units) * tile.rows * tile.columns * shared.terms / tile.speed

    best = min(fitting, key=time)
    return best, shares(best)


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
    if p.kind != "float" or p.dtype not in (*_HALVES, dtypes.float32):
        return []
    if p.dtype is dtypes.float32 and p.precision == "highest":
        return []
    hopper = runtime.features.compute_capability == _HOPPER and min(p.m, p.n) >= _WIDE_ENOUGH
    worth_splitting = p.count * p.m * p.n * p.k >= _WORTH_SPLITTING
    tiles: tuple[Tile, ...]
    if p.dtype in _HALVES:
        parts, tiles, worth = 1, HALF_TILES, True
    elif p.precision == "high":
        parts, tiles, worth = 3, SPLIT_TILES, worth_splitting
    else:
        parts, tiles, worth = 1, ROUNDED_TILES, worth_splitting
    by_mma = partial(by_warps, runtime, p, tiles, parts=min(parts, 2))
    return [partial(by_teams, runtime, p, parts), by_mma] if hopper and worth else [by_mma]


def by_warps(runtime: Runtime, p: Product, tiles: tuple[Tile, ...], parts: int = 1) -> Launch:
    """With mma.sync, or its twin; float32 in so many TF32 parts. Raises KernelBuildError."""
    tile, shares = choose(runtime, p, tiles)
    defined = {"FLOAT32": p.dtype is dtypes.float32, "PARTS": parts}
    given: list[Parameter] = [Tensor(p.left.place), Tensor(p.right.place)]
    steps, sums = _multiply(runtime, "matmul_mma", p, p, tile, shares, defined, given, p.temporary)
    if parts > 1:
        steps.append(matmul_split.repair(runtime, p))
    return LaunchSequence("matmul", steps, sums) if len(steps) > 1 else steps[0]


def by_teams(runtime: Runtime, p: Product, parts: int) -> Launch:
    """With wgmma, or its twin; float32 in so many bfloat16 parts. Raises KernelBuildError."""
    if p.dtype in _HALVES:
        tile, shares = choose(runtime, p, TEAM_TILES[1])
        given: list[Parameter] = [Tensor(p.left.place), Tensor(p.right.place)]
        steps, sums = _multiply(runtime, "matmul_wgmma", p, p, tile, shares, {}, given, p.temporary, longs(0, 0))
        return LaunchSequence("matmul", steps, sums) if len(steps) > 1 else steps[0]
    tile, shares = choose(runtime, p, TEAM_TILES[parts])
    left = matmul_split.parts(runtime, p, p.left, (p.m, p.k), parts, p.temporary)
    right = matmul_split.parts(runtime, p, p.right, (p.k, p.n), parts, p.temporary + 1)
    split = replace(p, left=left.matrix, right=right.matrix, dtype=dtypes.bfloat16)
    none = Constant(0, "ulong")
    given = [Workspace(p.temporary), none, Workspace(p.temporary + 1), none]
    steps, sums = _multiply(
        runtime, "matmul_wgmma", p, split, tile, shares, {}, given, p.temporary + 2,
        longs(left.distance, right.distance),
    )  # fmt: skip
    steps = [left.launch, right.launch, *steps]
    if parts > 1:
        steps.append(matmul_split.repair(runtime, p))
    return LaunchSequence("matmul", steps, (left.nbytes, right.nbytes, *sums))


def _multiply(
    runtime: Runtime,
    kernel: str,
    p: Product,
    staged: Product,
    tile: Tile,
    shares: Shares,
    constants: Definitions,
    given: list[Parameter],
    place: int,
    more: list[Parameter] | None = None,
) -> tuple[list[Launch], tuple[int, ...]]:
    """The launches that multiply the operands `given`, which lie as in `staged`, and their workspace, at `place`."""
    shared = shares.count > 1
    finishing, finishing_parameters = epilogue(replace(p, bias=None, epilogue=None) if shared else p)
    target: Parameter = Workspace(place) if shared else Tensor(p.out.place)
    units = runtime.features.tensor_cores
    staging = matmul_staging.definitions(staged, padded=staged is not p)
    defined = definitions(
        staged, finishing, constants, dict(tile.constants), staging, WIDTH=2, TENSOR_CORES=units, SPLIT=shared,
        PAIRS=p.n % 2 == 0 and (shared or p.out.aligned),
    )  # fmt: skip
    multiply = runtime.launch(
        kernel, kernel, defined,
        [
            *given, *finishing_parameters, target, *uints(p.m, p.n, p.k, shares.terms), *operands(staged),
            *(more or []),
        ],
        (tile.count(p) // p.count * tile.items, shares.count, p.count), (tile.items, 1, 1),
        target=_EXTENDED if units and kernel == "matmul_wgmma" else None,
    )  # fmt: skip
    sums = shares.workspace(p)
    return ([multiply, matmul_shares.total(runtime, p, shares, place)] if shared else [multiply]), sums
