"""Choice of the kernel of a product with quantised weights.

- Few rows: `few_rows`, also with an epilogue, several matrices or a norm.
- Other products decline: their weights become floats first (the op's decomposition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import joined_gemm
from polyhal.backends.common.problems.fused_gemm import with_epilogue
from polyhal.backends.common.problems.quantized import whole_product
from polyhal.backends.wgpu.lowering.gemm.dispatch import several
from polyhal.backends.wgpu.lowering.quantized import few_rows
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.formats import FORMATS

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def quantized_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `quantized_matmul`."""
    p = whole_product(inputs, outputs[0], params)
    if isinstance(p, Declined):
        return p
    return _fits(runtime, inputs, outputs) or few_rows.build(runtime, p, FORMATS[params["format"]])


def fused_quantized_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `fused_quantized_matmul`."""
    p = whole_product(inputs, outputs[0], params)
    fused = p if isinstance(p, Declined) else with_epilogue(runtime, p, inputs, outputs[0], params)
    if isinstance(fused, Declined):
        return fused
    return _fits(runtime, inputs, outputs) or few_rows.build(runtime, fused, FORMATS[params["format"]])


def joined_linear(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `joined_linear`."""
    return _fits(runtime, inputs, outputs) or _JOINED(runtime, inputs, outputs, params)


def _fits(runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...]) -> Declined | None:
    specs = [s for s in inputs if isinstance(s, Spec)]
    return OPERAND_TOO_LARGE if too_large(runtime, *specs, *outputs) else None


_JOINED = joined_gemm.lowering(several, few_rows.build)

LOWERINGS: dict[str, LoweringFunction] = {
    "quantized_matmul": quantized_matmul,
    "fused_quantized_matmul": fused_quantized_matmul,
    "joined_linear": joined_linear,
}
