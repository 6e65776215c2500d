"""Matrix product problems: shapes, strides and arguments of the operands, bias and epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.codegen.expressions import RegisterClass, register_class
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.core.settings.state import Precision
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

BATCH_AXES = 3
Triple = tuple[int, int, int]

SUM_DTYPES: dict[RegisterClass, DType] = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "uint": dtypes.uint32,
    "long": dtypes.int64,
    "ulong": dtypes.uint64,
    "bool": dtypes.uint32,
}
"""Dtype of stored partial sums, by register class."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices in argument `place` of a launch. `row`, `column` and `batch` are strides."""

    place: int
    row: int
    column: int
    batch: Triple
    aligned: bool = False

    def transposed(self) -> Matrix:
        """Transpose every matrix."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Addend:
    """A tensor that an epilogue reads at the index of each result; a stride of 0 broadcasts."""

    matrix: Matrix
    dtype: DType


@dataclass(frozen=True, slots=True)
class PairedSum:
    """The sum of the other product of a pair, as an operand of the epilogue."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Further right matrices of a product, with the strides of the first one, and a norm of the left rows before it."""

    places: tuple[int, ...]
    firsts: tuple[int, ...]
    """First column of the result of each matrix; unused with `pairs`."""
    pairs: bool
    """True if every result has a sum for each of two matrices."""
    norm: int | None
    """Index of the argument with the weights of an RMS norm."""
    eps: float = 0.0
    norm_aligned: bool = False
    """True if whole vectors of the norm's weights may be loaded."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Elementwise steps applied to each sum before it is stored.

    Value 0 is the sum; operands and results of steps follow; the last value is stored.
    """

    steps: tuple[ExpressionStep, ...]
    operands: tuple[Addend | PairedSum | float, ...] = ()

    def transposed(self) -> Epilogue:
        """Return the same epilogue for the transposed result."""
        operands = (replace(o, matrix=o.matrix.transposed()) if isinstance(o, Addend) else o for o in self.operands)
        return replace(self, operands=tuple(operands))


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of products (m, k) x (k, n). The results of a batch are contiguous.

    `bias` and `workspace` (the first one) are indices into the argument list of the launch. Element
    `i * bias_row + j * bias_column` of the bias is added to result (i, j). A product has a bias or an epilogue, not both.
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
    workspace: int
    bias_row: int = 0
    bias_column: int = 1
    bias_aligned: bool = False
    epilogue: Epilogue | None = None
    precision: Precision = "highest"
    """Precision of products of float32 operands."""
    row_sums: int | None = None
    """Index of the argument that receives the row sums of the left operand; only for builders that support it."""
    joined: Joined | None = None
    """Further matrices and a norm; only for builders that support them."""

    @property
    def count(self) -> int:
        """Number of products in the batch."""
        return math.prod(self.batch)

    @property
    def sum_class(self) -> RegisterClass:
        """Register class of accumulators."""
        return register_class(self.out_dtype)

    @property
    def sum_dtype(self) -> DType:
        """Dtype of partial sums in memory."""
        return SUM_DTYPES[self.sum_class]

    def transposed(self) -> Product:
        """Return the transposed product: out^T = right^T left^T, with the operands exchanged."""
        return replace(
            self,
            m=self.n,
            n=self.m,
            left=self.right.transposed(),
            right=self.left.transposed(),
            out=self.out.transposed(),
            bias_row=self.bias_column,
            bias_column=self.bias_row,
            epilogue=None if self.epilogue is None else self.epilogue.transposed(),
        )

    def merged_epilogue(self) -> Epilogue | None:
        """Return the epilogue, or the bias as an epilogue."""
        if self.bias is None:
            return self.epilogue
        bias = Matrix(self.bias, self.bias_row, self.bias_column, (0, 0, 0), self.bias_aligned)
        return Epilogue((ExpressionStep("add", (0, 1), self.sum_dtype),), (Addend(bias, self.dtype),))


def describe(x: Spec, y: Spec, out: Spec, places: tuple[int, int, int | None, int, int]) -> Product | Declined:
    """Describe the product of `x` (..., M, K) and `y` (..., K, N), with batches broadcast.

    `places` are the argument indices of x, y, the bias, the output and the first workspace. Batch axes over which `y`
    is broadcast are merged into the rows of `x` if the strides permit.
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
        return Declined(f"the batch has {len(batch)} axes that cannot be merged; the kernels support {BATCH_AXES}")
    if max(m, n, k) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    left, right, bias, result, workspace = places
    lengths = padded(batch, 1)
    return Product(
        lengths,
        m,
        n,
        k,
        Matrix(left, row, x.strides[-1], padded(a, 0), x.aligned),
        Matrix(right, y.strides[-2], y.strides[-1], padded(b, 0), y.aligned),
        Matrix(result, n, 1, (lengths[1] * lengths[2] * m * n, lengths[2] * m * n, m * n), out.aligned),
        x.dtype,
        out.dtype,
        bias,
        workspace,
    )


def padded(values: tuple[int, ...], fill: int) -> Triple:
    """Pad the lengths or strides of a batch in front to exactly BATCH_AXES axes."""
    first, second, third = (fill,) * (BATCH_AXES - len(values)) + values
    return first, second, third


ProductBuilder = Callable[[Any, Product], Launch | Declined]
"""`build(runtime, product)` returns the launch, or the reason why there is none."""


def batched(build: ProductBuilder, runtime: Any, a: Spec, b: Spec, out: Spec) -> Launch:
    """Build a launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N): the contract's core method."""
    p = describe(a, b, out, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = build(runtime, p)
    assert not isinstance(launch, Declined)
    return launch


def lowerings(build: ProductBuilder, *, wide: bool = False, epilogues: bool = False) -> dict[str, LoweringFunction]:
    """Return the lowering functions of all products on one builder.

    `wide` means that it supports any output dtype, not only those in registers of the operands' class; `epilogues` that it
    supports epilogues.
    """

    def matmul(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x, y = inputs
        (out,) = outputs
        if not isinstance(x, Spec) or not isinstance(y, Spec):
            return Declined("an operand is a number")
        if x.dtype is not y.dtype:
            return Declined(f"the operands are {x.dtype.name} and {y.dtype.name}")
        if register_class(out.dtype) != register_class(x.dtype) and not wide:
            return Declined(f"the operands are {x.dtype.name}, the output is {out.dtype.name}")
        return _built(build, runtime, describe(x, y, out, (0, 1, None, 2, 3)), params)

    def linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
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
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
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


def weight_grad(build: ProductBuilder) -> LoweringFunction:
    """Return the lowering function of `linear_weight_grad` on a builder that supports `row_sums`."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        grad, x = inputs
        refusal = _refusal(x, grad)
        if refusal:
            return Declined(refusal)
        assert isinstance(grad, Spec)
        assert isinstance(x, Spec)
        if outputs[1].dtype is not outputs[0].dtype:
            return Declined(f"the gradients are {outputs[0].dtype.name} and {outputs[1].dtype.name}")
        transposed = Spec(grad.dtype, grad.shape[::-1], grad.strides[::-1], grad.aligned)
        p = describe(transposed, x, outputs[0], (0, 1, None, 2, 4))
        return _built(build, runtime, p if isinstance(p, Declined) else replace(p, row_sums=3), params)

    return lower


def _built(build: ProductBuilder, runtime: Any, p: Product | Declined, params: Params) -> Launch | Declined:
    return p if isinstance(p, Declined) else build(runtime, replace(p, precision=params.get("precision", "highest")))


def _refusal(x: InputSpec | None, weight: InputSpec | None, *added: InputSpec | None) -> str:
    """Return the reason why no kernel supports this weight and these addends; empty if one may."""
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return "an operand is a number"
    if any(s is not None and s.dtype is not x.dtype for s in (weight, *added)):
        return "the operands have different dtypes"
    if any(isinstance(s, Spec) and not s.is_contiguous for s in added):
        return "an addend is not contiguous"
    return ""


def _by_weight(
    x: InputSpec | None, weight: InputSpec | None, out: Spec, places: tuple[int, int, int | None, int, int]
) -> Product | Declined:
    """Describe x weight^T."""
    assert isinstance(x, Spec)
    assert isinstance(weight, Spec)
    transposed = Spec(weight.dtype, weight.shape[::-1], weight.strides[::-1], weight.aligned)
    return describe(_as_matrix(x), transposed, _as_matrix(out), places)


def _epilogue(
    p: Product, bias: InputSpec | None, residual: InputSpec | None, activation: str, scale: float
) -> Epilogue | None:
    """Return the epilogue activation(scale * sum + bias) + residual, with bias and residual as arguments 2 and 3."""
    operands: list[Addend | PairedSum | float] = []
    ops: list[tuple[str, int | None]] = []
    if scale != 1:
        operands.append(float(scale))
        ops.append(("multiply", len(operands)))
    if isinstance(bias, Spec):
        operands.append(Addend(Matrix(2, 0, 1, (0, 0, 0), bias.aligned), p.dtype))
        ops.append(("add", len(operands)))
    if activation != "none":
        ops.append((activation, None))
    if isinstance(residual, Spec):
        operands.append(Addend(replace(p.out, place=3, aligned=residual.aligned), p.dtype))
        ops.append(("add", len(operands)))
    steps: list[ExpressionStep] = []
    value = 0
    for op, other in ops:
        steps.append(ExpressionStep(op, (value,) if other is None else (value, other), p.sum_dtype))
        value = len(operands) + len(steps)
    return Epilogue(tuple(steps), tuple(operands)) if steps else None


def _as_matrix(spec: Spec) -> Spec:
    """Treat a vector as a matrix of one row."""
    return spec if spec.ndim > 1 else Spec(spec.dtype, (1, *spec.shape), (0, *spec.strides), spec.aligned)
