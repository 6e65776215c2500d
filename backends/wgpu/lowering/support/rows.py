"""Launches over rows: operands walked along one axis, with the other axes numbered (see shaders/wgsl/lib/rows.wgsl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Constant, LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.rows import rows_along
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import halves
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_VECTOR = 4
_REGISTERS = 32
"""Elements of a row that an invocation of a GPU keeps in registers."""
_SCALARS = 16
"""The same where they are read one at a time."""
_CPU_REGISTERS = 48
_CPU_SCALARS = 16
"""What an invocation of a CPU keeps; more would take long to compile."""
_COALESCED = 32
"""Invocations of a GPU whose accesses go to memory together: shorter rows share such a run."""
_MANY = 4096
"""Rows that fill a GPU when each is taken by one invocation."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How a kernel over rows is compiled and launched."""

    rows: int
    length: int
    definitions: dict[str, Any]
    parameters: tuple[Parameter, ...]
    """`members` of lib/rows.wgsl."""
    groups: int

    @property
    def width(self) -> int:
        """Elements in a vector."""
        return int(self.definitions["WIDTH"])


def arrange(runtime: Runtime, specs: Sequence[Spec], axis: int, held: int = 1) -> Rows | Declined:
    """Rows along `axis` of operands of equal shape, of which `held` are kept in registers where they fit there."""
    found = rows_along(specs, axis)
    if isinstance(found, Declined):
        return found
    whole = found.contiguous and found.length % _VECTOR == 0 and all(s.aligned for s in specs)
    width = _VECTOR if whole and all(t % _VECTOR == 0 for s in found.strides for t in s) else 1
    vectors = found.length // width
    lanes = _lanes(runtime, vectors, width, found.count, held, found.contiguous)
    kept = ceil_div(vectors, lanes)
    if kept > _most(runtime, width, held):
        kept = 0
    group = group_reduce.group_size(runtime, lanes, found.count)
    definitions = {
        **group_reduce.definitions(runtime, lanes, group), "DTYPE": specs[0].dtype.name, "WIDTH": width, "HELD": kept,
        "FULL": kept * lanes == vectors, "AXES": 3 - sum(n == 1 for n in found.outer[:2]),
    }  # fmt: skip
    numbers = [found.count, found.length, *found.outer[1:]]
    for step, stride in zip(found.steps, found.strides, strict=True):
        numbers += [*stride, step]
    parameters = tuple(Constant(n, "uint") for n in numbers)
    return Rows(found.count, found.length, definitions, parameters, ceil_div(found.count * lanes, group))


def _most(runtime: Runtime, width: int, held: int) -> int:
    """Vectors that an invocation may keep of each operand."""
    if runtime.features.cpu:
        return (_CPU_REGISTERS if width > 1 else _CPU_SCALARS) // width
    return (_REGISTERS if width > 1 else _SCALARS) // (width * held)


def _lanes(runtime: Runtime, vectors: int, width: int, rows: int, held: int, contiguous: bool) -> int:
    """Invocations that share a row of so many vectors."""
    features = runtime.features
    if features.cpu:
        lanes = group_reduce.cpu_lanes(runtime, vectors)
        # Rows that do not fit in registers are walked by one invocation each, if that leaves none without work.
        alone = vectors > _most(runtime, width, held) * lanes and rows >= group_reduce.workers(runtime) // 2
        return group_reduce.enough_lanes(runtime, 1, vectors) if alone else lanes
    if not contiguous and rows >= _MANY:
        # Neighbouring rows are then neighbours in memory, as neighbouring invocations are.
        return 1
    fitting = power_of_two_at_least(ceil_div(vectors, _most(runtime, width, held)))
    return min(features.max_group_size, max(fitting, min(_COALESCED, power_of_two_at_least(vectors))))


def in_halves(
    name: str, runtime: Runtime, lower: LoweringFunction, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...],
    params: Mapping[str, Any], axis: int, whole: frozenset[int] = frozenset(),
) -> Launch | Declined:  # fmt: skip
    """An op over rows whose operands are too large for one kernel: half of `axis` at a time, but for operands `whole`."""
    launches = []
    for part in halves(inputs, outputs, axis, whole):
        launch = lower(runtime, part.inputs, part.outputs, params)
        if isinstance(launch, Declined):
            return launch
        launches.append(part.around(launch))
    return LaunchSequence(name, launches)
