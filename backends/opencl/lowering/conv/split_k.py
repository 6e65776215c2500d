"""Convolutions whose terms are shared out among groups: the launch that adds up their sums."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.gemm.arguments import uints
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

_GROUP = 64
_COLUMNS = 4
_MANY = 1 << 19
"""Results from which on work-items that make several of them are enough for a GPU."""


def total(
    runtime: Runtime, name: str, dtypes: tuple[DType, DType], places: tuple[int | None, int, int],
    shape: tuple[int, int, int, int], where: list[Parameter],
) -> Launch:  # fmt: skip
    """The launch for sums of shape (shares, groups, rows, columns); see conv/split_k_reduce.cl.

    `dtypes` are those of the operands and of the output, `places` the positions of the bias, the output and the
    workspace that holds the sums, and `where` is what conv/output_index.h takes.
    """
    shares, groups, m, n = shape
    (dtype, out), (bias, result, workspace) = dtypes, places
    size = groups * m * n
    columns = _COLUMNS if size >= _MANY else 1
    return runtime.launch(
        f"{name}_sum", "conv/split_k_reduce",
        {
            "DTYPE": dtype.name, "OUT_DTYPE": out.name, "REAL": real_type(out), "BIAS": bias is not None,
            "COLUMNS": columns,
        },
        [
            Workspace(workspace), *([] if bias is None else [Tensor(bias)]), Tensor(result),
            *uints(size, m, n, shares), *where,
        ],
        (groups * m * ceil_div(n, columns * _GROUP) * _GROUP,), (_GROUP,),
    )  # fmt: skip


def nbytes(shape: tuple[int, int, int, int], out: DType) -> int:
    """The size of that workspace."""
    shares, groups, m, n = shape
    return shares * groups * m * n * (8 if real_type(out) == "double" else 4)
