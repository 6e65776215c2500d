"""What the product kernels share: template variables and parameters of operands, bias and output."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Constant, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.dialect import type_name
from polyhal.backends.wgpu.launch import Parameter

LANES = 4
"""Elements of a vector."""


def uints(*values: int) -> list[Parameter]:
    """Return unsigned constants. Negative strides wrap, and so do the index sums that they enter."""
    return [Constant(v, "uint") for v in values]


def definitions(p: Product, *, split: bool) -> dict[str, object]:
    """Return the template variables of lib/store_sums.wgsl; with `split` the kernel stores partial sums in the workspace."""
    return {
        "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name, "REAL": type_name(p.sum_class), "SPLIT": split,
        "BIAS": p.bias is not None and not split, "OUT_LANES": _out_lanes(p),
    }  # fmt: skip


def _out_lanes(p: Product) -> int:
    contiguous_vectors = p.out.column == 1 and p.out.row == p.n and p.n % LANES == 0
    return LANES if contiguous_vectors and p.out.aligned and p.sum_dtype.itemsize <= 4 else 1


def layouts(p: Product) -> dict[str, object]:
    """Return along which axis each operand is contiguous, and the lanes per load: A_MAJOR, A_LANES, B_MAJOR and B_LANES."""
    a_major, a_lanes = _layout(p.left, p.left.column, p.left.row, p.sum_dtype.itemsize)
    b_major, b_lanes = _layout(p.right, p.right.row, p.right.column, p.sum_dtype.itemsize)
    return {"A_MAJOR": a_major, "A_LANES": a_lanes, "B_MAJOR": b_major, "B_LANES": b_lanes}


def _layout(matrix: Matrix, k_stride: int, mn_stride: int, itemsize: int) -> tuple[str, int]:
    """Return "k" or "mn", and how many elements one load moves. The mn axis is m of the left, n of the right operand."""
    major, step, other = ("mn", mn_stride, k_stride) if abs(mn_stride) < abs(k_stride) else ("k", k_stride, mn_stride)
    vectors = step == 1 and matrix.aligned and all(s % LANES == 0 for s in (other, *matrix.batch))
    return major, LANES if vectors and itemsize <= 4 else 1


def targets(p: Product) -> tuple[list[Parameter], list[Parameter]]:
    """Return the buffers of lib/store_sums.wgsl and the numbers that follow them."""
    bias: list[Parameter] = [] if p.bias is None else [Tensor(p.bias)]
    numbers = [p.out.row, p.out.column, *([] if p.bias is None else [p.bias_row, p.bias_column])]
    return [*bias, Tensor(p.out.place)], uints(*numbers)


def parameters(p: Product, split_length: int, *, split: bool) -> list[Parameter]:
    """Return the parameters of gemm/operands.wgsl."""
    buffers, numbers = ([Workspace(p.workspace)], []) if split else targets(p)
    return [
        Tensor(p.left.place), Tensor(p.right.place), *buffers,
        *uints(p.m, p.n, p.k, split_length, p.count, *p.batch[1:]), *uints(p.left.row, p.left.column, *p.left.batch),
        *uints(p.right.column, p.right.row, *p.right.batch), *numbers,
    ]  # fmt: skip
