"""Rows added by index, as the gradient of an embedding is. Additions run in a fixed order, unless that would cost much."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.gather import flat_stride, row_stride
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_FEW_ADDITIONS = 40 << 20
"""Elements up to which atomic additions were faster than rows that are linked and added in order, whatever the table."""
_WIDE, _FEW_WIDE_ADDITIONS = 256, 16 << 20
"""The same for rows of so many elements, which groups that add them in order read at the speed of memory."""
ATOMIC = (dtypes.float32, dtypes.int32, dtypes.uint32)
"""What is added atomically."""


@dataclass(frozen=True, slots=True)
class Scattering:
    """How the columns of sums are dealt out."""

    columns: int = 64
    """Columns that a work-item of a CPU owns at most."""
    group: int = 128
    """Work-items of a GPU that share a row at most."""
    chain: int = 32
    """Terms of a row that are put in order; rows of more are added up by parts."""
    looks: int = 8
    """Indices that a work-item compares in one turn."""
    parts: int = 32
    """Parts of a row of many terms at most."""
    workers: int = 16
    """Groups per compute unit that rows of many terms are dealt out to."""


_SCATTERING = Scattering()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows to be added: their number, their length, and the distances between rows and between elements."""

    dtype: DType
    count: int
    width: int
    row_step: int
    column_step: int
    aligned: bool

    def parameters(self, index_step: int, *own: Parameter) -> list[Parameter]:
        """The parameters with which the kernels that read the rows end, a kernel's own in the middle."""
        return [
            Constant(self.count, "uint"), Constant(self.width, "uint"), *own,
            Constant(index_step, "long"), Constant(self.row_step, "long"), Constant(self.column_step, "long"),
        ]  # fmt: skip


def _scatter(
    runtime: Runtime, index: Spec, source: _Rows, out: Spec, places: tuple[int, int, int], *, ordered: bool
) -> Launch | Declined:
    """Add the rows of a source to those of `out`; `places` are the positions of index, source and output."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    if max(source.count, source.width) >= 1 << 31 or out.shape[0] >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    if runtime.features.cpu:
        return _scatter_by_columns(runtime, index, step, source, out, places)
    few = _FEW_WIDE_ADDITIONS if source.width >= _WIDE else _FEW_ADDITIONS
    if not ordered and out.dtype in ATOMIC and source.count * source.width <= few:
        return _scatter_atomically(runtime, index, step, source, out, places)
    return _scatter_by_rows(runtime, index, step, source, out, places)


def atomic_definitions(runtime: Runtime, index: DType, dtype: DType) -> dict[str, str | int | bool]:
    """What kernels that add atomically want to know."""
    return {
        "DTYPE": dtype.name, "INDEX_DTYPE": index.name, "IS_FLOAT": dtype.kind == "float",
        "PTX": runtime.features.float_atomics == "ptx",
    }  # fmt: skip


def _scatter_atomically(
    runtime: Runtime, index: Spec, step: int, source: _Rows, out: Spec, places: tuple[int, int, int]
) -> Launch:
    """For GPUs: one work-item per element of the source."""
    definitions = atomic_definitions(runtime, index.dtype, out.dtype)
    parameters = [*(Tensor(i) for i in places), *source.parameters(step, Constant(out.shape[0], "ulong"))]
    items = (source.count * source.width,)
    return runtime.launch(
        "scatter_atomic", "gather/scatter_add_atomic", definitions, parameters, items, (runtime.features.group_size,)
    )


def _scatter_by_columns(
    runtime: Runtime, index: Spec, step: int, source: _Rows, out: Spec, places: tuple[int, int, int]
) -> Launch:
    """For CPUs. Sums of half precision are kept in float32 until the end."""
    held = dtypes.accumulator(out.dtype) if out.dtype.kind == "float" else out.dtype
    apart = held is not out.dtype
    span = _SCATTERING.columns
    while span > 16 and ceil_div(source.width, span) < 2 * runtime.features.compute_units:
        span //= 2
    definitions: dict[str, str | int | bool] = {
        "DTYPE": held.name, "SOURCE_DTYPE": source.dtype.name, "INDEX_DTYPE": index.dtype.name, "OUT_IS_WORKSPACE": apart,
        "WIDTH": runtime.features.vector_width if held.itemsize <= 4 and source.width >= span else 1,
    }  # fmt: skip
    first_workspace = 3
    target = Workspace(first_workspace) if apart else Tensor(places[2])
    parameters = [
        *(Tensor(i) for i in places[:2]), target,
        *source.parameters(step, Constant(out.shape[0], "ulong"), Constant(span, "uint")),
    ]  # fmt: skip
    add = runtime.launch(
        "scatter_add", "gather/cpu_scatter_add", definitions, parameters, (ceil_div(source.width, span),), (1,)
    )
    if not apart:
        return add
    wide = contiguous(held, out.shape)
    widen, round_off = copy.copy(runtime, out, wide), copy.copy(runtime, wide, out)

    def run(*args: Any) -> None:
        sums = Ref(args[first_workspace], wide)
        widen(args[places[2]], sums)
        add(*args)
        round_off(sums, args[places[2]])

    return LaunchSequence("scatter_add", (run,), (wide.nbytes,))


def _scatter_by_rows(
    runtime: Runtime, index: Spec, step: int, source: _Rows, out: Spec, places: tuple[int, int, int]
) -> Launch:
    """For GPUs: groups own rows, and add them up in registers (see `gather/scatter_add_ordered.cl`)."""
    rows, count = out.shape[0], source.count
    whole = source.aligned and out.aligned and source.column_step == 1 and out.dtype.itemsize <= 4
    width = 4 if whole and source.width % 4 == 0 and source.row_step % 4 == 0 else 1
    group = min(_SCATTERING.group, max(32, power_of_two_at_least(ceil_div(source.width, width))))
    real = real_type(out.dtype)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name, "REAL": real, "GROUP": group, "WIDTH": width,
        "LONGEST": _SCATTERING.chain, "LOOKS": _SCATTERING.looks,
    }  # fmt: skip
    heads, longs = contiguous(dtypes.int32, (rows,)), contiguous(dtypes.int32, (1 + count // (_SCATTERING.chain + 1),))
    heads_place, nexts_place, longs_place, partial_place = (Workspace(3 + i) for i in range(4))
    clear, reset = copy.fill(runtime, heads), copy.fill(runtime, contiguous(dtypes.int32, (1,)))
    columns = round_up(ceil_div(source.width, width), group)

    def kernel(name: str, parameters: list[Parameter], items: tuple[int, ...]) -> Launch:
        sizes = (group, 1) if len(items) == 2 else (group,)
        return runtime.launch(
            f"scatter.{name}", "gather/scatter_add_ordered", definitions, parameters, items, sizes, kernel=name
        )

    def prepare(*args: Any) -> None:
        clear(-1, Ref(args[heads_place.index], heads))
        reset(0, Ref(args[longs_place.index], contiguous(dtypes.int32, (1,))))

    tensors = [Tensor(i) for i in places]
    ends = [Constant(rows, "ulong"), Constant(step, "long")]
    link: list[Parameter] = [tensors[0], heads_place, nexts_place, Constant(count, "uint"), *ends]
    chains = [*tensors, heads_place, nexts_place, longs_place, *source.parameters(step, Constant(rows, "ulong"))]
    steps: list[Callable[..., None]] = [
        prepare, kernel("link", link, (count,)), kernel("add_chains", chains, (columns, count))
    ]  # fmt: skip
    workspace = [heads.nbytes, 4 * count, longs.nbytes]
    if count > _SCATTERING.chain:
        turn = group * _SCATTERING.looks
        parts = max(1, min(_SCATTERING.parts, count // turn))
        piece = round_up(ceil_div(count, parts), turn)
        workers = _SCATTERING.workers * runtime.features.compute_units
        sizes = [Constant(parts, "uint"), Constant(piece, "uint")]
        add = [*tensors[:2], partial_place, longs_place, *source.parameters(step, *sizes)]
        join: list[Parameter] = [tensors[2], partial_place, longs_place, Constant(source.width, "uint"), sizes[0]]
        steps += [kernel("add_parts", add, (columns, workers)), kernel("join_parts", join, (workers * group,))]
        workspace.append((longs.size - 1) * parts * source.width * (8 if real in ("double", "long", "ulong") else 4))
    return LaunchSequence("scatter_add", steps, tuple(workspace))


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """A launch (index, source, out) that adds rows, in the order of the index. All contiguous."""
    (count, width), (row_step, column_step) = source.shape, source.strides
    rows = _Rows(source.dtype, count, width, row_step, column_step, source.aligned)
    launch = _scatter(runtime, index, rows, out, (0, 1, 2), ordered=True)
    assert not isinstance(launch, Declined)
    return launch


def after_zeros(runtime: Runtime, name: str, out: Spec, place: int, launch: Launch) -> Launch:
    zero = copy.fill(runtime, out)
    return LaunchSequence(name, (lambda *args: zero(0, args[place]), launch), launch.workspace)


def scatter_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    step = row_stride(src)
    if step is None:
        return Declined("the rows of the source are not evenly spaced")
    width = src.shape[-1]
    rows = _Rows(src.dtype, index.size, width, step, src.strides[-1] if width > 1 else 1, src.aligned)
    launch = _scatter(runtime, index, rows, out, (1, 0, 2), ordered=params["deterministic"])
    return launch if isinstance(launch, Declined) else after_zeros(runtime, "scatter_rows", out, 2, launch)
