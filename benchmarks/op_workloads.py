"""Workloads of the benchmark `kernels`: calls of declared ops on given shapes, the same for every framework.

The bytes and operations of a call follow from the op's declaration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.precision import Precision
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OPS, OpDef

Shape = tuple[int, ...]
_DISTINCT = 3_999_971
"""Random numbers before they repeat; a prime, so that no two rows of a matrix are equal."""
_BACKWARD = {"attention": 3.5}
"""Multiply-adds of a forward and backward pass relative to the forward pass. The default is 3: one more product per
operand. Attention recomputes its scores in the backward pass."""

_INTENSE = 8
"""Operations per byte above which a product counts as compute-bound; every device has a higher ratio."""


def normal_numbers(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Return normal random numbers that repeat after some millions: drawing more would take longer than the ops."""
    size = math.prod(shape)
    return np.resize(rng.standard_normal(min(size, _DISTINCT), dtype=np.float32), shape)


@dataclass(frozen=True, slots=True)
class OpWorkload:
    """One op on inputs of `shapes`, where None is an absent optional input."""

    name: str
    op: str
    shapes: tuple[Shape | None, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    precision: Precision = "highest"
    transposed: tuple[int, ...] = ()
    """Inputs that are transposed views of contiguous matrices."""
    channels_last: bool = False
    """Images and weights are stored with channels last, and so are results."""
    indices: Mapping[int, int] = field(default_factory=dict)
    """Inputs of int64 indices, with their upper bound."""
    expanded: Mapping[int, Shape] = field(default_factory=dict)
    """Inputs that the op reads as views of a larger shape, along whose new elements they repeat."""
    backward: bool = False
    """Include the gradients of all floating-point inputs."""
    summed: bool = False
    """The gradient of the result is one number for all elements, a broadcast view, as after `sum`."""
    fraction: float = 1.0
    """Fraction of the op's declared operations that is necessary: half of them under a causal mask."""
    wall: bool = False
    """Always timed by the host's clock, to measure the cost of a call."""

    @property
    def limit(self) -> str:
        """Name of the peak rate that bounds it: a field of `Peak`, or the dtype of a matrix unit; empty if none is known.

        Matrix units exceed the rate of multiply-adds in float32 at the precisions `high` and `medium`, by several algorithms.
        """
        if self.wall:
            return ""
        if self.work()[1] == 0:
            return "bytes_per_s"
        if self.dtype == "float32":
            return "flops_per_s" if self.precision == "highest" else ""
        return self.dtype

    @property
    def definition(self) -> OpDef:
        op: OpDef = OPS[self.op]
        return op

    def arrays(self) -> list[np.ndarray | None]:
        """Return the inputs, the same for every framework. Floats are float32, for the framework to cast to `dtype`."""
        rng = np.random.default_rng(0)
        arrays: list[np.ndarray | None] = []
        for i, shape in enumerate(self.shapes):
            if shape is None:
                arrays.append(None)
            elif i in self.indices:
                arrays.append(rng.integers(0, self.indices[i], shape))
            else:
                arrays.append(normal_numbers(rng, shape[::-1] if i in self.transposed else shape))
        return arrays

    def _specs(self, shapes: Sequence[Shape | None]) -> tuple[Spec | None, ...]:
        kinds = [as_dtype("int64" if i in self.indices else self.dtype) for i in range(len(shapes))]
        return tuple(None if s is None else contiguous(d, s) for s, d in zip(shapes, kinds, strict=True))

    def work(self) -> tuple[int, int]:
        """Return the bytes that a call must move and its operations; whichever does not bound it is 0."""
        op, specs = self.definition, self._specs([self.expanded.get(i, s) for i, s in enumerate(self.shapes)])
        bound = op.bind(tuple({**op.schema.params, **self.params}.values()))
        outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, specs, bound))
        moved = sum(s.nbytes for s in (*self._specs(self.shapes), *outputs) if s is not None)
        if "precision" in op.settings and op.flops is not None:
            flops = op.flops(specs, outputs, bound) * self.fraction
            if flops > _INTENSE * moved:
                return 0, int(flops * (_BACKWARD.get(self.op, 3.0) if self.backward else 1.0))
        return moved * (2 if self.backward else 1), 0


def _products(side: int, **more: Any) -> list[OpWorkload]:
    """Return a square product with each operand plain and transposed."""
    products = []
    for transposed in ((), (0,), (1,), (0, 1)):
        name = f"matmul {side}" + "".join(f" {'ab'[i]}ᵀ" for i in transposed)
        products.append(OpWorkload(name, "matmul", ((side, side),) * 2, transposed=transposed, **more))
    return products


def _attention(shape: Shape, name: str, **more: Any) -> list[OpWorkload]:
    """Return causal attention without and with gradients."""
    shapes, params = (shape, shape, shape, None), {"causal": True}
    forward = OpWorkload(f"attention {name}", "attention", shapes, params, fraction=0.5, **more)
    return [forward, replace(forward, name=f"{forward.name} and gradients", backward=True)]


def _shared_heads(name: str, heads: int, keys: Shape, queries: int, causal: bool, **more: Any) -> OpWorkload:
    """Return attention of `queries` queries per head, whose `heads` heads share the heads of `keys` evenly."""
    batch, shared, length, features = keys
    lead, one = (batch, shared, heads // shared), (batch, shared, 1, length, features)
    query, whole = (*lead, queries, features), (*lead, length, features)
    fraction = 0.5 if causal else 1.0
    shapes, views = (query, one, one, None), {1: whole, 2: whole}
    return OpWorkload(
        f"attention {name}", "attention", shapes, {"causal": causal}, fraction=fraction, expanded=views, **more
    )


def _half_attention() -> list[OpWorkload]:
    """Return attention in 16 bits: several sizes of heads, shared heads, gradients of a sum, and decoding from a cache."""
    wide, shared = (4, 32, 4096, 128), (4, 8, 4096, 128)
    bfloat16: dict[str, Any] = {"dtype": "bfloat16"}
    broadcast = [
        OpWorkload(
            f"attention {name} and gradients of a sum",
            "attention",
            (shape, shape, shape, None),
            {"causal": True},
            dtype=dtype,
            fraction=0.5,
            backward=True,
            summed=True,
        )
        for name, shape, dtype in (
            ("float16", (8, 16, 2048, 64), "float16"),
            ("128 bfloat16", wide, "bfloat16"),
            ("80 float16", (4, 12, 1000, 80), "float16"),
        )
    ]
    grouped = _shared_heads("128 with 8 key heads bfloat16", 32, shared, 4096, True, **bfloat16)
    return [
        *_attention(wide, "128 bfloat16", **bfloat16),
        grouped,
        replace(grouped, name=f"{grouped.name} and gradients", backward=True),
        *_attention((4, 12, 1000, 80), "80 float16", dtype="float16"),
        *_attention((2, 16, 4096, 256), "256 bfloat16", **bfloat16),
        *broadcast,
        *(
            _shared_heads(
                f"decoding {batch} with {keys} key heads bfloat16", 32, (batch, keys, length, 128), 1, False, **bfloat16
            )
            for batch, keys, length in ((1, 8, 4096), (16, 8, 4096), (64, 32, 1024))
        ),
    ]


def _convolution(name: str, x: Shape, weight: Shape, stride: int = 1, **more: Any) -> list[OpWorkload]:
    padding = weight[-1] // 2
    params = {"stride": (stride, stride), "padding": (padding, padding)}
    return [
        OpWorkload(
            f"conv {name}{' and gradients' if backward else ''}",
            "conv2d",
            (x, weight, None),
            params,
            backward=backward,
            **more,
        )
        for backward in (False, True)
    ]


_SCALE_SHIFT_GELU = {
    "steps": (("multiply", (0, 1), ()), ("add", (3, 2), ()), ("gelu", (4,), ("none",))),
    "results": (5,),
}


def _streams(n: int, side: int) -> list[OpWorkload]:
    """Return memory-bound ops on `n` elements or a square matrix with sides of `side`."""
    square, row = (side, side), (side,)
    last = {"axis": -1}
    return [
        OpWorkload("add", "add", ((n,), (n,))),
        OpWorkload("exp", "exp", ((n,),)),
        OpWorkload("gelu", "gelu", ((n,),)),
        OpWorkload("relu", "relu", ((n,),)),
        OpWorkload(
            "fused gelu(x * w + b)", "fused_elementwise", ((n // 1024, 1024), (1024,), (1024,)), _SCALE_SHIFT_GELU
        ),
        OpWorkload("add a row", "add", (square, row)),
        OpWorkload("transpose", "contiguous", (square,), transposed=(0,)),
        OpWorkload("sum", "sum", ((n,),)),
        OpWorkload("max", "max", ((n,),)),
        OpWorkload("argmax", "argmax", ((n,),)),
        OpWorkload("sum of rows", "sum", (square,), last),
        OpWorkload("sum of columns", "sum", (square,), {"axis": 0}),
        OpWorkload("argmax of rows", "argmax", (square,), last),
        OpWorkload("softmax", "softmax", (square,)),
        OpWorkload("softmax and gradient", "softmax", (square,), backward=True),
        OpWorkload("layer norm", "layer_norm", (square, row, row)),
        OpWorkload("layer norm and gradients", "layer_norm", (square, row, row), backward=True),
        OpWorkload("rms norm", "rms_norm", (square, row)),
        OpWorkload("cross entropy", "cross_entropy_rows", (square, row), indices={1: side}),
        OpWorkload("cross entropy and gradient", "cross_entropy_rows", (square, row), indices={1: side}, backward=True),
        OpWorkload("embedding", "embedding", ((side, 512), (8 * side,)), indices={1: side}),
        OpWorkload("embedding and gradient", "embedding", ((side, 512), (8 * side,)), indices={1: side}, backward=True),
        OpWorkload("matrix by vector", "matmul", (square, (side, 1))),
        OpWorkload("add 10k", "add", ((10_000,), (10_000,)), wall=True),
    ]


def _lines(n: int, side: int) -> list[OpWorkload]:
    """Return scans, sorts, pooling and normalization, on `n` elements or a square matrix with sides of `side`."""
    square, image = (side, side), (32, 128, side // 64, side // 64)
    channel, pooled = (image[1],), {"kernel": (2, 2), "stride": (2, 2)}
    near = {"padding": (1, 1), "groups": image[1]}
    return [
        OpWorkload("cumsum", "cumsum", ((n,),), {"axis": 0}),
        OpWorkload("cumsum of rows", "cumsum", (square,), {"axis": 1}),
        OpWorkload("cumsum of columns", "cumsum", (square,), {"axis": 0}),
        OpWorkload("sort", "sort_pairs", ((n // 16,),)),
        OpWorkload("sort rows", "sort_pairs", ((side, side // 4),)),
        OpWorkload("64 largest", "topk", ((n // 16,),), {"k": 64}),
        OpWorkload("64 largest of rows", "topk", (square,), {"k": 64}),
        OpWorkload("concatenate", "concat", (square, square), {"axis": 1}),
        OpWorkload("batch norm", "batch_norm", (image, channel, channel)),
        OpWorkload("batch norm and gradients", "batch_norm", (image, channel, channel), backward=True),
        OpWorkload("group norm", "group_norm", (image, channel, channel), {"groups": 32}),
        OpWorkload("group norm and gradients", "group_norm", (image, channel, channel), {"groups": 32}, backward=True),
        OpWorkload("max pool 2x2", "max_pool2d", (image,), pooled),
        OpWorkload("max pool 2x2 and gradient", "max_pool2d", (image,), pooled, backward=True),
        OpWorkload("conv 3x3 depthwise", "conv2d", (image, (image[1], 1, 3, 3), None), near),
        OpWorkload(
            "conv 3x3 depthwise and gradients", "conv2d", (image, (image[1], 1, 3, 3), None), near, backward=True
        ),
    ]


def _cpu() -> list[OpWorkload]:
    small = (4, 64, 56, 56)
    return [
        *(w for side in (256, 512, 1024, 2048) for w in _products(side)),
        OpWorkload("matmul 1000x777x1333", "matmul", ((1000, 777), (777, 1333))),
        OpWorkload("matmul 1024 float16", "matmul", ((1024, 1024),) * 2, dtype="float16"),
        OpWorkload("matmul 1024 bfloat16", "matmul", ((1024, 1024),) * 2, dtype="bfloat16"),
        *_streams(2**22, 1024),
        OpWorkload("transpose 2048", "contiguous", ((2048, 2048),), transposed=(0,)),
        *_convolution("3x3", small, (64, 64, 3, 3)),
        *_convolution("1x1", small, (64, 64, 1, 1)),
        *_convolution("7x7 3", (4, 3, 224, 224), (64, 3, 7, 7), 2),
        *_attention((4, 8, 256, 64), "4x8x256x64"),
    ]


def _matmul(a: Shape, b: Shape, dtype: str, transposed: tuple[int, ...] = ()) -> OpWorkload:
    """Return a product named after its sizes, the layout of its operands and its dtype."""
    sizes = "x".join(map(str, (*a, b[-1])))
    name = f"matmul {sizes}" + "".join(f" {'ab'[i]}ᵀ" for i in transposed) + f" {dtype}"
    return OpWorkload(name, "matmul", (a, b), dtype=dtype, transposed=transposed)


def _uneven_products() -> list[OpWorkload]:
    """Return products of few rows with a large matrix in both layouts, of many columns, and batches of small ones."""
    rows, halves = {"bfloat16": (1, 2, 8, 16, 64, 128), "float32": (1, 8)}, ("float16", "bfloat16")
    few = [
        _matmul((m, 4096), (4096, 14336), d, layout)
        for d, counts in rows.items()
        for m in counts
        for layout in ((), (1,))
    ]
    batches = [_matmul((4096, n, n), (4096, n, n), d) for n in (16, 64) for d in ("float32", "float16")]
    return [
        *few,
        *(_matmul((256, 4096), (4096, 4096), d) for d in halves),
        *(_matmul((2048, 2048), (2048, 2048), d) for d in halves),
        _matmul((16384, 768), (768, 50304), "bfloat16"),
        *batches,
    ]


def _gpu() -> list[OpWorkload]:
    sides = (1024, 4096, 8192)
    precise: list[Precision] = ["highest", "high", "medium"]
    images = {
        "3x3 64": ((32, 64, 56, 56), (64, 64, 3, 3), 1),
        "1x1 256": ((32, 256, 56, 56), (64, 256, 1, 1), 1),
        "3x3 128": ((32, 128, 28, 28), (128, 128, 3, 3), 1),
        "7x7 3": ((32, 3, 224, 224), (64, 3, 7, 7), 2),
    }
    half_images = {
        "3x3 64": ((64, 64, 56, 56), (64, 64, 3, 3), 1),
        "3x3 128, stride 2": ((64, 128, 56, 56), (128, 128, 3, 3), 2),
        "3x3 256": ((64, 256, 14, 14), (256, 256, 3, 3), 1),
        "1x1 1024": ((64, 1024, 14, 14), (256, 1024, 1, 1), 1),
        "7x7 3": ((64, 3, 224, 224), (64, 3, 7, 7), 2),
    }
    heads = (8, 16, 2048, 64)
    return [
        *(OpWorkload(f"matmul {n} {p}", "matmul", ((n, n),) * 2, precision=p) for p, n in product(precise, sides)),
        *(
            OpWorkload(f"matmul {n} {d}", "matmul", ((n, n),) * 2, dtype=d)
            for d, n in product(("float16", "bfloat16"), sides)
        ),
        *_products(4096)[1:],
        *_uneven_products(),
        *_streams(2**28, 8192),
        *_lines(2**28, 8192),
        *(
            w
            for p, (name, (x, weight, stride)) in product(precise[:2], images.items())
            for w in _convolution(f"{name} {p}", x, weight, stride, precision=p)
        ),
        *(
            w
            for name, (x, weight, stride) in half_images.items()
            for last, order in ((True, ""), (False, ", channels first"))
            for w in _convolution(f"{name} bfloat16{order}", x, weight, stride, dtype="bfloat16", channels_last=last)
        ),
        *_attention(heads, "highest"),
        *_attention(heads, "high", precision="high"),
        *_attention(heads, "float16", dtype="float16"),
        *_attention(heads, "bfloat16", dtype="bfloat16"),
        *_half_attention(),
    ]


def workloads(size: str) -> Sequence[OpWorkload]:
    """Return the workloads for a CPU ("cpu") or a discrete GPU ("gpu")."""
    return _gpu() if size == "gpu" else _cpu()
