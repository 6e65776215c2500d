"""Matrix products: by cuBLAS where it has the type, by a kernel of our own for integers and booleans.

Operands may have any strides: cuBLAS is told about transposed views and rows apart, so that nothing is copied for them.
Only where no stride of a matrix is 1 are the operands made contiguous first. A bias is put into the result beforehand, for
the product to be added to, so that half precision is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems import gemm as described
from polyhal.backends.common.problems.gemm import Matrix
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy import blas
from polyhal_cupy.launch import longs, pointers, uints
from polyhal_cupy.lowering.gemm.cublas import AddressTable, Matrices, Product, Step, contiguous_matrices, multiply
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.runtime import Runtime

_TILE = 16


def build(runtime: Runtime, p: described.Product) -> Launch | Declined:
    """The launch for a product."""
    if not blas.supports(p.dtype):
        return Declined("the kernel adds no bias") if p.bias is not None else _integers(runtime, p)
    steps = [] if p.bias is None else [_spread_bias(runtime, p, p.bias)]
    out = Matrices(p.out.place, p.out.row, p.out.column, p.out.batch)
    beta = 0.0 if p.bias is None else 1.0
    product = Product(
        p.batch, p.m, p.n, p.k, _matrices(p.left), _matrices(p.right), out, p.dtype, p.out_dtype, 1.0, beta
    )  # fmt: skip
    table = AddressTable(runtime, p.workspace, p.batch)
    step = multiply(runtime, product, table=table)
    if step is not None:
        return LaunchSequence("matmul", [*steps, *table.fill(), step], (table.nbytes,) if table.nbytes else ())
    left, right = contiguous(p.dtype, (*p.batch, p.m, p.k)), contiguous(p.dtype, (*p.batch, p.k, p.n))
    copies = [
        _copied(runtime, p.left, left, p.workspace),
        _copied(runtime, p.right, right, p.workspace + 1),
    ]
    dense = Product(
        (p.count,), p.m, p.n, p.k, contiguous_matrices(p.workspace, (p.count,), p.m, p.k),
        contiguous_matrices(p.workspace + 1, (p.count,), p.k, p.n), contiguous_matrices(out.place, (p.count,), p.m, p.n),
        p.dtype, p.out_dtype, 1.0, beta,
    )  # fmt: skip
    step = multiply(runtime, dense)
    assert step is not None
    return LaunchSequence("matmul", [*steps, *copies, step], (left.nbytes, right.nbytes))


def _matrices(m: Matrix) -> Matrices:
    return Matrices(m.place, m.row, m.column, m.batch)


def _copied(runtime: Runtime, m: Matrix, dense: Spec, target: int) -> Step:
    """A step that lays all matrices of an operand out in a workspace."""
    source = Spec(dense.dtype, dense.shape, (*m.batch, m.row, m.column), m.aligned)
    copy = copy_launch(runtime, source, dense)

    def run(*args: Any) -> None:
        given = args[m.place]
        copy(Ref(given.handle, source, given.offset), Ref(args[target], dense))

    return run


def _spread_bias(runtime: Runtime, p: described.Product, place: int) -> Launch:
    shape = (p.count, p.m, p.n)
    bias = Spec(p.out_dtype, shape, (0, p.bias_row, p.bias_column), p.out.aligned)
    return copy_launch(
        runtime, bias._replace(aligned=False), contiguous(p.out_dtype, shape)._replace(aligned=p.out.aligned),
        (place, p.out.place),
    )  # fmt: skip


def _integers(runtime: Runtime, p: described.Product) -> Launch:
    parameters = [
        *pointers(p.left.place, p.right.place, p.out.place), *uints(p.m, p.n, p.k),
        *longs(p.left.row, p.left.column, p.right.row, p.right.column), *uints(*p.batch[1:]),
        *longs(*p.left.batch, *p.right.batch),
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {"DTYPE": p.dtype.name, "TILE": _TILE, "LOGICAL": p.dtype.kind == "bool"}
    blocks = ceil_div(p.m, _TILE) * ceil_div(p.n, _TILE) * math.prod(p.batch)
    return runtime.launch("matmul", "gemm/strided", definitions, parameters, blocks, _TILE * _TILE, kernel="matmul")


def batched(runtime: Runtime, a: Spec, b: Spec, out: Spec) -> Launch:
    """A launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N), as the contract's core method needs it."""
    return described.batched(build, runtime, a, b, out)


LOWERINGS = described.lowerings(build)
