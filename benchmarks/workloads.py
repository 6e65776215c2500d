"""What is measured: calls of declared ops on given shapes, the same for every framework.

The bytes and operations of a call follow from the op's declaration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.settings.precision import Precision

Shape = tuple[int, ...]
_DISTINCT = 3_999_971
"""Numbers that are drawn; a prime, so that the rows of no matrix are alike."""
_BACKWARD = {"attention": 3.5}
"""Products of a forward and backward pass over those of the forward pass; 3 for all others: one pass per operand more.
Attention multiplies its scores once more, because it does not keep them."""

_INTENSE = 8
"""Operations per byte from which on products are bound by them, and not by memory; every device has a higher ratio."""


def _normal(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Normal random numbers; from some millions on they repeat, because drawing them would take longer than the ops."""
    size = math.prod(shape)
    return np.resize(rng.standard_normal(min(size, _DISTINCT), dtype=np.float32), shape)


@dataclass(frozen=True, slots=True)
class Workload:
    """One op on inputs of `shapes`, None where an optional input is absent."""

    name: str
    op: str
    shapes: tuple[Shape | None, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    precision: Precision = "highest"
    turned: tuple[int, ...] = ()
    """Inputs that are transposed views of contiguous matrices."""
    indices: Mapping[int, int] = field(default_factory=dict)
    """Inputs that hold int64 below the given number."""
    backward: bool = False
    """With the gradients of all floating inputs."""
    part: float = 1.0
    """The share of the op's declared operations that has to be done: half of them under a causal mask."""
    wall: bool = False
    """Always timed by the host's clock: the cost of a call is what is of interest."""

    @property
    def limited(self) -> bool:
        """Whether a device's rate of copies or of float32 multiply-adds is a limit: not for what tensor cores compute."""
        return not self.wall and (self.work()[1] == 0 or (self.dtype == "float32" and self.precision == "highest"))

    @property
    def definition(self) -> OpDef:
        op: OpDef = OPS[self.op]
        return op

    def arrays(self) -> list[np.ndarray | None]:
        """The inputs, the same for every framework; floats are float32 and to be cast to `dtype`."""
        rng = np.random.default_rng(0)
        found: list[np.ndarray | None] = []
        for i, shape in enumerate(self.shapes):
            if shape is None:
                found.append(None)
            elif i in self.indices:
                found.append(rng.integers(0, self.indices[i], shape))
            else:
                found.append(_normal(rng, shape[::-1] if i in self.turned else shape))
        return found

    def _specs(self) -> tuple[Spec | None, ...]:
        kinds = [as_dtype("int64" if i in self.indices else self.dtype) for i in range(len(self.shapes))]
        return tuple(None if s is None else contiguous(d, s) for s, d in zip(self.shapes, kinds, strict=True))

    def work(self) -> tuple[int, int]:
        """Bytes that must be moved and operations that must be done by a call; operations are 0 where bytes decide."""
        op, specs = self.definition, self._specs()
        bound = op.bind(tuple({**op.params, **self.params}.values()))
        outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, specs, bound))
        moved = sum(s.nbytes for s in (*specs, *outputs) if s is not None)
        if "precision" in op.settings and op.flops is not None:
            flops = op.flops(specs, outputs, bound) * self.part
            if flops > _INTENSE * moved:
                return 0, int(flops * (_BACKWARD.get(self.op, 3.0) if self.backward else 1.0))
        return moved * (2 if self.backward else 1), 0


def _products(side: int, **more: Any) -> list[Workload]:
    """A square product with each operand plain and transposed."""
    made = []
    for turned in ((), (0,), (1,), (0, 1)):
        name = f"matmul {side}" + "".join(f" {'ab'[i]}ᵀ" for i in turned)
        made.append(Workload(name, "matmul", ((side, side),) * 2, turned=turned, **more))
    return made


def _attention(shape: Shape, name: str, **more: Any) -> list[Workload]:
    return [
        Workload(
            f"attention {name}{' and gradients' if backward else ''}", "attention", (shape, shape, shape, None),
            {"causal": True}, part=0.5, backward=backward, **more,
        )
        for backward in (False, True)
    ]  # fmt: skip


def _convolution(name: str, x: Shape, weight: Shape, stride: int = 1, **more: Any) -> list[Workload]:
    padding = weight[-1] // 2
    params = {"stride": (stride, stride), "padding": (padding, padding)}
    return [
        Workload(
            f"conv {name}{' and gradients' if backward else ''}", "conv2d", (x, weight, None), params, backward=backward, **more
        )
        for backward in (False, True)
    ]  # fmt: skip


_SCALE_SHIFT_GELU = {
    "steps": (("multiply", (0, 1), ()), ("add", (3, 2), ()), ("gelu", (4,), ("none",))), "results": (5,)
}  # fmt: skip


def _streams(n: int, side: int) -> list[Workload]:
    """Everything that memory bandwidth bounds, on `n` elements or a square of that side."""
    square, row = (side, side), (side,)
    last = {"axis": -1}
    return [
        Workload("add", "add", ((n,), (n,))),
        Workload("exp", "exp", ((n,),)),
        Workload("gelu", "gelu", ((n,),)),
        Workload(
            "fused gelu(x * w + b)", "fused_elementwise", ((n // 1024, 1024), (1024,), (1024,)), _SCALE_SHIFT_GELU
        ),
        Workload("add a row", "add", (square, row)),
        Workload("transpose", "contiguous", (square,), turned=(0,)),
        Workload("sum", "sum", ((n,),)),
        Workload("max", "max", ((n,),)),
        Workload("argmax", "argmax", ((n,),)),
        Workload("sum of rows", "sum", (square,), last),
        Workload("sum of columns", "sum", (square,), {"axis": 0}),
        Workload("argmax of rows", "argmax", (square,), last),
        Workload("softmax", "softmax", (square,)),
        Workload("softmax and gradient", "softmax", (square,), backward=True),
        Workload("layer norm", "layer_norm", (square, row, row)),
        Workload("layer norm and gradients", "layer_norm", (square, row, row), backward=True),
        Workload("rms norm", "rms_norm", (square, row)),
        Workload("cross entropy", "cross_entropy_rows", (square, row), indices={1: side}),
        Workload("cross entropy and gradient", "cross_entropy_rows", (square, row), indices={1: side}, backward=True),
        Workload("embedding", "embedding", ((side, 512), (8 * side,)), indices={1: side}),
        Workload("embedding and gradient", "embedding", ((side, 512), (8 * side,)), indices={1: side}, backward=True),
        Workload("matrix by vector", "matmul", (square, (side, 1))),
        Workload("add 10k", "add", ((10_000,), (10_000,)), wall=True),
    ]


def _lines(n: int, side: int) -> list[Workload]:
    """What works along an axis in other ways: in order, in windows, by channels. `n` elements or a square of that side."""
    square, image = (side, side), (32, 128, side // 64, side // 64)
    channel, pooled = (image[1],), {"kernel": (2, 2), "stride": (2, 2)}
    near = {"padding": (1, 1), "groups": image[1]}
    return [
        Workload("cumsum", "cumsum", ((n,),), {"axis": 0}),
        Workload("cumsum of rows", "cumsum", (square,), {"axis": 1}),
        Workload("cumsum of columns", "cumsum", (square,), {"axis": 0}),
        Workload("sort", "sort_pairs", ((n // 16,),)),
        Workload("sort rows", "sort_pairs", ((side, side // 4),)),
        Workload("64 largest", "topk", ((n // 16,),), {"k": 64}),
        Workload("64 largest of rows", "topk", (square,), {"k": 64}),
        Workload("concatenate", "concat", (square, square), {"axis": 1}),
        Workload("batch norm", "batch_norm", (image, channel, channel)),
        Workload("batch norm and gradients", "batch_norm", (image, channel, channel), backward=True),
        Workload("group norm", "group_norm", (image, channel, channel), {"groups": 32}),
        Workload("group norm and gradients", "group_norm", (image, channel, channel), {"groups": 32}, backward=True),
        Workload("max pool 2x2", "max_pool2d", (image,), pooled),
        Workload("max pool 2x2 and gradient", "max_pool2d", (image,), pooled, backward=True),
        Workload("conv 3x3 depthwise", "conv2d", (image, (image[1], 1, 3, 3), None), near),
        Workload("conv 3x3 depthwise and gradients", "conv2d", (image, (image[1], 1, 3, 3), None), near, backward=True),
    ]


def _cpu() -> list[Workload]:
    small = (4, 64, 56, 56)
    return [
        *(w for side in (256, 512, 1024, 2048) for w in _products(side)),
        Workload("matmul 1000x777x1333", "matmul", ((1000, 777), (777, 1333))),
        Workload("matmul 1024 float16", "matmul", ((1024, 1024),) * 2, dtype="float16"),
        Workload("matmul 1024 bfloat16", "matmul", ((1024, 1024),) * 2, dtype="bfloat16"),
        *_streams(2**22, 1024),
        Workload("transpose 2048", "contiguous", ((2048, 2048),), turned=(0,)),
        *_convolution("3x3", small, (64, 64, 3, 3)),
        *_convolution("1x1", small, (64, 64, 1, 1)),
        *_attention((4, 8, 256, 64), "4x8x256x64"),
    ]


def _gpu() -> list[Workload]:
    sides = (1024, 4096, 8192)
    precise: list[Precision] = ["highest", "high", "medium"]
    images = {
        "3x3 64": ((32, 64, 56, 56), (64, 64, 3, 3), 1),
        "1x1 256": ((32, 256, 56, 56), (64, 256, 1, 1), 1),
        "3x3 128": ((32, 128, 28, 28), (128, 128, 3, 3), 1),
        "7x7 3": ((32, 3, 224, 224), (64, 3, 7, 7), 2),
    }
    heads = (8, 16, 2048, 64)
    return [
        *(Workload(f"matmul {n} {p}", "matmul", ((n, n),) * 2, precision=p) for p, n in product(precise, sides)),
        *(Workload(f"matmul {n} {d}", "matmul", ((n, n),) * 2, dtype=d) for d, n in product(("float16", "bfloat16"), sides)),
        *_products(4096)[1:],
        *_streams(2**28, 8192),
        *_lines(2**28, 8192),
        *(
            w for p, (name, (x, weight, stride)) in product(precise[:2], images.items())
            for w in _convolution(f"{name} {p}", x, weight, stride, precision=p)
        ),
        *_attention(heads, "highest"), *_attention(heads, "high", precision="high"),
        *_attention(heads, "float16", dtype="float16"), *_attention(heads, "bfloat16", dtype="bfloat16"),
    ]  # fmt: skip


def workloads(size: str) -> Sequence[Workload]:
    """What is measured on a processor ("cpu") or a discrete GPU ("gpu")."""
    return _gpu() if size == "gpu" else _cpu()
