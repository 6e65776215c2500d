"""Definitions of dtypes and arguments of operands that the kernels of matrix products share."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Argument, Strided, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.dialect import type_name


def definitions(p: Product, *groups: Definitions, **more: str | int | bool) -> dict[str, str | int | bool]:
    """Return the definitions of a product's dtypes, merged with others."""
    real = type_name(p.sum_class)
    defined: dict[str, str | int | bool] = {
        "DTYPE": p.dtype.name,
        "OUT_DTYPE": p.out_dtype.name,
        "REAL": real,
        "WIDEN": type_name(register_class(p.dtype)) != real,
    }
    for group in groups:
        defined |= group
    return defined | more


def geometry(
    p: Product, a: Tensor | Workspace | None = None, b: Tensor | Workspace | None = None
) -> dict[str, Argument]:
    """Return the arguments for a, b and GemmGeometry (gemm/operands.h); `a` and `b`, if present, replace operands."""
    return {
        "a": strided(p.left, a),
        "b": strided(p.right, b),
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "batch1": p.batch[1],
        "batch2": p.batch[2],
    }


def strided(matrix: Matrix, memory: Tensor | Workspace | None = None) -> Strided:
    """Return the argument for a batch of matrices and its strides, in its own memory or in `memory`."""
    return Strided(memory or Tensor(matrix.place), {"row": matrix.row, "column": matrix.column, "batch": matrix.batch})
