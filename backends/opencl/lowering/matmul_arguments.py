"""What all kernels of matrix products are given: definitions and the parameters that say how operands lie."""

from __future__ import annotations

from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.common.products import Product
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter


def definitions(p: Product, **more: str | int | bool) -> dict[str, str | int | bool]:
    common: dict[str, str | int | bool] = {
        "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name, "REAL": type_name(p.kind), "BIAS": p.bias is not None
    }  # fmt: skip
    return common | more


def bias(p: Product) -> list[Parameter]:
    return [] if p.bias is None else [Tensor(p.bias)]


def uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


def longs(*values: int) -> list[Parameter]:
    return [Constant(v, "long") for v in values]


def operands(p: Product) -> list[Parameter]:
    """The strides of both operands and the batch, as the kernels that read both from memory take them."""
    return [
        *longs(p.left.row, p.left.column, p.right.row, p.right.column), *uints(*p.batch[1:]), *longs(*p.left.batch),
        *longs(*p.right.batch),
    ]  # fmt: skip
