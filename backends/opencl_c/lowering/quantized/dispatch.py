"""Choice of the kernel of a product with quantised weights.

- Processors: `cpu_rows`. GPUs: `mma_rows` for few rows.
- Other products decline: their weights become floats first (the op's decomposition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.problems.quantized import product
from polyhal.backends.opencl_c.lowering.quantized import cpu_rows, mma_rows
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def quantized_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `quantized_matmul`."""
    p = product(inputs, outputs, params)
    if isinstance(p, Declined):
        return p
    if runtime.features.cpu:
        return cpu_rows.build(runtime, p)
    if p.m > mma_rows.MAX_ROWS:
        return Declined("many rows: the weights become floats first")
    if not mma_rows.suits(runtime.features):
        return Declined("the device has too small groups or too little local memory")
    return mma_rows.build(runtime, p, mma_rows.choose(runtime, p))


LOWERINGS = {"quantized_matmul": quantized_matmul}
