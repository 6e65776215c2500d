"""Attention on CPUs: a work-item takes query blocks of a head and loops over key blocks with register tiles of scores."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall, Definitions, stride_args
from polyhal.backends.opencl_c.lowering.support.rows import polynomial_exp
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_HEAD_SIZE = 256
"""Largest head that the kernels' private arrays are compiled for."""
_MIN_BOUND = 64
"""Smallest head size that is compiled for."""
_KEYS = 64
"""Keys of a key block."""
_ROWS_EACH = 32
"""Rows that a work-item copies or reduces."""
_ITEMS_PER_UNIT = 2
"""Work-items per core of a backward pass. They take equally long, so a few balance the load."""
_PARTIAL_BYTES = 256 << 20
"""Most memory for split-K partials."""


@dataclass(frozen=True, slots=True)
class CpuTile:
    """A register tile: `rows` keys by `vectors` vectors of `width` queries."""

    rows: int
    vectors: int
    width: int

    @property
    def queries(self) -> int:
        return self.vectors * self.width

    def padded(self, features: int) -> int:
        """Return the features, rounded up to whole vectors."""
        return round_up(features, self.width)

    def panel(self, features: int) -> int:
        """Return the vectors per panel of features: panels divide the features evenly."""
        return self.vectors if self.padded(features) % self.queries == 0 else 1


def _tile(runtime: Runtime, call: AttentionCall) -> CpuTile:
    width = runtime.features.vector_width
    # AVX-512 has 32 registers; others are assumed to have 16.
    return CpuTile(8 if width >= 16 else 4, 2, width // 2 if call.real == "double" else width)


class _PackedOperands:
    """Operands as rows of reals in whole vectors: used in place if they have that layout, else copied to workspaces."""

    def __init__(self, runtime: Runtime, call: AttentionCall, tile: CpuTile) -> None:
        self._runtime = runtime
        self._call = call
        self._tile = tile
        self.launches: list[Launch] = []
        self.workspace: list[int] = []
        self.args: Args = {**call.operands(), **call.geometry()}
        for name in call.names:
            self._add(name)

    def reserve(self, elements: int) -> Workspace:
        """Reserve a workspace of `elements` reals and return it."""
        self.workspace.append(elements * self._call.itemsize)
        return Workspace(self._call.first_workspace + len(self.workspace) - 1)

    def _add(self, name: str) -> None:
        call = self._call
        source, spec = call.operand(name)
        length, features = spec.shape[-2:]
        pitch = self._tile.padded(features)
        if call.dtype.itemsize == call.itemsize and spec.strides[-1] == 1 and features == pitch:
            return
        target = self.reserve(call.shape.count * length * pitch)
        head, (_, batch1, batch2) = length * pitch, call.shape.batch
        self.args |= {name: target, **stride_args(name, (batch1 * batch2 * head, batch2 * head, head, pitch, 1))}
        args: Args = {
            "x": source,
            "packed": target,
            "length": length,
            "features": features,
            "pitch": pitch,
            "rows_each": _ROWS_EACH,
            **call.batch(),
            **call.strides(name, "x"),
        }
        definitions: Definitions = {"DTYPE": spec.dtype.name, "REAL": call.real, "WIDTH": self._tile.width}
        items = (ceil_div(length, _ROWS_EACH), call.shape.count)
        self.launches.append(self._runtime.launch("attention/cpu_pack", definitions, args, items, (1, 1)))


def _definitions(runtime: Runtime, call: AttentionCall, tile: CpuTile) -> Definitions:
    d, e = call.shape.d, call.shape.e
    return call.definitions(
        WIDTH=tile.width,
        MR=tile.rows,
        VECTORS=tile.vectors,
        KEYS=_KEYS,
        KEY_VECTORS=tile.panel(d),
        VALUE_VECTORS=tile.panel(e),
        MAX_FEATURES=_bound(tile.padded(d)),
        MAX_VALUES=_bound(tile.padded(e)),
        POLYNOMIAL_EXP=polynomial_exp(runtime, call.dtype),
        POLYNOMIAL_EXP_FAST=call.real == "float",
    )


def _bound(features: int) -> int:
    """Return the head size to compile for, from a short list, so that few programs are built."""
    return max(_MIN_BOUND, 1 << (features - 1).bit_length())


def _refusal(call: AttentionCall) -> Declined | None:
    if call.head_size > _MAX_HEAD_SIZE:
        return Declined(f"heads of {call.head_size} features; the kernel takes {_MAX_HEAD_SIZE}")
    cache = call.cache
    if cache is None:
        return None
    if cache.window or cache.softcap:
        return Declined("the kernel takes a cache without a window or a bound of the scores")
    if call.dtype.itemsize != call.itemsize or call.specs[0].dtype is not call.dtype:
        return Declined(f"queries of {call.specs[0].dtype.name}, a cache of {call.dtype.name}, which would be copied")
    return None


def forward(runtime: Runtime, call: AttentionCall) -> Launch | Declined:
    """Build the launch of the output and the logsumexp: one work-item per query block and head."""
    declined = _refusal(call)
    if declined:
        return declined
    tile = _tile(runtime, call)
    packed = _PackedOperands(runtime, call, tile)
    items = (ceil_div(call.shape.t, tile.queries), call.shape.count)
    definitions = _definitions(runtime, call, tile)
    attend = runtime.launch("attention/cpu", definitions, {**packed.args, **call.outputs()}, items, (1, 1))
    return LaunchSequence((*packed.launches, attend), tuple(packed.workspace))


def _splits(runtime: Runtime, call: AttentionCall, tile: CpuTile) -> int:
    """Return the number of work-items that divide a head's queries: above 1 if heads are too few for all cores."""
    shape = call.shape
    workers = _ITEMS_PER_UNIT * runtime.features.compute_units
    partial_bytes = shape.count * shape.s * (tile.padded(shape.d) + tile.padded(shape.e)) * call.itemsize
    limits = ceil_div(shape.t, tile.queries), _PARTIAL_BYTES // partial_bytes
    return split_count(shape.count, workers, *limits, fill=True)


def backward(runtime: Runtime, call: AttentionCall) -> Launch | Declined:
    """Build one launch for all gradients; with few heads, a further one reduces split-K partials of dk and dv."""
    declined = _refusal(call)
    if declined:
        return declined
    shape, tile = call.shape, _tile(runtime, call)
    packed = _PackedOperands(runtime, call, tile)
    splits = _splits(runtime, call, tile)
    whole_vectors = tile.padded(shape.d) == shape.d and tile.padded(shape.e) == shape.e
    partial = splits > 1 or call.dtype.itemsize < call.itemsize or not whole_vectors
    args: Args = {**packed.args, **call.saved_forward_args(), "dq": call.gradient("dq"), "splits": splits}
    reductions: list[Launch] = []
    for name, features in (("dk", shape.d), ("dv", shape.e)):
        args[name] = call.gradient(name)
        if partial:
            target = args[name] = packed.reserve(splits * shape.count * shape.s * tile.padded(features))
            reductions.append(_reduction(runtime, call, tile, name, features, target, splits))
    definitions = _definitions(runtime, call, tile) | {"PARTIAL": partial}
    grad = runtime.launch("attention/cpu_grad", definitions, args, (splits, shape.count), (1, 1))
    return LaunchSequence((*packed.launches, grad, *reductions), tuple(packed.workspace))


def _reduction(
    runtime: Runtime, call: AttentionCall, tile: CpuTile, name: str, features: int, partial: Workspace, splits: int
) -> Launch:
    """Build the launch that adds up the split-K partials of a gradient."""
    rows = call.shape.count * call.shape.s
    args: Args = {
        "partial": partial,
        "out": call.gradient(name),
        "rows": rows,
        "length": call.shape.s,
        "features": features,
        "pitch": tile.padded(features),
        "splits": splits,
        "rows_each": _ROWS_EACH,
        **call.batch(),
        **call.result_strides(name, "out"),
    }
    definitions: Definitions = {"DTYPE": call.dtype.name, "REAL": call.real, "WIDTH": tile.width}
    items = (ceil_div(rows, _ROWS_EACH),)
    return runtime.launch("attention/cpu_split_reduce", definitions, args, items, (1,))
