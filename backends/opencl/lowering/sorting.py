"""Sorting and the largest few along any axis: blocks sorted by groups, then merged in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.rows import Rows, walk
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_KINDS = {"uint": 0, "ulong": 0, "int": 1, "long": 1, "float": 2, "double": 2}
"""By register class; the numbers of sort_items.h."""
_RAW = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""By bytes."""

_SHORTEST_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a device sorts."""

    size: int
    """Elements of a row that a group sorts by itself, a power of two."""
    group: int
    chunk: int
    """Neighbouring elements that a work-item merges."""
    merge_group: int


def _blocks(runtime: Runtime, length: int, keep: int, wide: bool) -> Blocks:
    if runtime.features.cpu:
        # A network is quadratic in the logarithm, merging is linear: short blocks, which fit in registers.
        return Blocks(size=16, group=1, chunk=1024, merge_group=1)
    most = 512 if wide or runtime.features.local_memory < 1 << 15 else 1024
    # Where few are kept, merging costs next to nothing, and shorter blocks need fewer comparisons.
    size = min(most, max(_SHORTEST_BLOCK, power_of_two_at_least(min(length, 2 * keep))))
    return Blocks(size, group=min(runtime.features.group_size, size // 2), chunk=8, merge_group=64)


def _sort(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    return _ordered(runtime, "sort", inputs[0], outputs, params["axis"], params["descending"])


def _topk(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    return _ordered(runtime, "topk", inputs[0], outputs, params["axis"], params["largest"])


def _ordered(
    runtime: Runtime, name: str, x: InputSpec | None, outputs: tuple[Spec, ...], axis: int, descending: bool
) -> Launch | Declined:
    """The first of each row in order, as many as `outputs` hold."""
    assert isinstance(x, Spec)
    kept = Spec(x.dtype, outputs[0].shape, x.strides, x.aligned)
    found = walk((kept, *outputs), axis)
    if isinstance(found, Declined):
        return found
    kind = register_class(x.dtype)
    wide = kind in ("long", "ulong", "double")
    length = x.shape[axis]
    blocks = _blocks(runtime, length, outputs[0].shape[axis], wide)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "REAL": type_name(kind), "KIND": _KINDS.get(kind, 1), "PACKED": not wide,
        "DESCENDING": descending, "RAW": _RAW[x.dtype.itemsize],
    }  # fmt: skip
    return _Sorting(runtime, name, found, length, x.strides[axis], definitions, blocks, 16 if wide else 8).launch()


@dataclass(frozen=True, slots=True)
class _Sorting:
    """The launches that sort rows. Arguments: x, values, indices, and two workspaces of items."""

    runtime: Runtime
    name: str
    found: Rows
    """x and both results, with as many elements to a row as are kept."""
    length: int
    step: int
    """Elements from one element of a row of x to the next."""
    definitions: Mapping[str, str | int | bool]
    blocks: Blocks
    item: int
    """Bytes of an item."""

    def launch(self) -> Launch:
        blocks = ceil_div(self.length, self.blocks.size)
        if blocks == 1:
            return self._block(1, last=True)
        launches: list[Launch] = [self._block(blocks, last=False)]
        run, source, target = self.blocks.size, Workspace(3), Workspace(4)
        while run < self.length:
            launches.append(self._merge(run, source, target, last=2 * run >= self.length))
            run, source, target = 2 * run, target, source
        size = self.found.count * self.length * self.item
        return LaunchSequence(self.name, launches, (size, size))

    def _rows(self) -> list[Parameter]:
        found = self.found
        return [
            Constant(found.count, "ulong"), Constant(self.length, "uint"), Constant(1, "uint"),
            Constant(found.outer[1], "uint"), Constant(found.outer[2], "uint"),
        ]  # fmt: skip

    def _strides(self, operand: int) -> list[Parameter]:
        step = self.step if operand == 0 else self.found.steps[operand]
        return [Constant(v, "long") for v in (*self.found.strides[operand], step)]

    def _block(self, blocks: int, last: bool) -> Launch:
        results: list[Parameter] = [Tensor(1), Tensor(2)] if last else [Workspace(3)]
        after: list[Parameter] = [*self._strides(1), *self._strides(2), self._keep()] if last else []
        group = self.blocks.group
        return self.runtime.launch(
            self.name, "sort_blocks",
            {**self.definitions, "SIZE": self.blocks.size, "GROUP": group, "LAST": last},
            [Tensor(0), *results, *self._rows(), *self._strides(0), *after, Constant(blocks, "uint")],
            (self.found.count * blocks * group,), (group,),
        )  # fmt: skip

    def _merge(self, run: int, source: Workspace, target: Workspace, last: bool) -> Launch:
        pairs = ceil_div(self.length, 2 * run)
        chunks = ceil_div(min(2 * run, self.found.length), self.blocks.chunk)
        results: list[Parameter] = [Tensor(0), Tensor(1), Tensor(2)] if last else [target]
        strides = [p for operand in range(3) for p in self._strides(operand)] if last else []
        numbers = [Constant(run, "uint"), self._keep(), Constant(pairs, "uint"), Constant(chunks, "uint")]
        return self.runtime.launch(
            self.name, "sort_merge", {**self.definitions, "CHUNK": self.blocks.chunk, "LAST": last},
            [source, *results, *self._rows(), *strides, *numbers],
            (self.found.count * pairs * chunks,), (self.blocks.merge_group,),
        )  # fmt: skip

    def _keep(self) -> Constant:
        return Constant(self.found.length, "uint")


LOWERINGS = {"sort_pairs": _sort, "topk": _topk}
