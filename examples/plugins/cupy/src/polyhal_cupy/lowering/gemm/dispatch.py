"""Matrix products: `cublas` where it supports the dtype, with `pointers` for batches along two axes; else `strided`.

cuBLAS supports transposed views and strided rows without a copy; operands are made contiguous only if no stride of a matrix
is 1. A bias is written to the output first, and the product is added to it, so that half precision is rounded once.
"""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Matrix
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch
from polyhal_cupy import blas
from polyhal_cupy.lowering.gemm import strided
from polyhal_cupy.lowering.gemm.cublas import BatchedGemm, Matrices, Step, contiguous_matrices, multiply
from polyhal_cupy.lowering.gemm.pointers import PointerArrays
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.runtime import Runtime


def build(runtime: Runtime, p: gemm.Product) -> Launch | Declined:
    """Return the launch of a product."""
    if not blas.supports(p.dtype):
        return Declined("the kernel does not support a bias") if p.bias is not None else strided.build(runtime, p)
    steps = [] if p.bias is None else [_broadcast_bias(runtime, p, p.bias)]
    out = Matrices(p.out.place, p.out.row, p.out.column, p.out.batch)
    beta = 0.0 if p.bias is None else 1.0
    product = BatchedGemm(
        p.batch, p.m, p.n, p.k, _matrices(p.left), _matrices(p.right), out, p.dtype, p.out_dtype, 1.0, beta
    )  # fmt: skip
    arrays = PointerArrays(runtime, p.workspace, p.batch)
    step = arrays.multiply(product)
    if step is not None:
        return LaunchSequence([*steps, *arrays.fill(), step], (arrays.nbytes,) if arrays.nbytes else ())
    left, right = contiguous(p.dtype, (*p.batch, p.m, p.k)), contiguous(p.dtype, (*p.batch, p.k, p.n))
    copies = [
        _copy_to_workspace(runtime, p.left, left, p.workspace),
        _copy_to_workspace(runtime, p.right, right, p.workspace + 1),
    ]
    product = BatchedGemm(
        (p.count,), p.m, p.n, p.k, contiguous_matrices(p.workspace, (p.count,), p.m, p.k),
        contiguous_matrices(p.workspace + 1, (p.count,), p.k, p.n), contiguous_matrices(out.place, (p.count,), p.m, p.n),
        p.dtype, p.out_dtype, 1.0, beta,
    )  # fmt: skip
    step = multiply(runtime, product)
    assert step is not None
    return LaunchSequence([*steps, *copies, step], (left.nbytes, right.nbytes))


def _matrices(m: Matrix) -> Matrices:
    return Matrices(m.place, m.row, m.column, m.batch)


def _copy_to_workspace(runtime: Runtime, m: Matrix, dense: Spec, workspace: int) -> Step:
    """Return a step that copies all matrices of an operand to a workspace, contiguously."""
    source = Spec(dense.dtype, dense.shape, (*m.batch, m.row, m.column), m.aligned)
    copy = copy_launch(runtime, source, dense)

    def run(*args: Any) -> None:
        operand = args[m.place]
        copy(Ref(operand.handle, source, operand.offset), Ref(args[workspace], dense))

    return SimpleLaunch(copy.name, run)


def _broadcast_bias(runtime: Runtime, p: gemm.Product, place: int) -> Launch:
    """Return the launch that writes the bias, argument `place`, to every row of the output."""
    shape = (p.count, p.m, p.n)
    bias = Spec(p.out_dtype, shape, (0, p.bias_row, p.bias_column), p.out.aligned)
    return copy_launch(
        runtime, bias._replace(aligned=False), contiguous(p.out_dtype, shape)._replace(aligned=p.out.aligned),
        (place, p.out.place),
    )  # fmt: skip


def batched(runtime: Runtime, a: Spec, b: Spec, out: Spec) -> Launch:
    """Return a launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N): the contract's core method."""
    return gemm.batched(build, runtime, a, b, out)


LOWERINGS = gemm.lowerings(build)
