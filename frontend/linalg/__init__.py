"""Linear algebra, with the names and arguments of `torch.linalg` and of the Array API's extension of that name.

Factorizations and solvers run on the host, by LAPACK: `polyhal.explain` shows it. They take float32 and float64.
"""

from polyhal.hal.errors import LinAlgError  # noqa: F401
from polyhal.hal.ops import LINALG as _LINALG
from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank  # noqa: F401

globals().update(_LINALG)
__all__ = sorted({*_LINALG, "LinAlgError", "pca_lowrank", "svd_lowrank"})
