"""Attention on CPUs: a work-item takes blocks of queries of a head and sweeps register tiles of scores over the keys."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.attention.arguments import Attention, Definitions
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.support.rows import own_exp
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_FEATURES = 256
_ROWS = 32
"""Rows that a work-item copies or adds up."""
_ITEMS_PER_UNIT = 2
"""Work-items per core of a backward pass: they are alike, so that few are shared out evenly."""
_PARTIAL_BYTES = 256 << 20
"""Most memory for the sums of work-items that share a head."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A register tile, `rows` keys by `vectors` vectors of `width` queries, and the keys of a block of scores."""

    rows: int
    vectors: int
    width: int
    keys: int

    @property
    def queries(self) -> int:
        return self.vectors * self.width

    def padded(self, features: int) -> int:
        """Features in whole vectors."""
        return round_up(features, self.width)

    def panel(self, features: int) -> int:
        """Vectors per panel of features, into which they fall without a rest."""
        return self.vectors if self.padded(features) % (self.vectors * self.width) == 0 else 1


def _blocks(runtime: Runtime, call: Attention) -> Blocks:
    width = runtime.features.vector_width
    wide = width >= 16  # AVX-512 has 32 registers; others are taken to have 16
    return Blocks(8 if wide else 4, 2, width // 2 if call.real == "double" else width, keys=64)


class _Operands:
    """Operands as rows of reals in whole vectors: where they lie if that is how they lie, else in workspaces."""

    def __init__(self, runtime: Runtime, call: Attention, blocks: Blocks) -> None:
        self._runtime = runtime
        self._call = call
        self._blocks = blocks
        self.steps: list[Launch] = []
        self.sizes: list[int] = []
        self.memory: list[Parameter] = []
        self.strides: list[Parameter] = []
        for name in call.names:
            self._add(name)

    def reserve(self, elements: int) -> Workspace:
        self.sizes.append(elements * self._call.itemsize)
        return Workspace(self._call.temporary + len(self.sizes) - 1)

    def _add(self, name: str) -> None:
        call = self._call
        source, spec = call.operand(name)
        length, features = spec.shape[-2:]
        pitch = self._blocks.padded(features)
        if call.dtype.itemsize == call.itemsize and spec.strides[-1] == 1 and features == pitch:
            self.memory.append(source)
            self.strides += call.strides(name)
            return
        target = self.reserve(call.shape.count * length * pitch)
        size, (_, b1, b2) = length * pitch, call.shape.batch
        self.memory += [target, Constant(0, "ulong")]
        self.strides += longs(b1 * b2 * size, b2 * size, size, pitch, 1)
        parameters = [source, target, *uints(length, features, pitch, _ROWS), *call.batches(), *call.strides(name)]
        definitions: Definitions = {"DTYPE": spec.dtype.name, "REAL": call.real, "WIDTH": self._blocks.width}
        items = (ceil_div(length, _ROWS), call.shape.count)
        self.steps.append(
            self._runtime.launch("attention_rows", "attention/cpu_pack", definitions, parameters, items, (1, 1))
        )


def _definitions(runtime: Runtime, call: Attention, blocks: Blocks) -> Definitions:
    d, e = call.shape.d, call.shape.e
    return call.definitions(
        WIDTH=blocks.width, MR=blocks.rows, VECTORS=blocks.vectors, KEYS=blocks.keys,
        KEY_VECTORS=blocks.panel(d), VALUE_VECTORS=blocks.panel(e), MAX_FEATURES=_bound(blocks.padded(d)),
        MAX_VALUES=_bound(blocks.padded(e)), POLYNOMIAL_EXP=own_exp(runtime, call.dtype),
        POLYNOMIAL_EXP_FAST=call.real == "float",
    )  # fmt: skip


def _bound(features: int) -> int:
    """The compiled bound for a length: few distinct values, so that few programs are built."""
    return max(64, 1 << (features - 1).bit_length())


def _refusal(call: Attention) -> Declined | None:
    if call.longest <= _MAX_FEATURES:
        return None
    return Declined(f"heads of {call.longest} features; the kernel takes {_MAX_FEATURES}")


def forward(runtime: Runtime, call: Attention) -> Launch | Declined:
    """The result and the logsumexp: one launch, for the blocks of queries of all heads."""
    refused = _refusal(call)
    if refused:
        return refused
    blocks = _blocks(runtime, call)
    operands = _Operands(runtime, call, blocks)
    parameters = [
        *operands.memory, *call.masked(), Tensor(call.out), Tensor(call.out + 1), *call.lengths(),
        *call.places("out"), *operands.strides, *call.mask_strides(),
    ]  # fmt: skip
    items = (ceil_div(call.shape.t, blocks.queries), call.shape.count)
    definitions = _definitions(runtime, call, blocks)
    attend = runtime.launch("attention", "attention/cpu", definitions, parameters, items, (1, 1))
    return LaunchSequence("attention", (*operands.steps, attend), tuple(operands.sizes))


def _splits(runtime: Runtime, call: Attention, blocks: Blocks) -> int:
    """Work-items that share the queries of a head: more than one where heads are too few to keep every core busy."""
    shape = call.shape
    wanted = ceil_div(_ITEMS_PER_UNIT * runtime.features.compute_units, shape.count)
    sums = shape.count * shape.s * (blocks.padded(shape.d) + blocks.padded(shape.e)) * call.itemsize
    return max(1, min(wanted, ceil_div(shape.t, blocks.queries), _PARTIAL_BYTES // sums))


def backward(runtime: Runtime, call: Attention) -> Launch | Declined:
    """All gradients in one launch, for the heads; those of keys and values are sums of several where heads are few."""
    refused = _refusal(call)
    if refused:
        return refused
    shape, blocks = call.shape, _blocks(runtime, call)
    operands = _Operands(runtime, call, blocks)
    rows = shape.count * shape.s
    splits = _splits(runtime, call, blocks)
    gathered: list[Parameter] = []
    sums: list[Launch] = []
    whole = blocks.padded(shape.d) == shape.d and blocks.padded(shape.e) == shape.e
    partial = splits > 1 or call.dtype.itemsize < call.itemsize or not whole
    for name, features in (("dk", shape.d), ("dv", shape.e)):
        output = call.gradient(name)
        if not partial:
            gathered.append(output)
            continue
        pitch = blocks.padded(features)
        target = operands.reserve(splits * rows * pitch)
        gathered += [target, Constant(0, "ulong")]
        definitions: Definitions = {"DTYPE": call.dtype.name, "REAL": call.real, "WIDTH": blocks.width}
        parameters: list[Parameter] = [
            target, output, *uints(rows, features, pitch, splits, _ROWS, shape.s), *call.batches(), *call.places(name)
        ]  # fmt: skip
        items = (ceil_div(rows, _ROWS),)
        sums.append(
            runtime.launch("attention_sums", "attention/cpu_split_reduce", definitions, parameters, items, (1,))
        )
    parameters = [
        *operands.memory, *call.masked(), Tensor(5), Tensor(6), call.gradient("dq"), *gathered, *call.lengths(),
        *call.places(), *uints(splits), *operands.strides, *call.mask_strides(),
    ]  # fmt: skip
    definitions = _definitions(runtime, call, blocks) | {"PARTIAL": partial}
    grad = runtime.launch(
        "attention_grad", "attention/cpu_grad", definitions, parameters, (splits, shape.count), (1, 1)
    )
    return LaunchSequence("attention_grad", (*operands.steps, grad, *sums), tuple(operands.sizes))
