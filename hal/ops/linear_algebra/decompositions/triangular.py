"""Systems of equations with a triangular matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops.declare import (
    Autocast,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OpFunction,
    Output,
    Sample,
    Specs,
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.linear_algebra.decompositions.blocks import SMALL, half, is_small, minus_product
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    result_dtype,
    t,
)
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_BLOCK = 32
"""Rows that are solved one by one; blocks of them are eliminated by matrix products."""


def substituted(a: np.ndarray, b: np.ndarray, upper: bool, unitriangular: bool) -> np.ndarray:
    """The solution x of `a @ x = b` by blocked substitution. A zero on the diagonal gives infinities or NaN, as in LAPACK."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    n = a.shape[-1]
    with np.errstate(all="ignore"):
        for start in range(0, n, _BLOCK):
            low, high = (max(n - start - _BLOCK, 0), n - start) if upper else (start, min(start + _BLOCK, n))
            for i in range(high - 1, low - 1, -1) if upper else range(low, high):
                done = slice(i + 1, high) if upper else slice(low, i)
                x[..., i : i + 1, :] -= a[..., i : i + 1, done] @ x[..., done, :]
                if not unitriangular:
                    x[..., i, :] /= a[..., i, i, None]
            rest = slice(0, low) if upper else slice(high, n)
            x[..., rest, :] -= a[..., rest, low:high] @ x[..., low:high, :]
    return x


def _solve_triangular_left(a: Array, b: Array, *, upper: bool, unitriangular: bool = False) -> Any:
    """The solution X of `a @ X = b` for triangular matrices (..., n, n) and b (..., n, k); the other triangle is not read."""
    return substituted(np.asarray(a), np.asarray(b), upper, unitriangular)


def infer_system(name: str) -> Any:
    """The rule for a (..., n, n) and b (..., n, k), whose batches broadcast: x (..., n, k)."""

    def infer(specs: Specs, params: Params) -> list[Output]:
        a, b = tensor_at(specs, 0), tensor_at(specs, 1)
        require_matrices(name, a, square=True)
        require_matrices(name, b)
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"{a.shape} does not fit the right side {b.shape}; expected (..., {a.shape[-1]}, k)")
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return [(result_dtype(name, a, b), (*batch, *b.shape[-2:]))]

    return infer


@reads(b="a")
def _gradient(
    g: TensorLike, a: TensorLike, out: TensorLike | None, needs: tuple[bool, ...], *, upper: bool, unitriangular: bool
) -> Any:
    """dB = A^-T dX and dA = -dB X^T, within the triangle (Giles 2008)."""
    db = solve_triangular_left(t(a), g, not upper, unitriangular)
    if not needs[0]:
        return None, db
    da = -op_matmul(db, t(out))
    return (triu if upper else tril)(da, (1 if upper else -1) if unitriangular else 0), db


def _program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    a = tensor_at(specs, 0)
    if is_small(a):
        return Declined("the matrices are small")
    return DeviceProgram(lambda a, b: _in_halves(a, b, params["upper"], params["unitriangular"]), blocked=True)


def _in_halves(a: TensorLike, b: TensorLike, upper: bool, unitriangular: bool) -> Any:
    """Solve for one part of the rows, then for the others with that solution eliminated."""
    n = a.shape[-1]
    middle = half(n, SMALL)
    first, second = (slice(middle, n), slice(middle)) if upper else (slice(middle), slice(middle, n))
    x = solve_triangular_left(a[..., first, first], b[..., first, :], upper, unitriangular)
    rest = minus_product(b[..., second, :], a[..., second, first], x)
    y = solve_triangular_left(a[..., second, second], rest, upper, unitriangular)
    return concat([y, x] if upper else [x, y], -2)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(batch: tuple[int, ...], n: int, right: tuple[int, ...], upper: bool, unit: bool) -> Sample:
        a = rng.uniform(-0.5, 0.5, (*batch, n, n)) + 2 * np.eye(n)
        return Sample((a, rng.uniform(-1, 1, right)), {"upper": upper, "unitriangular": unit})

    return [
        sample((2,), 4, (4, 3), True, False),
        sample((2,), 3, (3, 2), False, True),
        sample((3,), 2, (3, 2, 1), True, True),
        sample((2,), 5, (2, 5, 1), False, False),
        sample((), 0, (0, 2), True, False),
    ]


solve_triangular_left: OpFunction = declare(
    _solve_triangular_left,
    name="solve_triangular_left",
    family="decomposition",
    infer=infer_system("solve_triangular"),
    lowering=(OnDevice(_program), LAPACK),
    gradient=_gradient,
    samples=_samples,
    errors=[
        ErrorSample((np.eye(3), np.zeros((2, 1))), {"upper": True}, ValueError, "does not fit the right side"),
        ErrorSample((np.zeros((3, 2)), np.zeros((3, 1))), {"upper": True}, ValueError, r"expected \(..., n, n\)"),
    ],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
