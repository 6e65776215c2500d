"""Grouped matrix products, as in mixture-of-experts layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, cast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("_grouped_mm")
def grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Multiply each group of rows of `a` (s, k), or of columns of `b`, by its own matrix; or (m, s) by (s, n) in parts.

    Groups end at `offs`. Its elements are read, which waits for the device.
    """
    if bias is not None:
        raise UnsupportedArgumentsError
    if offs is None:
        return cast(F["matmul"](a, b), out_dtype)
    ends = offs.tolist()
    parts = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.ndim == 2 and b.ndim == 3:
        out = F["concat"]([F["matmul"](a[start:end], b[g]) for g, (start, end) in enumerate(parts)], 0)
    elif a.ndim == 3 and b.ndim == 2:
        out = F["concat"]([F["matmul"](a[g], b[:, start:end]) for g, (start, end) in enumerate(parts)], 1)
    else:
        out = F["stack"]([F["matmul"](a[:, start:end], b[start:end]) for start, end in parts], 0)
    return cast(out, out_dtype)
