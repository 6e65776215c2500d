"""Attention on CPUs: keys and values are packed into panels, and work-items sweep register tiles of scores over them."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.attention_arguments import Attention, Definitions, delta
from polyhal.backends.opencl.lowering.matmul_arguments import longs, uints
from polyhal.backends.opencl.lowering.rows import own_exp
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_FEATURES = 256
_PACK_ROWS = 32
_TILES_EACH = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and vectors of a register tile of scores, and the most vectors of a tile of features."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width

    def panel(self, features: int) -> int:
        """Vectors per panel of features: fewer where one panel of fewer holds them all."""
        vectors = self.vectors
        while vectors > 1 and features <= vectors // 2 * self.width:
            vectors //= 2
        return vectors


def _tile(runtime: Runtime, call: Attention) -> Tile:
    width = runtime.features.vector_width
    wide = width >= 16  # AVX-512 has 32 registers; others are taken to have 16
    return Tile(6 if wide else 3, 4, width // 2 if call.real == "double" else width)


def _bound(features: int, panel: int) -> int:
    """The compiled bound for a length: few distinct values, so that few programs are built."""
    return max(64, round_up(1 << (features - 1).bit_length(), panel))


class _Packing:
    """The operands that a call wants in panels, and the workspaces that they go to."""

    def __init__(self, runtime: Runtime, call: Attention) -> None:
        self._runtime = runtime
        self._call = call
        self.tile = tile = _tile(runtime, call)
        self.in_place = call.dtype.itemsize == call.itemsize and all(
            spec.strides[-1] == 1
            and spec.strides[-2] > 0
            and spec.shape[-1] % (tile.panel(spec.shape[-1]) * tile.width) == 0
            for spec in call.specs
        )
        self.steps: list[Launch] = []
        self.sizes: list[int] = []

    def reserve(self, nbytes: int) -> Workspace:
        self.sizes.append(nbytes)
        return Workspace(self._call.temporary + len(self.sizes) - 1)

    def gathered(self, name: str) -> Parameter:
        """An operand of which whole rows are added up: in place where they lie in whole panels."""
        source, spec = self._call.operand(name)
        return source if self.in_place else self.pack(name, self.tile.panel(spec.shape[-1]) * self.tile.width, False)

    def pack(self, name: str, columns: int, turned: bool) -> Workspace:
        """Pack an operand by rows, or turned so that its rows become columns, into panels of `columns`."""
        call = self._call
        source, spec = call.operand(name)
        (length, features), (row, column) = spec.shape[-2:], spec.strides[-2:]
        if turned:
            length, features, row, column = features, length, column, row
        target = self.reserve(call.shape.count * round_up(features, columns) * length * call.itemsize)
        steps = call.shape.steps[source.index]
        definitions: Definitions = {"DTYPE": spec.dtype.name, "REAL": call.real, "NR": columns, "ROWS": _PACK_ROWS}
        parameters: list[Parameter] = [
            source, target, *uints(features, length), *longs(row, column), *call.batches(), *longs(*steps)
        ]  # fmt: skip
        items = (ceil_div(length, _PACK_ROWS), ceil_div(features, columns), call.shape.count)
        self.steps.append(
            self._runtime.launch("attention_pack", "matmul_pack", definitions, parameters, items, (1, 1, 1))
        )
        return target


def _definitions(runtime: Runtime, call: Attention, packing: _Packing) -> Definitions:
    tile = packing.tile
    keys, values = tile.panel(call.shape.d), tile.panel(call.shape.e)
    return call.definitions(
        WIDTH=tile.width, MR=tile.rows, VECTORS=tile.vectors, KEY_VECTORS=keys, VALUE_VECTORS=values,
        MAX_FEATURES=_bound(call.shape.d, keys * tile.width), MAX_VALUES=_bound(call.shape.e, values * tile.width),
        POLYNOMIAL_EXP=own_exp(runtime, call.dtype), POLYNOMIAL_PART=call.real == "float", IN_PLACE=packing.in_place,
    )  # fmt: skip


def _rows_each(runtime: Runtime, count: int, rows: int, tile: int) -> int:
    """Rows per work-item, in whole tiles: several, but no fewer items than keep every core busy."""
    wanted = 4 * runtime.features.compute_units
    tiles = ceil_div(rows, tile)
    return max(1, min(_TILES_EACH, tiles * count // wanted)) * tile


def _refusal(call: Attention) -> Declined | None:
    if call.longest <= _MAX_FEATURES:
        return None
    return Declined(f"heads of {call.longest} features; the kernel takes {_MAX_FEATURES}")


def forward(runtime: Runtime, call: Attention) -> Launch | Declined:
    """The result and the logsumexp, after keys and values are packed."""
    refused = _refusal(call)
    if refused:
        return refused
    shape, packing = call.shape, _Packing(runtime, call)
    tile = packing.tile
    keys, values = packing.pack("k", tile.columns, True), packing.gathered("v")
    each = _rows_each(runtime, shape.count, shape.t, tile.rows)
    parameters = [
        Tensor(0), keys, values, *call.masked(), Tensor(call.out), Tensor(call.out + 1), *call.lengths(), *uints(each),
        *call.strides("q"), *call.strides("v"), *call.mask_strides(),
    ]  # fmt: skip
    definitions = _definitions(runtime, call, packing)
    items = (ceil_div(shape.t, each), shape.count)
    attend = runtime.launch("attention", "attention_panels", definitions, parameters, items, (1, 1))
    return LaunchSequence("attention", (*packing.steps, attend), tuple(packing.sizes))


def backward(runtime: Runtime, call: Attention) -> Launch | Declined:
    """The gradients of the queries in one launch, of the keys and values in another, after all operands are packed."""
    refused = _refusal(call)
    if refused:
        return refused
    shape, packing = call.shape, _Packing(runtime, call)
    tile = packing.tile
    keys_turned, values_turned = packing.pack("k", tile.columns, True), packing.pack("v", tile.columns, True)
    queries_turned, slopes_turned = packing.pack("q", tile.columns, True), packing.pack("g", tile.columns, True)
    keys, queries, slopes = packing.gathered("k"), packing.gathered("q"), packing.gathered("g")
    deltas = packing.reserve(shape.count * shape.t * call.itemsize)
    steps = [*packing.steps, delta(runtime, call, deltas)]
    dq, dk, dv = (Tensor(call.out + i) for i in range(3))
    for of_keys, length, (first, second, third), packed, results in (
        (False, shape.t, ("q", "g", "k"), (keys_turned, values_turned, keys), (dq,)),
        (True, shape.s, ("k", "v", "q"), (queries_turned, slopes_turned, queries, slopes), (dk, dv)),
    ):
        each = _rows_each(runtime, shape.count, length, tile.rows)
        parameters: list[Parameter] = [
            call.operand(first)[0], call.operand(second)[0], *packed, *call.masked(), Tensor(6), deltas, *results,
            *call.lengths(), *uints(each), *call.strides(first), *call.strides(second),
            *call.strides(third), *call.strides("g"), *call.mask_strides(),
        ]  # fmt: skip
        definitions = _definitions(runtime, call, packing) | {"KEYS": of_keys}
        items = (ceil_div(length, each), shape.count)
        name = "attention_grad.keys" if of_keys else "attention_grad.queries"
        steps.append(runtime.launch(name, "attention_panels_grad", definitions, parameters, items, (1, 1)))
    return LaunchSequence("attention_grad", steps, tuple(packing.sizes))
