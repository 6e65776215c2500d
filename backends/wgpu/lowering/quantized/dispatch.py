"""Choice of the kernel of a product with quantised weights.

- Few rows: `few_rows`.
- Other products decline: their weights become floats first (the op's decomposition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.quantized import product
from polyhal.backends.wgpu.lowering.quantized import few_rows
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
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
    if p.m > few_rows.MAX_ROWS:
        return Declined("many rows: the weights become floats first")
    x, blocks = inputs
    assert isinstance(x, Spec)
    assert isinstance(blocks, Spec)
    if too_large(runtime, x, blocks, *outputs):
        return OPERAND_TOO_LARGE
    return few_rows.build(runtime, p, vectors=x.aligned and p.x_row % few_rows.LANES == 0)


LOWERINGS: dict[str, LoweringFunction] = {"quantized_matmul": quantized_matmul}
