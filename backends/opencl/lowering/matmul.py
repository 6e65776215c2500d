"""Matrix products of contiguous batches."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.common.expressions import register_class
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Constant, Tensor
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}

_TILE = 16
_ROWS = 4


def batched(runtime: Runtime, a: Spec, b: Spec, out: Spec) -> Launch:
    """A launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N)."""
    batch, m, k = a.shape
    n = b.shape[2]
    definitions: dict[str, str | int | bool] = {
        "DTYPE": a.dtype.name,
        "OUT_DTYPE": out.dtype.name,
        "ACCUMULATOR": type_name(register_class(out.dtype if out.dtype.kind != "bool" else a.dtype)),
    }
    parameters = [Tensor(0), Tensor(1), Tensor(2), Constant(m, "uint"), Constant(n, "uint"), Constant(k, "uint")]
    return runtime.launch(
        "matmul_small", "matmul_small", definitions, parameters, (n, -(-m // _ROWS), batch), (_TILE, 1, 1)
    )
