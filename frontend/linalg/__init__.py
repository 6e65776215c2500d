"""Linear algebra, with the names and arguments of `torch.linalg` and of the Array API's extension of that name.

They take float32 and float64; the Array API's functions take complex64 and complex128, too. On OpenCL devices batches of
matrices of up to 64 rows are factored, solved and inverted by one kernel each. On GPUs so are their symmetric eigenvalues and
singular values, and LU, Cholesky and QR factors and solutions of larger matrices are computed in blocks, whose work is in
matrix products. The rest runs on the host, by LAPACK, as `polyhal.explain` shows: `eig`, `ldl_factor`, `matrix_exp`, `pinv`,
spectra of larger matrices, vectors and determinants of complex ones, and on processors all larger matrices.

`inv`, `solve`, `cholesky` and `lu_factor` wait for the device to raise an error for singular matrices, `eigh` and `svd`
to raise one for elements that are not finite. `inv_ex`, `solve_ex`, `cholesky_ex` and `lu_factor_ex` do not.
"""

from polyhal.hal.errors import LinAlgError  # noqa: F401
from polyhal.hal.ops import LINALG as _LINALG
from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank  # noqa: F401

globals().update(_LINALG)
__all__ = sorted({*_LINALG, "LinAlgError", "pca_lowrank", "svd_lowrank"})
