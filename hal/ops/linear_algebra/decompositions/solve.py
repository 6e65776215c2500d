"""Systems of equations and inverses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
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
    first_tensor,
    reads,
)
from polyhal.hal.ops.layout.diagonal import identity_like
from polyhal.hal.ops.linear_algebra.decompositions.blocks import is_small, rows_in_order
from polyhal.hal.ops.linear_algebra.decompositions.lu import (
    SINGULAR,
    eliminated,
    lu_factors,
    permutation_matrix,
    row_order,
)
from polyhal.hal.ops.linear_algebra.decompositions.on_device import checked
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    singular,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.decompositions.triangular import infer_system, solve_triangular_left, substituted
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _solved(name: str, a: np.ndarray, b: np.ndarray, check: bool) -> tuple[np.ndarray, np.ndarray]:
    """The solution, and per matrix the first zero pivot or 0; infinities and NaN for singular matrices unless `check`."""
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError as error:
        lu, pivots, info = eliminated(a, True)
        if not info.any():
            info[...] = a.shape[-1]  # LAPACK's own elimination found a zero at the end
        if check:
            raise singular(name, info, SINGULAR) from error
        moved = np.swapaxes(permutation_matrix.op.reference(pivots, rows=a.shape[-1], dtype=a.dtype), -2, -1) @ b
        return substituted(lu, substituted(lu, moved, False, True), True, False), info


def _solve_system(a: Array, b: Array, *, check: bool = True) -> Any:
    """The solution X of `a @ X = b` for square matrices, and per matrix the first zero pivot or 0.

    Raises LinAlgError if `check` and a matrix is singular.
    """
    return _solved("solve", np.asarray(a), np.asarray(b), check)


def _infer_solve(specs: Specs, params: Params) -> list[Output]:
    return [*infer_system("solve")(specs, params), (dtypes.int32, first_tensor(specs).shape[:-2])]


def _solve_program(specs: Specs, params: Params) -> DeviceProgram:
    if params["check"]:
        return checked(lambda a, b: solve_system(a, b, False), "solve", SINGULAR)
    return DeviceProgram(_solve_by_factors, blocked=not is_small(first_tensor(specs)))


def _solve_by_factors(a: TensorLike, b: TensorLike) -> tuple[Any, Any]:
    lu, pivots, info = lu_factors(a, True, False)
    right = rows_in_order(b, row_order(pivots, a.shape[-1]))
    return solve_triangular_left(lu, solve_triangular_left(lu, right, False, True), True), info


@reads(b="a")
def _solve_gradient(g: TensorLike, a: TensorLike, out: TensorLike | None, needs: tuple[bool, ...]) -> Any:
    """dB = A^-T dX and dA = -dB X^T (Giles 2008)."""
    db, _ = solve_system(t(a), g, False)
    return -op_matmul(db, t(out)) if needs[0] else None, db


solve_system: OpFunction = declare(
    _solve_system,
    name="solve_system",
    family="decomposition",
    infer=_infer_solve,
    outputs=("out", "info"),
    lowering=(OnDevice(_solve_program), LAPACK),
    gradient=_solve_gradient,
    samples=lambda rng: [
        Sample((well_conditioned(rng, *a), rng.uniform(-1, 1, b)))
        for a, b in [((2, 4, 4), (4, 3)), ((2, 3, 3), (3, 1)), ((3, 2, 2), (3, 2, 2)), ((0, 0), (0, 2))]
    ],
    errors=[ErrorSample((np.eye(3), np.zeros((2, 1))), {}, ValueError, "does not fit the right side")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _inverse_matrix(a: Array, *, check: bool = True) -> Any:
    """The inverse of square matrices, and per matrix the first zero pivot or 0.

    Raises LinAlgError if `check` and a matrix is singular.
    """
    a = np.asarray(a)
    return _solved("inv", a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape), check)


def _infer_inverse(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("inv", spec, square=True)
    return [(spec.dtype, spec.shape), (dtypes.int32, spec.shape[:-2])]


def _inverse_program(specs: Specs, params: Params) -> DeviceProgram:
    if params["check"]:
        return checked(lambda a: inverse_matrix(a, False), "inv", SINGULAR)
    return DeviceProgram(lambda a: _solve_by_factors(a, identity_like(a)), blocked=not is_small(first_tensor(specs)))


inverse_matrix: OpFunction = declare(
    _inverse_matrix,
    name="inverse_matrix",
    family="decomposition",
    infer=_infer_inverse,
    outputs=("out", "info"),
    lowering=(OnDevice(_inverse_program), LAPACK),
    gradient=lambda g, out: -op_matmul(op_matmul(t(out), g), t(out)),
    samples=lambda rng: [Sample((well_conditioned(rng, *s),)) for s in [(2, 4, 4), (2, 3, 3), (1, 1), (0, 0)]],
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
