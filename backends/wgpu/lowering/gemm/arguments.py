"""Template variables and arguments common to all product kernels: operands, bias, epilogue and output."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.dialect import type_name
from polyhal.backends.wgpu.lowering.gemm.epilogue import epilogue

LANES = 4
"""Elements per vector."""


def definitions(p: Product, *, split: bool) -> dict[str, object]:
    """Return the template variables of lib/store_sums.wgsl; with `split` the kernel stores partial sums in the workspace."""
    return {
        "DTYPE": p.dtype.name,
        "OUT_DTYPE": p.out_dtype.name,
        "REAL": type_name(p.sum_class),
        "SPLIT": split,
        "BIAS": p.bias is not None and not split,
        "OUT_LANES": _out_lanes(p),
        **({} if split else epilogue(p, _out_lanes(p))[0]),
    }


def _out_lanes(p: Product) -> int:
    contiguous_vectors = p.out.column == 1 and p.out.row == p.n and p.n % LANES == 0
    return LANES if contiguous_vectors and p.out.aligned and p.sum_dtype.itemsize <= 4 else 1


def layouts(p: Product) -> dict[str, object]:
    """Return the contiguous axis of each operand, and the lanes per load: A_MAJOR, A_LANES, B_MAJOR and B_LANES."""
    a_major, a_lanes = _layout(p.left, p.left.column, p.left.row, p.sum_dtype.itemsize)
    b_major, b_lanes = _layout(p.right, p.right.row, p.right.column, p.sum_dtype.itemsize)
    return {"A_MAJOR": a_major, "A_LANES": a_lanes, "B_MAJOR": b_major, "B_LANES": b_lanes}


def _layout(matrix: Matrix, k_stride: int, mn_stride: int, itemsize: int) -> tuple[str, int]:
    """Return "k" or "mn", and the number of elements per load. The mn axis is m of the left, n of the right operand."""
    major, step, other = ("mn", mn_stride, k_stride) if abs(mn_stride) < abs(k_stride) else ("k", k_stride, mn_stride)
    vectors = step == 1 and matrix.aligned and all(s % LANES == 0 for s in (other, *matrix.batch))
    return major, LANES if vectors and itemsize <= 4 else 1


def targets(p: Product) -> Arguments:
    """Return the arguments of lib/store_sums.wgsl for an output."""
    own: Arguments = {"out": Tensor(p.out.place), "out_row": p.out.row, "out_column": p.out.column}
    out = {**own, **epilogue(p, _out_lanes(p))[1]}
    if p.bias is None:
        return out
    return {**out, "bias": Tensor(p.bias), "bias_row": p.bias_row, "bias_column": p.bias_column}


def arguments(p: Product, split_length: int, *, split: bool) -> Arguments:
    """Return the arguments of gemm/operands.wgsl; with `split`, sums go to the workspace."""
    return {
        "a": Tensor(p.left.place),
        "b": Tensor(p.right.place),
        **({"partial": Workspace(p.workspace)} if split else targets(p)),
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "split_length": split_length,
        "count": p.count,
        "batch1": p.batch[1],
        "batch2": p.batch[2],
        "stride_am": p.left.row,
        "stride_ak": p.left.column,
        "stride_bn": p.right.column,
        "stride_bk": p.right.row,
        **{f"a_batch{i}": stride for i, stride in enumerate(p.left.batch)},
        **{f"b_batch{i}": stride for i, stride in enumerate(p.right.batch)},
    }
