"""Linear algebra, with the names and arguments of `torch.linalg` and of the Array API's extension of that name.

Factorizations and solvers run on the host, by LAPACK: `polyhal.explain` shows it. They take float32 and float64.
"""

from polyhal.hal.errors import LinAlgError
from polyhal.hal.ops.layout.axes import transpose as matrix_transpose
from polyhal.hal.ops.linear_algebra.determinants import det, matrix_exp, matrix_power, slogdet
from polyhal.hal.ops.linear_algebra.diagonals import matrix_diagonal as diagonal
from polyhal.hal.ops.linear_algebra.diagonals import trace, vander
from polyhal.hal.ops.linear_algebra.factors import (
    cholesky,
    cholesky_ex,
    householder_product,
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    qr,
)
from polyhal.hal.ops.linear_algebra.inverses import (
    inv_ex,
    pinv,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from polyhal.hal.ops.linear_algebra.inverses import inverse as inv
from polyhal.hal.ops.linear_algebra.matmul import matmul
from polyhal.hal.ops.linear_algebra.matrix_norms import cond, matrix_norm, vector_norm
from polyhal.hal.ops.linear_algebra.matrix_norms import linalg_norm as norm
from polyhal.hal.ops.linear_algebra.powers import multi_dot
from polyhal.hal.ops.linear_algebra.products import last_axis_cross as cross
from polyhal.hal.ops.linear_algebra.products import outer, tensordot, vecdot
from polyhal.hal.ops.linear_algebra.spectra import eig, eigh, eigvals, eigvalsh, lstsq, matrix_rank, svd, svdvals
from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pca_lowrank",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svd_lowrank",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vander",
    "vecdot",
    "vector_norm",
]
