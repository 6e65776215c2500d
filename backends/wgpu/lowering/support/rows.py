"""Launches over rows along one axis, with the other axes merged (shaders/wgsl/lib/rows.wgsl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import halves
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_VECTOR = 4
_GPU_ELEMENTS = 32
"""Maximum elements of a row per GPU invocation that are kept in registers."""
_GPU_SCALARS = 16
"""Maximum elements of a row per GPU invocation if it loads single elements."""
_CPU_ELEMENTS = 48
_CPU_SCALARS = 16
"""Maximum elements of a row per CPU invocation; more would take long to compile."""
_COALESCED = 32
"""Invocations of a GPU whose memory accesses coalesce; shorter rows share them."""
_MANY_ROWS = 4096
"""Rows that fill a GPU with one invocation per row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Template variables and launch parameters of a kernel over rows."""

    rows: int
    length: int
    definitions: dict[str, Any]
    args: Mapping[str, int]
    """`members` of lib/rows.wgsl."""
    groups: int

    @property
    def width(self) -> int:
        """Number of elements per vector."""
        return int(self.definitions["WIDTH"])


def arrange(runtime: Runtime, operands: Mapping[str, Spec], axis: int, kept: int = 1) -> Rows | Declined:
    """Arrange rows along `axis` of operands of equal shape; the kernel keeps `kept` of them in registers if they fit.

    `operands` are named as in the kernel.
    """
    specs = list(operands.values())
    strided = rows_along(specs, axis)
    if isinstance(strided, Declined):
        return strided
    width = _width(strided, specs)
    vectors = strided.length // width
    lanes = _lanes(runtime, strided, width, kept)
    row_vectors = ceil_div(vectors, lanes)
    if row_vectors > _max_row_vectors(runtime, width, kept):
        row_vectors = 0
    group = group_reduce.group_size(runtime, lanes, strided.count)
    definitions = {
        **group_reduce.definitions(runtime, lanes, group),
        "DTYPE": specs[0].dtype.name,
        "WIDTH": width,
        "ROW_VECTORS": row_vectors,
        "FULL": row_vectors * lanes == vectors,
        "AXES": 3 - sum(n == 1 for n in strided.outer[:2]),
    }
    groups = ceil_div(strided.count * lanes, group)
    return Rows(strided.count, strided.length, definitions, members(strided, *operands), groups)


def members(strided: StridedRows, *names: str) -> dict[str, int]:
    """Return `members` of lib/rows.wgsl for the first operands, which have these names in the kernel."""
    args = {"rows": strided.count, "length": strided.length, "rows1": strided.outer[1], "rows2": strided.outer[2]}
    for name, step, strides in zip(names, strided.steps, strided.strides, strict=False):
        args |= {f"{name}_{axis}": stride for axis, stride in enumerate(strides)} | {f"{name}_step": step}
    return args


def _width(strided: StridedRows, specs: Sequence[Spec]) -> int:
    """Return the elements per load: 4 if aligned vectors cover all rows."""
    vectors = strided.contiguous and strided.length % _VECTOR == 0 and all(s.aligned for s in specs)
    return _VECTOR if vectors and all(t % _VECTOR == 0 for s in strided.strides for t in s) else 1


def _max_row_vectors(runtime: Runtime, width: int, kept: int) -> int:
    """Return the vectors of each operand that fit in an invocation's registers."""
    if runtime.features.cpu:
        return (_CPU_ELEMENTS if width > 1 else _CPU_SCALARS) // width
    return (_GPU_ELEMENTS if width > 1 else _GPU_SCALARS) // (width * kept)


def _lanes(runtime: Runtime, strided: StridedRows, width: int, kept: int) -> int:
    """Return the number of invocations that share a row."""
    features = runtime.features
    vectors = strided.length // width
    max_row_vectors = _max_row_vectors(runtime, width, kept)
    if features.cpu:
        lanes = group_reduce.cpu_lanes(runtime, vectors)
        # Rows that do not fit in registers use one invocation each, if there are enough rows to keep the device busy.
        alone = vectors > max_row_vectors * lanes and strided.count >= group_reduce.busy_invocations(runtime) // 2
        return group_reduce.enough_lanes(runtime, 1, vectors) if alone else lanes
    if not strided.contiguous and strided.count >= _MANY_ROWS:
        # Adjacent rows are then adjacent in memory, so that accesses of adjacent invocations coalesce.
        return 1
    fitting = power_of_two_at_least(ceil_div(vectors, max_row_vectors))
    return min(features.max_group_size, max(fitting, min(_COALESCED, power_of_two_at_least(vectors))))


def in_halves(
    runtime: Runtime,
    lower: LoweringFunction,
    inputs: tuple[InputSpec | None, ...],
    outputs: tuple[Spec, ...],
    params: Params,
    axis: int,
    whole: frozenset[int] = frozenset(),
) -> Launch | Declined:
    """Lower an op over rows beyond the binding size limit as two halves of `axis`; operands in `whole` are not split."""
    launches = []
    for half in halves(inputs, outputs, axis, whole):
        launch = lower(runtime, half.inputs, half.outputs, params)
        if isinstance(launch, Declined):
            return launch
        launches.append(half.bind(launch))
    return LaunchSequence(launches)
