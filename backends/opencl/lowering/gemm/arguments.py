"""What all kernels of matrix products are given: definitions and the parameters that say how operands lie."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter


def definitions(p: Product, *groups: Definitions, **more: str | int | bool) -> dict[str, str | int | bool]:
    """The types of a product, and what else is defined for its kernel."""
    real = type_name(p.sum_class)
    defined: dict[str, str | int | bool] = {
        "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name, "REAL": real,
        "WIDEN": type_name(register_class(p.dtype)) != real,
    }  # fmt: skip
    for group in groups:
        defined |= group
    return defined | more


def uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


def ints(*values: int) -> list[Parameter]:
    return [Constant(v, "int") for v in values]


def longs(*values: int) -> list[Parameter]:
    return [Constant(v, "long") for v in values]


def ulongs(*values: int) -> list[Parameter]:
    return [Constant(v, "ulong") for v in values]


def operands(p: Product) -> list[Parameter]:
    """The strides of both operands and the batch, as the kernels that read both from memory take them."""
    return [
        *longs(p.left.row, p.left.column, p.right.row, p.right.column), *uints(*p.batch[1:]), *longs(*p.left.batch),
        *longs(*p.right.batch),
    ]  # fmt: skip
