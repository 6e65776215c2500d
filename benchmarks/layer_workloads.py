"""Workloads of the benchmark `layers`: layers and functions of whole tensors, written once for Polyhal and PyTorch.

A workload is a function of a library, which is either the module `polyhal` or the module `torch`: both have the names
that it uses. Its minimum of moved bytes and its operations are counted by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.op_workloads import normal_numbers

Shape = tuple[int, ...]
_STORED = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}
"""Dtypes of NumPy with as many bytes."""
Forward = Callable[..., Any]
"""Computes the result from a library, a layer with parameters or None, and the inputs."""


@dataclass(frozen=True, slots=True)
class LayerWorkload:
    """A function of inputs of `shapes`, forward or with gradients of all floating-point inputs and parameters."""

    name: str
    shapes: tuple[Shape, ...]
    forward: Forward
    flops: int
    """Multiplications and additions of the forward pass."""
    moved: int
    """Elements read and written by the forward pass, if each is read and written once."""
    layer: Callable[[Any], Any] | None = None
    """Makes the layer, from a library."""
    indices: Mapping[int, int] = field(default_factory=dict)
    """Inputs of int64 indices, with their upper bound."""
    backward_flops: float = 2.0
    """Operations of the backward pass relative to the forward pass: one more product for each operand."""
    backward_moved: int = 0
    """Elements that the backward pass moves; 0 means as many as the forward pass for each operand."""
    differentiable: bool = True
    """True if it is measured with gradients, too, unlike a write to an input."""
    dtype: str = "float32"
    """Dtype of floating-point inputs."""

    def arrays(self) -> list[np.ndarray]:
        """Return the inputs, the same for every framework."""
        rng = np.random.default_rng(0)
        return [
            rng.integers(0, self.indices[i], shape) if i in self.indices else normal_numbers(rng, shape)
            for i, shape in enumerate(self.shapes)
        ]

    def work(self, backward: bool) -> tuple[int, int]:
        """Return bytes that a call must move, and operations that it must do."""
        flops = self.flops * (1 + self.backward_flops) if backward else self.flops
        moved = self.moved + (self.backward_moved or 2 * self.moved) if backward else self.moved
        return np.dtype(_STORED[self.dtype]).itemsize * moved, int(flops)


def _recurrent(kind: str, inputs: int, hidden: int, layers: int, batch: int, steps: int) -> LayerWorkload:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    widths = [inputs, *[hidden] * (layers - 1)]
    weights = sum(gates * hidden * (width + hidden) for width in widths)
    return LayerWorkload(
        f"{kind} of {layers} layers, {hidden} wide, {batch} sequences of {steps}",
        ((batch, steps, inputs),),
        lambda lib, layer, x: layer(x)[0],
        flops=2 * weights * batch * steps,
        moved=weights + batch * steps * (inputs + hidden * layers * (gates + 1)),
        layer=lambda lib: getattr(lib.nn, kind)(inputs, hidden, layers, batch_first=True),
    )


def _conv1d(batch: int, channels: int, filters: int, kernel: int, length: int) -> LayerWorkload:
    sizes = (batch * channels * length, filters * channels * kernel, batch * filters * length)
    return LayerWorkload(
        f"conv1d {channels} to {filters}, kernel {kernel}",
        ((batch, channels, length), (filters, channels, kernel), (filters,)),
        lambda lib, layer, x, w, b: lib.nn.functional.conv1d(x, w, b, padding=kernel // 2),
        flops=2 * sizes[2] * channels * kernel,
        moved=sum(sizes),
    )


def _transposed(batch: int, channels: int, filters: int, kernel: int, side: int) -> LayerWorkload:
    sizes = (batch * channels * side**2, filters * channels * kernel**2, batch * filters * (2 * side) ** 2)
    return LayerWorkload(
        f"conv_transpose2d {channels} to {filters}, kernel {kernel}, stride 2",
        ((batch, channels, side, side), (channels, filters, kernel, kernel), (filters,)),
        lambda lib, layer, x, w, b: lib.nn.functional.conv_transpose2d(x, w, b, stride=2, padding=(kernel - 2) // 2),
        flops=2 * sizes[0] * filters * kernel**2,
        moved=sum(sizes),
    )


def _depthwise(batch: int, channels: int, side: int, kernel: int = 3, stride: int = 1) -> LayerWorkload:
    pixels = batch * channels * side**2
    suffix = f", stride {stride}" if stride > 1 else ""
    return LayerWorkload(
        f"depthwise convolution {kernel}x{kernel}, {channels} channels{suffix}",
        ((batch, channels, side, side), (channels, 1, kernel, kernel)),
        lambda lib, layer, x, w: lib.nn.functional.conv2d(
            x, w, None, padding=kernel // 2, groups=channels, stride=stride
        ),
        flops=2 * pixels * kernel**2 // stride**2,
        moved=pixels + pixels // stride**2,
        # Both gradients read the result's gradient; one reads the input, and one writes its gradient.
        backward_moved=2 * pixels + pixels // stride**2,
    )


def _interpolate(mode: str, batch: int, channels: int, side: int) -> LayerWorkload:
    pixels = batch * channels * side**2
    taps = {"nearest": 1, "bilinear": 4, "bicubic": 16}[mode]
    return LayerWorkload(
        f"interpolate {mode}, twice the size",
        ((batch, channels, side, side),),
        lambda lib, layer, x: lib.nn.functional.interpolate(x, scale_factor=2.0, mode=mode),
        flops=2 * 4 * pixels * taps,
        moved=5 * pixels,
        backward_flops=1.0,
        backward_moved=5 * pixels,
    )


def _scatter_add(rows: int, width: int, table: int) -> LayerWorkload:
    moved = table * width * 2 + rows * width * 3  # indices take eight bytes
    return LayerWorkload(
        f"scatter_add of {rows:,} rows of {width}",
        ((table, width), (rows, width), (rows, width)),
        lambda lib, layer, x, index, src: lib.scatter_add(x, 0, index, src),
        flops=rows * width,
        moved=moved,
        indices={1: table},
        backward_flops=0.0,
        backward_moved=table * width * 2 + rows * width * 3,
    )


def _write_rows(rows: int, width: int, table: int) -> LayerWorkload:
    """Replace rows of a large tensor in its memory: the moved bytes do not depend on its size."""
    return LayerWorkload(
        f"index_copy_ of {rows:,} rows of {width} to {table:,}",
        ((table, width), (rows,), (rows, width)),
        lambda lib, layer, x, index, src: x.index_copy_(0, index, src),
        flops=0,
        moved=rows * (2 * width + 2),
        indices={1: table},
        differentiable=False,
    )


def _index_add(rows: int, width: int, table: int) -> LayerWorkload:
    moved = table * width * 2 + rows * (width + 2)
    return LayerWorkload(
        f"index_add of {rows:,} rows of {width}",
        ((table, width), (rows,), (rows, width)),
        lambda lib, layer, x, index, src: lib.index_add(x, 0, index, src),
        flops=rows * width,
        moved=moved,
        indices={1: table},
        backward_flops=0.0,
        backward_moved=moved,
    )


def _einsum(name: str, equation: str, shapes: tuple[Shape, ...], flops: int, kept: int) -> LayerWorkload:
    return LayerWorkload(
        f"einsum {name}",
        shapes,
        lambda lib, layer, *operands: lib.einsum(equation, *operands),
        flops=flops,
        moved=sum(map(math.prod, shapes)) + kept,
    )


def _einsums(batch: int, length: int, heads: int, width: int, side: int) -> Sequence[LayerWorkload]:
    head = (batch, length, heads, width)
    scores = batch * heads * length**2
    chain = (side, side)
    return (
        _einsum("bqhd,bkhd->bhqk", "bqhd,bkhd->bhqk", (head, head), 2 * scores * width, scores),
        _einsum(
            "bhqk,bkhd->bqhd",
            "bhqk,bkhd->bqhd",
            ((batch, heads, length, length), head),
            2 * scores * width,
            math.prod(head),
        ),
        _einsum("ab,bc,dc->ad", "ab,bc,dc->ad", (chain, chain, chain), 4 * side**3, side**2),
    )


def _attention(
    sequences: int,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    width: int,
    dtype: str = "bfloat16",
    summed: bool = False,
) -> LayerWorkload:
    """Return causal attention of several queries, or of the last query of each sequence; `heads` of queries and of keys.

    With `summed`, the gradient of the result is broadcast from one number.
    """
    (of_queries, of_keys), (queries, keys) = heads, lengths
    causal = queries > 1

    def forward(lib: Any, layer: Any, q: Any, k: Any, v: Any) -> Any:
        y = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=of_keys != of_queries)
        return y.sum() if summed else y

    shapes = ((sequences, of_queries, queries, width), *((sequences, of_keys, keys, width),) * 2)
    shared = f" sharing {of_keys}" if of_keys != of_queries else ""
    flops = 4 * sequences * of_queries * queries * keys * width
    return LayerWorkload(
        f"{'sum of ' * summed}attention, {sequences} x {of_queries} heads{shared}, {queries} by {keys}, {width} wide, {dtype}",
        shapes,
        forward,
        flops=flops // 2 if causal else flops,
        moved=2 * math.prod(shapes[0]) + 2 * math.prod(shapes[1]),
        backward_flops=2.5,
        differentiable=causal,
        dtype=dtype,
    )


def _embedding_bag(rows: int, width: int, bags: int, length: int, ragged: bool) -> LayerWorkload:
    read = bags * length
    starts = np.sort(np.random.default_rng(1).integers(0, read, bags))
    starts[0] = 0

    def forward(lib: Any, layer: Any, weight: Any, index: Any, *offsets: Any) -> Any:
        return lib.nn.functional.embedding_bag(index, weight, *offsets, mode="sum")

    def with_offsets(lib: Any, layer: Any, weight: Any, index: Any) -> Any:
        return forward(lib, layer, weight, index, layer)

    def offsets(lib: Any) -> Any:
        return lib.tensor(starts)

    return LayerWorkload(
        f"embedding_bag of {rows:,} x {width}, {bags:,} bags of {'about ' * ragged}{length}",
        ((rows, width), (read,) if ragged else (bags, length)),
        with_offsets if ragged else forward,
        flops=read * width,
        moved=(read + bags) * width + 2 * read,
        layer=offsets if ragged else None,
        indices={1: rows},
        backward_flops=1.0,
        backward_moved=(rows + bags) * width + 2 * read,
    )


_CPU = (
    _recurrent("LSTM", 256, 256, 2, 32, 64),
    _recurrent("GRU", 256, 256, 2, 32, 64),
    _conv1d(16, 64, 128, 5, 2048),
    _transposed(16, 128, 64, 4, 32),
    _depthwise(8, 256, 56),
    _depthwise(8, 256, 56, stride=2),
    _interpolate("nearest", 16, 64, 64),
    _interpolate("bilinear", 16, 64, 64),
    _interpolate("bicubic", 16, 64, 64),
    _scatter_add(1_000_000, 8, 65_536),
    _index_add(1_000_000, 16, 65_536),
    _write_rows(2, 32, 262_144),
    *_einsums(8, 256, 8, 64, 768),
    _embedding_bag(100_000, 128, 1024, 32, False),
    _embedding_bag(100_000, 128, 1024, 32, True),
)
_GPU = (
    _recurrent("LSTM", 256, 256, 2, 32, 64),
    _recurrent("LSTM", 1024, 1024, 2, 128, 128),
    _recurrent("GRU", 256, 256, 2, 32, 64),
    _conv1d(64, 64, 128, 5, 4096),
    _transposed(64, 128, 64, 4, 64),
    _depthwise(64, 256, 56),
    _depthwise(64, 256, 56, stride=2),
    _interpolate("nearest", 32, 64, 128),
    _interpolate("bilinear", 32, 64, 128),
    _interpolate("bicubic", 32, 64, 128),
    _scatter_add(1_000_000, 32, 65_536),
    _index_add(1_000_000, 128, 65_536),
    _write_rows(2, 32, 262_144),
    *_einsums(16, 1024, 16, 64, 4096),
    _embedding_bag(100_000, 128, 16_384, 32, False),
    _embedding_bag(100_000, 128, 16_384, 32, True),
    _attention(8, (16, 16), (2048, 2048), 64, "float16"),
    _attention(8, (16, 16), (2048, 2048), 64, "float16", summed=True),
    _attention(4, (12, 12), (1000, 1000), 80, "float16"),
    _attention(4, (32, 32), (4096, 4096), 128),
    _attention(4, (32, 32), (4096, 4096), 128, summed=True),
    _attention(4, (32, 8), (4096, 4096), 128),
    _attention(4, (8, 8), (4096, 4096), 256),
    _attention(1, (32, 8), (1, 4096), 128),
    _attention(16, (32, 8), (1, 4096), 128),
    _attention(64, (32, 32), (1, 1024), 128),
)


def workloads(size: str) -> Sequence[LayerWorkload]:
    """Return the workloads for processors ("cpu") or GPUs ("gpu")."""
    return _GPU if size == "gpu" else _CPU
