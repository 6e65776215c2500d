"""Matrix products as kernels see them, whatever the shader language: which matrices, how they lie, and where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.common.codegen.elementwise import Step
from polyhal.backends.common.codegen.expressions import Class, register_class
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.settings.state import Precision

BATCH_AXES = 3
Triple = tuple[int, int, int]

ELEMENT: dict[Class, DType] = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "uint": dtypes.uint32,
    "long": dtypes.int64,
    "ulong": dtypes.uint64,
    "bool": dtypes.uint32,
}
"""What holds the sums of a register class in memory."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices in argument `place` of a launch: the distance between rows, columns and neighbours in the batch."""

    place: int
    row: int
    column: int
    batch: Triple
    aligned: bool = False

    def turned(self) -> Matrix:
        """The transposed matrices."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Addend:
    """A tensor that an epilogue reads at the place of each result; a stride of 0 is the same element for all."""

    matrix: Matrix
    dtype: DType


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is done to each sum before it is stored.

    The steps number their values: 0 is the sum, then come the operands, then the results of steps, of which the last is
    stored.
    """

    steps: tuple[Step, ...]
    operands: tuple[Addend | float, ...] = ()

    def turned(self) -> Epilogue:
        """The same for the transposed result."""
        operands = (o if isinstance(o, float) else replace(o, matrix=o.matrix.turned()) for o in self.operands)
        return replace(self, operands=tuple(operands))


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` matrices (m, k) x (k, n); the results of a batch lie `m * n` apart.

    `bias` and `temporary`, the first workspace, are positions in the argument list of the launch. Result (i, j) gets
    element `i * bias_row + j * bias_column` of the bias. A product has a bias, or an epilogue, or neither.
    """

    batch: Triple
    m: int
    n: int
    k: int
    left: Matrix
    right: Matrix
    out: Matrix
    dtype: DType
    out_dtype: DType
    bias: int | None
    temporary: int
    bias_row: int = 0
    bias_column: int = 1
    bias_aligned: bool = False
    epilogue: Epilogue | None = None
    precision: Precision = "highest"
    """How float32 operands are multiplied."""
    row_sums: int | None = None
    """Where in the argument list the sums of the rows of the left operand go, for builders that are asked for them."""

    @property
    def count(self) -> int:
        return math.prod(self.batch)

    @property
    def kind(self) -> Class:
        """The class of the registers that hold the sums."""
        return register_class(self.out_dtype)

    @property
    def element(self) -> DType:
        """The type of sums in memory."""
        return ELEMENT[self.kind]

    def turned(self) -> Product:
        """The same product with its operands exchanged: the transpose of the result from the transposed operands."""
        return replace(
            self, m=self.n, n=self.m, left=self.right.turned(), right=self.left.turned(), out=self.out.turned(),
            bias_row=self.bias_column, bias_column=self.bias_row,
            epilogue=None if self.epilogue is None else self.epilogue.turned(),
        )  # fmt: skip

    def finish(self) -> Epilogue | None:
        """The bias as an epilogue, or the epilogue."""
        if self.bias is None:
            return self.epilogue
        bias = Matrix(self.bias, self.bias_row, self.bias_column, (0, 0, 0), self.bias_aligned)
        return Epilogue((Step("add", (0, 1), self.element),), (Addend(bias, self.dtype),))


def describe(x: Spec, y: Spec, out: Spec, places: tuple[int, int, int | None, int, int]) -> Product | Declined:
    """The product of `x` (..., M, K) and `y` (..., K, N) with batches broadcast.

    `places` are the positions of x, y, the bias, the output and the first workspace. Batch axes join the rows of `x`
    where `y` is the same for all of them and the strides permit.
    """
    (m, k), n = x.shape[-2:], y.shape[-1]
    batch = out.shape[: out.ndim - 2]
    a = broadcast_strides(x.shape[:-2], x.strides[:-2], batch)
    b = broadcast_strides(y.shape[:-2], y.strides[:-2], batch)
    row = x.strides[-2]
    if not any(s for s, length in zip(b, batch, strict=True) if length > 1):
        lengths, (steps, _) = collapse((*batch, m), ((*a, row), (0,) * (len(batch) + 1)))
        batch, m = lengths[:-1], lengths[-1]
        a, row, b = steps[:-1], steps[-1], (0,) * len(batch)
    else:
        batch, (a, b) = collapse(batch, (a, b))
    if len(batch) > BATCH_AXES:
        return Declined(f"the batch has {len(batch)} axes that cannot be merged; the kernels take {BATCH_AXES}")
    if max(m, n, k) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    left, right, bias, result, temporary = places
    lengths = padded(batch, 1)
    return Product(
        lengths, m, n, k,
        Matrix(left, row, x.strides[-1], padded(a, 0), x.aligned),
        Matrix(right, y.strides[-2], y.strides[-1], padded(b, 0), y.aligned),
        Matrix(result, n, 1, (lengths[1] * lengths[2] * m * n, lengths[2] * m * n, m * n), out.aligned),
        x.dtype, out.dtype, bias, temporary,
    )  # fmt: skip


def padded(values: tuple[int, ...], fill: int) -> Triple:
    """The lengths or strides of a batch on exactly BATCH_AXES axes."""
    first, second, third = (fill,) * (BATCH_AXES - len(values)) + values
    return first, second, third


Builder = Callable[[Any, Product], Launch | Declined]


def batched(build: Builder, runtime: Any, a: Spec, b: Spec, out: Spec) -> Launch:
    """A launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N), as the contract's core method needs it."""
    p = describe(a, b, out, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = build(runtime, p)
    assert not isinstance(launch, Declined)
    return launch


def lowerings(build: Builder, *, wide: bool = False, epilogues: bool = False) -> dict[str, LoweringFunction]:
    """The lowering functions of all products on one builder.

    `wide` says that it stores sums in types other than that of the operands, `epilogues` that it takes them.
    """

    def matmul(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x, y = inputs
        (out,) = outputs
        if not isinstance(x, Spec) or not isinstance(y, Spec):
            return Declined("an operand is a number")
        if x.dtype is not y.dtype:
            return Declined(f"operands of {x.dtype.name} and {y.dtype.name}")
        if out.dtype is not x.dtype and not wide:
            return Declined(f"sums of {x.dtype.name} as {out.dtype.name}")
        return _built(build, runtime, describe(x, y, out, (0, 1, None, 2, 3)), params)

    def linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x, weight, bias = inputs
        refusal = _refusal(x, weight, bias)
        if refusal:
            return Declined(refusal)
        places = (0, 1, None if bias is None else 2, 3, 4)
        p = _by_weight(x, weight, outputs[0], places)
        if isinstance(p, Product) and isinstance(bias, Spec):
            p = replace(p, bias_aligned=bias.aligned)
        return _built(build, runtime, p, params)

    def fused_linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x, weight, bias, residual = inputs
        (out,) = outputs
        refusal = _refusal(x, weight, bias, residual)
        if refusal:
            return Declined(refusal)
        p = _by_weight(x, weight, out, (0, 1, None, 4, 5))
        if isinstance(p, Declined):
            return p
        epilogue = _epilogue(p, bias, residual, params["activation"], params["scale"])
        return _built(build, runtime, replace(p, epilogue=epilogue), params)

    table: dict[str, LoweringFunction] = {"matmul": matmul, "linear": linear}
    return {**table, "fused_linear": fused_linear} if epilogues else table


def weight_grad(build: Builder) -> LoweringFunction:
    """The lowering function of `linear_weight_grad` on a builder that adds up rows of the left operand on its way."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        grad, x = inputs
        refusal = _refusal(x, grad)
        if refusal:
            return Declined(refusal)
        assert isinstance(grad, Spec)
        assert isinstance(x, Spec)
        if outputs[1].dtype is not outputs[0].dtype:
            return Declined(f"gradients of {outputs[0].dtype.name} and {outputs[1].dtype.name}")
        turned = Spec(grad.dtype, grad.shape[::-1], grad.strides[::-1], grad.aligned)
        p = describe(turned, x, outputs[0], (0, 1, None, 2, 4))
        return _built(build, runtime, p if isinstance(p, Declined) else replace(p, row_sums=3), params)

    return lower


def _built(build: Builder, runtime: Any, p: Product | Declined, params: Mapping[str, Any]) -> Launch | Declined:
    return p if isinstance(p, Declined) else build(runtime, replace(p, precision=params.get("precision", "highest")))


def _refusal(x: InputSpec | None, weight: InputSpec | None, *added: InputSpec | None) -> str:
    """Why no kernel multiplies by such a weight and adds such tensors; empty when one can."""
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return "an operand is a number"
    if any(s is not None and s.dtype is not x.dtype for s in (weight, *added)):
        return "operands of different dtypes"
    if any(isinstance(s, Spec) and not s.is_contiguous for s in added):
        return "an addend is not contiguous"
    return ""


def _by_weight(
    x: InputSpec | None, weight: InputSpec | None, out: Spec, places: tuple[int, int, int | None, int, int]
) -> Product | Declined:
    """The product of the rows of `x` and those of `weight`."""
    assert isinstance(x, Spec)
    assert isinstance(weight, Spec)
    turned = Spec(weight.dtype, weight.shape[::-1], weight.strides[::-1], weight.aligned)
    return describe(_rows(x), turned, _rows(out), places)


def _epilogue(
    p: Product, bias: InputSpec | None, residual: InputSpec | None, activation: str, scale: float
) -> Epilogue | None:
    """activation(scale * sum + bias) + residual: arguments 2 and 3."""
    operands: list[Addend | float] = []
    plan: list[tuple[str, int | None]] = []
    if scale != 1:
        operands.append(float(scale))
        plan.append(("multiply", len(operands)))
    if isinstance(bias, Spec):
        operands.append(Addend(Matrix(2, 0, 1, (0, 0, 0), bias.aligned), p.dtype))
        plan.append(("add", len(operands)))
    if activation != "none":
        plan.append((activation, None))
    if isinstance(residual, Spec):
        operands.append(Addend(replace(p.out, place=3, aligned=residual.aligned), p.dtype))
        plan.append(("add", len(operands)))
    steps: list[Step] = []
    value = 0
    for op, other in plan:
        steps.append(Step(op, (value,) if other is None else (value, other), p.element))
        value = len(operands) + len(steps)
    return Epilogue(tuple(steps), tuple(operands)) if steps else None


def _rows(spec: Spec) -> Spec:
    """A single vector counts as one row."""
    return spec if spec.ndim > 1 else Spec(spec.dtype, (1, *spec.shape), (0, *spec.strides), spec.aligned)
