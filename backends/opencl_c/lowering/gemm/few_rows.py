"""Products of few rows with a large matrix, on GPUs: bound by one read of the matrix.

16-bit operands take `gemm/few_rows_mma` on tensor cores, up to 32 rows; float32 takes `gemm/few_rows`, up to 16 rows. Above,
every work-item loads so many rows that tiles are as fast.

The predicted time of a division of the work is the larger of two: all bytes of the matrix at the memory's bandwidth, and
the bytes of the busiest compute unit, its share of the rows included, at the bandwidth of its cache. A split of the terms
adds a launch and the traffic of partial sums.

The constants were fitted to an H200. Times are within 6 % of the fastest division there, the geometric mean over 64 products
of 1 to 32 rows. Devices of other vendors use the kernels only after `polyhal tune` has measured that they are faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Strided, Tensor, Workspace, early
from polyhal.backends.common.launching.split_k import SplitK, split_k
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, strided
from polyhal.backends.opencl_c.lowering.gemm.joined import divides, joined
from polyhal.backends.opencl_c.lowering.gemm.split_k import reduce, workspace
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import HALF_DTYPES
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

_MAX_ROWS = {"half": 32, "float": 16}
_MIN_BYTES = 1 << 20
"""Minimum bytes of the matrices: a smaller read takes less time than a launch."""
_LOCAL_MEMORY = 32 << 10
"""Maximum bytes of local memory of a group."""
_VECTOR_BYTES = 16
_WARPS, _STEP, _BLOCK = 8, 32, 16
"""Warps of a group, terms of a step of 16-bit floats, and columns of a block."""
_UNROLLS = range(11, 5, -1)
"""Steps of a warp in flight if rows of x are in local memory, best first. With a divisor of all steps no load is masked."""
_MIN_TERMS = 256
"""Minimum terms of a product or of a split: fewer do not occupy the warps of a group."""
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_BANDWIDTH, _UNIT_BANDWIDTH, _GROUP_BANDWIDTH = 4000, 33, 28
"""Bytes per nanosecond of an H200: of its memory, to a compute unit, and to a unit that holds only one group."""
_COPY_BANDWIDTH = 64
"""Bytes of rows of x per nanosecond that a group copies to local memory."""
_OVERLAP = 0.2
"""Part of the shorter of the two times that the longer one does not hide."""
_SLACK_OF_PAIRS = 0.04
"""Part of the time by which smaller groups of pairs of matrices may be slower by prediction: they find room earlier,
during the launch in front. A token with 22 pairs of 11,264 columns took 0.82 ms with 16 columns per group, 0.86 with 32."""
_LAUNCH_TIME = 4500
"""Nanoseconds of a split-K's second launch."""
_PARTIAL_BANDWIDTH = 1000
"""Bytes of partial sums per nanosecond that are written and read, from the cache."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """Work of a group: 8 warps, `across` the columns and `8 / across` along the terms."""

    across: int
    """0: another kernel is used."""
    column_blocks: int
    """Blocks of 16 columns per warp on tensor cores."""
    unroll: int
    """Steps of terms in flight at a time."""
    streamed: int = 0
    """1: the matrix is loaded past the first-level cache."""
    splits: int = 0
    """Splits of the terms, if there are enough terms; 0 for the number with the least predicted time."""
    per_unit: int = 0
    """Groups per compute unit that share the blocks of columns on tensor cores; 0 for a group per block."""
    resident: int = 0
    """Groups of a compute unit whose registers fit, so that groups start during the launch in front; 0 for any number."""


def _allowed(features: KernelFeatures, choice: FewRows) -> bool:
    return 0 < choice.across <= _WARPS


FAMILY = Family[FewRows](
    "matmul_few_rows",
    {"across": (1, 2, 4, 8), "column_blocks": (1, 2, 4), "unroll": (1, 2, 4), "streamed": (0, 1), "splits": (0, 1, 4)},
    _allowed,
)


def suits(runtime: Runtime, p: Product) -> bool:
    """Return whether a product, or its transpose, has few rows and vectors that are aligned, and is large enough."""
    features = runtime.features
    if features.cpu or not features.local_memory_is_real or features.max_group_size < 32 * _WARPS:
        return False
    if features.static_local_memory < _LOCAL_MEMORY:
        return False
    if p.sum_class != "float" or p.row_sums is not None:
        return False
    half = p.dtype in HALF_DTYPES and features.tensor_cores
    if not half and p.dtype is not dtypes.float32:
        return False
    p = _with_few_rows(p)
    size = p.dtype.itemsize
    return (
        p.m <= _MAX_ROWS["half" if half else "float"]
        and p.count * p.k * p.n * size >= _MIN_BYTES
        and p.k >= _MIN_TERMS
        and p.k * size % _VECTOR_BYTES == 0
        and p.left.column == 1
        and _whole_vectors(p.left, p.left.row if p.m > 1 else 0, size)
        and (_k_major(p) or (p.right.column == 1 and p.n * size % _VECTOR_BYTES == 0))
        and _whole_vectors(p.right, p.right.column if _k_major(p) else p.right.row, size)
    )


def choose(runtime: Runtime, p: Product) -> FewRows | None:
    """Return the division of a product that `suits`, or None if other kernels are used."""
    few = _with_few_rows(p)
    kind = f"{size_class(few.m, few.n, few.k)} of {p.dtype.name}, {'K-major' if _k_major(few) else 'MN-major'}"
    default = predicted(runtime.features, few)
    if not runtime.features.tensor_cores:
        default = replace(default, across=0)
    choice = runtime.tuning.choose(FAMILY, kind, default)
    return choice if choice.across else None


def choose_joined(runtime: Runtime, p: Product) -> FewRows | None:
    """Return the division of a product with several matrices that `suits`; None if there is none."""
    if not runtime.features.tensor_cores or p.dtype not in HALF_DTYPES or not _k_major(p) or p.m > p.n:
        return None
    assert p.joined is not None
    sums, slack = (replace(p, n=2 * p.n), _SLACK_OF_PAIRS) if p.joined.pairs else (p, 0.0)
    choice = predicted(runtime.features, sums, splits=1, slack=slack)
    return choice if divides(p, _columns(p, choice)) else None


def predicted(features: KernelFeatures, p: Product, splits: int = 0, slack: float = 0.0) -> FewRows:
    """Return the choice with the least predicted time for a product with few rows, with `splits` splits or the best ones.

    Where several choices are within the part `slack` of the least time, the one with the smallest groups is returned.
    """
    choices = [
        _with_terms(p, replace(inner, across=across, splits=splits))
        for inner in _inner(features, p)
        for across in FAMILY.space["across"]
    ]
    busy = [choice for choice in choices if _step(p, choice) <= p.k] or choices[-1:]
    busy = [choice for choice in busy if divides(p, _columns(p, choice))] or busy
    times = [_time(features, p, choice, _split(features, p, choice)) for choice in busy]
    near = [choice for choice, time in zip(busy, times, strict=True) if time <= min(times) * (1 + slack)]
    return min(near, key=lambda c: _columns(p, c)) if slack else busy[times.index(min(times))]


def _inner(features: KernelFeatures, p: Product) -> list[FewRows]:
    """Return the divisions of a warp's work that were fastest on an H200."""
    rows = _rows(p)
    if p.dtype not in HALF_DTYPES:
        return [FewRows(1, 1, 2 if rows <= 4 or (rows == 16 and not _k_major(p)) else 4)]
    if _k_major(p) and rows <= 16:
        # Rows that a group of several blocks reads from the cache cost more than it saves: 54 us instead of 34 for 16 of 4096.
        if not _staged(features, p, FewRows(1, 1, 8), p.k):
            return [FewRows(1, 1, 4, streamed=1)]
        steps, blocks = ceil_div(p.k, _STEP * _WARPS), ceil_div(p.n, _BLOCK) * p.count
        unroll = next((unroll for unroll in _UNROLLS if steps % unroll == 0), min(steps, 8))
        if rows > 8 or steps > unroll or blocks > 2 * features.compute_units:
            return [FewRows(1, 1, unroll, per_unit=1)]
        # All terms are in flight before the inputs are complete.
        return [FewRows(1, 1, unroll, per_unit=ceil_div(blocks, features.compute_units), resident=2)]
    if _k_major(p):
        return [FewRows(1, 2, 4, streamed=1)]
    return [FewRows(1, 4, 1), FewRows(1, 2, 2)] if rows <= 16 else [FewRows(1, 4, 2)]


def multiply(runtime: Runtime, p: Product, choice: FewRows) -> Launch:
    """Build the launch with this division of the work. Raises KernelBuildError."""
    few = p if p.joined else _with_few_rows(p)
    split = _split(runtime.features, few, choice)
    partial = split.splits > 1
    macros, epilogue_args = epilogue(replace(few, bias=None, epilogue=None) if partial else few)
    matrices, further_args = joined(few)
    half = few.dtype in HALF_DTYPES
    rows = _rows(few)
    tile = _of_tensor_cores(runtime.features, few, choice, split) if half else {"ROWS": rows}
    defined = definitions(
        few,
        macros,
        matrices,
        tile,
        K_MAJOR=_k_major(few),
        ACROSS=choice.across,
        ALONG=_WARPS // choice.across,
        UNROLL=choice.unroll,
        SPLIT_K=partial,
        TENSOR_CORES=runtime.features.tensor_cores,
    )
    del defined["WIDEN"]
    memory = Workspace(p.workspace) if partial else Tensor(p.out.place)
    args: dict[str, Argument] = {
        "x": strided(few.left),
        "y": strided(few.right),
        "out": Strided(memory, {"row": few.out.row, "column": few.out.column}),
        "rows": few.m,
        "n": few.n,
        "k": few.k,
        "split_terms": min(split.terms, few.k),
        "batch1": few.batch[1],
        "batch2": few.batch[2],
        **further_args,
        **epilogue_args,
    }
    items = 32 * _WARPS
    columns = _columns(few, choice) // (2 if few.joined and few.joined.pairs else 1)
    groups = ceil_div(few.m, rows) * ceil_div(few.n, columns)
    if choice.per_unit:
        groups = min(groups, choice.per_unit * runtime.features.compute_units)
    kernel = "gemm/few_rows_mma" if half else "gemm/few_rows"
    if half:
        args |= {name: early(args[name]) for name in ("y", "y1", "y2") if name in args}
    size = (groups * items, few.count, split.splits)
    target = Target(groups=choice.resident) if choice.resident else None
    launch = runtime.launch(kernel, defined, args, size, (items, 1, 1), target=target)
    if not partial:
        return launch
    return LaunchSequence([launch, reduce(runtime, p, split, p.workspace)], workspace(p, split))


def _of_tensor_cores(features: KernelFeatures, p: Product, choice: FewRows, split: SplitK) -> Definitions:
    """Return the definitions of the kernel for 16-bit floats: a group's work, and its rows of x in local memory."""
    along, terms = _WARPS // choice.across, min(split.terms, p.k)
    share = _STEP * ceil_div(terms, _STEP * along)
    whole = p.k % terms == 0 and share * along == terms and share % (_STEP * choice.unroll) == 0
    return {
        "ROW_BLOCKS": _rows(p) // 8,
        "COLUMN_BLOCKS": choice.column_blocks,
        "STREAMED": choice.streamed,
        "WHOLE": whole,
        "X_ROWS": _x_rows(p),
        "PERSISTENT": choice.per_unit > 0,
        "STAGED_TERMS": terms if choice.per_unit and _staged(features, p, choice, terms) else 0,
    }


def _staged(features: KernelFeatures, p: Product, choice: FewRows, terms: int) -> bool:
    """Return whether the rows of x of a group, of `terms` terms, go through local memory."""
    rows, sums = _bytes_of_rows(p, terms), 2 * 8 * 16 * _WARPS * choice.column_blocks * 4
    further = _STEP * (_WARPS * 4 + _x_rows(p))
    return rows + sums + further <= features.static_local_memory


def _bytes_of_rows(p: Product, terms: int) -> int:
    """Return the bytes of local memory for `terms` terms of the rows of x."""
    return _x_rows(p) * (2 * terms + 64)


def _x_rows(p: Product) -> int:
    """Return the rows of x in local memory."""
    return 1 << (p.m - 1).bit_length()


def _with_few_rows(p: Product) -> Product:
    return p.transposed() if p.m > p.n else p


def _k_major(p: Product) -> bool:
    return p.right.row == 1


def _whole_vectors(matrix: Matrix, line: int, size: int) -> bool:
    """Return whether every line of every matrix begins at a vector."""
    return matrix.aligned and not any(stride * size % _VECTOR_BYTES for stride in (line, *matrix.batch))


def _rows(p: Product) -> int:
    """Return the rows of a group: all, rounded up to a power of two."""
    least, most = (8, _MAX_ROWS["half"]) if p.dtype in HALF_DTYPES else (1, _MAX_ROWS["float"])
    return min(most, max(least, 1 << (p.m - 1).bit_length()))


def _columns(p: Product, choice: FewRows) -> int:
    """Return the columns of a group."""
    if p.dtype in HALF_DTYPES:
        return choice.across * 16 * choice.column_blocks
    return choice.across * (16 if _k_major(p) else 32)


def _with_terms(p: Product, choice: FewRows) -> FewRows:
    """Return the choice with fewer steps in flight if a product has too few terms."""
    while choice.unroll > 1 and _step(p, choice) > p.k:
        choice = replace(choice, unroll=choice.unroll // 2)
    return choice


def _step(p: Product, choice: FewRows) -> int:
    """Return the terms that a group processes at a time."""
    terms = 32 if p.dtype in HALF_DTYPES or _k_major(p) else 16
    return terms * choice.unroll * (_WARPS // choice.across)


def _split(features: KernelFeatures, p: Product, choice: FewRows) -> SplitK:
    """Return the split of the terms with the least predicted time."""
    tasks = ceil_div(p.m, _rows(p)) * ceil_div(p.n, _columns(p, choice)) * p.count
    step = _step(p, choice)
    counts = {
        split_k(p.k, tasks, tasks * splits, min_terms=_MIN_TERMS, multiple=step): None
        for splits in ((choice.splits,) if choice.splits else _SPLITS)
    }
    return min(counts, key=lambda split: _time(features, p, choice, split))


def _time(features: KernelFeatures, p: Product, choice: FewRows, split: SplitK) -> float:
    """Return the predicted nanoseconds of a product."""
    size, columns, rows = p.dtype.itemsize, _columns(p, choice), _rows(p)
    blocks = ceil_div(p.m, rows) * ceil_div(p.n, columns) * p.count * split.splits
    groups = min(blocks, choice.per_unit * features.compute_units) if choice.per_unit else blocks
    line = min(split.terms, p.k) * size
    read = p.count * p.k * p.n * size / _BANDWIDTH
    rate = _GROUP_BANDWIDTH if blocks <= features.compute_units else _UNIT_BANDWIDTH
    row_rate = _COPY_BANDWIDTH if choice.per_unit else rate
    each = ceil_div(blocks, groups) * columns * line / rate + min(rows, p.m) * line / row_rate
    busiest = ceil_div(groups, features.compute_units) * each
    time = max(read, busiest) + _OVERLAP * min(read, busiest)
    if split.splits == 1:
        return time
    return time + _LAUNCH_TIME + split.splits * p.count * p.m * p.n * 4 / _PARTIAL_BANDWIDTH
