"""Common parts of the ops that LAPACK computes: shapes, dtypes, the reason for the host, and errors.

Gradient rules are written in terms of other ops, so that they can be differentiated again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import LinAlgError, UnsupportedDTypeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.layout.axes import transpose
from polyhal.hal.ops.lowering import OnHost
from polyhal.hal.ops.samples import Tolerance

LAPACK = OnHost("LAPACK computes it, because the device has no kernels for it or is not faster")
LAPACK_DTYPES = (dtypes.float32, dtypes.float64)
LAPACK_ERROR = Tolerance(256.0, floor=2.0)
"""The samples have up to 6 rows and a condition below 30: the error is at most a small multiple of their product in units of
the largest element (Higham, Accuracy and Stability of Numerical Algorithms, chapters 9, 10 and 19)."""


def require_matrices(name: str, spec: Spec, *, square: bool = False) -> None:
    """Raise unless `spec` is of matrices of float32 or float64, square ones if requested."""
    if spec.ndim < 2 or (square and spec.shape[-1] != spec.shape[-2]):
        raise ValueError(
            f"shape {spec.shape}; expected (..., n, n)" if square else f"shape {spec.shape}; expected (..., m, n)"
        )
    if spec.dtype not in LAPACK_DTYPES:
        problem = message(name, f"got {spec.dtype.name}", expected="float32 or float64", fix="cast with .to(dtype)")
        raise UnsupportedDTypeError(problem)


def result_dtype(name: str, *specs: Spec) -> dtypes.DType:
    """The dtype of all operands. Raises UnsupportedDTypeError if they differ."""
    kinds = {s.dtype.name for s in specs}
    if len(kinds) > 1:
        problem = message(name, f"got {' and '.join(sorted(kinds))}", expected="one dtype", fix="cast with .to(dtype)")
        raise UnsupportedDTypeError(problem)
    return specs[0].dtype


def singular(name: str, info: np.ndarray, what: str) -> LinAlgError:
    """The error for the first matrix with a nonzero `info`; `what` describes it, with the number in place of `{}`."""
    where = np.argwhere(np.atleast_1d(info))[0]
    number = np.atleast_1d(info)[tuple(where)]
    place = f"matrix {tuple(map(int, where))} of the batch" if info.ndim else "the matrix"
    return LinAlgError(message(name, f"{place} {what.format(number)}"))


def well_conditioned(rng: np.random.Generator, *shape: int) -> Any:
    """Matrices whose singular values lie between 1 and 3, well apart.

    Samples are batches: the kit's broadcast layout repeats the first matrix then, where it would make a single one singular.
    """
    m, n = shape[-2:]
    k = min(m, n)
    u, _, v = np.linalg.svd(rng.uniform(-1, 1, shape), full_matrices=False)
    return (u * np.linspace(3.0, 1.0, k)) @ v if k else np.zeros(shape)


def positive_definite(rng: np.random.Generator, *shape: int) -> Any:
    """Symmetric matrices whose eigenvalues lie between 1 and 3, well apart."""
    q, _ = np.linalg.qr(rng.uniform(-1, 1, shape))
    return (q * np.linspace(1.0, 3.0, shape[-1])) @ np.swapaxes(q, -2, -1)


def t(x: Any) -> Any:
    """The transposed matrices: a view."""
    return transpose(x)
