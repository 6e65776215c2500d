"""Choice of the kernel of a product with quantised weights.

- Processors: `cpu_rows`. GPUs: `few_rows` for 16-bit floats on tensor cores, and `mma_rows` for others without epilogues.
- Other products decline: their weights become floats first (the op's decomposition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.problems.fused_gemm import with_epilogue
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.common.problems.quantized import product, whole_product
from polyhal.backends.opencl_c.lowering.quantized import cpu_rows, few_rows, mma_rows
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.formats import FORMATS

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def build(runtime: Runtime, p: Product, form: BlockFormat) -> Launch | Declined:
    """Build the launch of a product, which may have an epilogue, several matrices or a norm."""
    return cpu_rows.build(runtime, p, form) if runtime.features.cpu else few_rows.build(runtime, p, form)


def quantized_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `quantized_matmul`."""
    whole = whole_product(inputs, outputs[0], params)
    launch = whole if isinstance(whole, Declined) else build(runtime, whole, FORMATS[params["format"]])
    if runtime.features.cpu or not isinstance(launch, Declined):
        return launch
    p = product(inputs, outputs, params)
    if isinstance(p, Declined):
        return p
    if p.m > mma_rows.MAX_ROWS:
        return Declined("many rows: the weights become floats first")
    if not mma_rows.suits(runtime.features):
        return Declined("the device has too small groups or too little local memory")
    return mma_rows.build(runtime, p, mma_rows.choose(runtime, p))


def fused_quantized_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `fused_quantized_matmul`."""
    (out,) = outputs
    p = whole_product(inputs, out, params)
    if isinstance(p, Declined):
        return p
    fused = with_epilogue(runtime, p, inputs, out, params)
    return fused if isinstance(fused, Declined) else build(runtime, fused, FORMATS[params["format"]])


LOWERINGS = {"quantized_matmul": quantized_matmul, "fused_quantized_matmul": fused_quantized_matmul}
