"""The part of a launch that kernels of products with quantised weights share: operands, further matrices, and the epilogue."""

from __future__ import annotations

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import joined
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.hal.quantization.block_format import BlockFormat


def operands(p: Product, form: BlockFormat) -> tuple[Definitions, dict[str, Argument]]:
    """Return the definitions and kernel arguments of a product with weights of a format."""
    macros, epilogue_args = epilogue(p)
    matrices, further_args = joined.joined(p)
    dtypes = {"FORMAT": form.name, "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name}
    args: dict[str, Argument] = {
        "x": Tensor(p.left.place),
        "y": Tensor(p.right.place),
        "out": Tensor(p.out.place),
        "x_row": p.left.row,
        "rows": p.m,
        "n": p.n,
        "k": p.k,
        **further_args,
        **epilogue_args,
    }
    return {**macros, **matrices, **dtypes}, args
