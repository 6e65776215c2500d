"""Products of one input with several weights, with a norm before and a gate after them, as one product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.elementwise import translate
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gemm import Epilogue, Joined, PairedSum, Product, ProductBuilder, describe
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.formats import FORMATS

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


QuantizedBuilder = Callable[[Any, Product, BlockFormat], Launch | Declined]
"""`build(runtime, product, form)` returns the launch of a product with quantised weights, or the reason why there is none."""


def lowering(build: ProductBuilder, build_quantized: QuantizedBuilder) -> LoweringFunction:
    """Return the lowering function of `joined_linear` on builders that support `Product.joined`."""

    def joined_linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x, *weights = (s for s in inputs if isinstance(s, Spec))
        (out,) = outputs
        scale = None if params["eps"] is None else weights.pop()
        form = None if params["format"] is None else FORMATS[params["format"]]
        stored = x.dtype if form is None else dtypes.uint8
        if any(s.dtype is not stored or not s.is_contiguous for s in weights) or (
            scale is not None and (scale.dtype is not x.dtype or not scale.is_contiguous)
        ):
            return Declined("weights of another dtype than the input's, or that are not contiguous")
        if x.ndim < 2 or not out.is_contiguous:
            return Declined("a vector, or a result that is not contiguous")
        columns, terms = [w.shape[0] for w in weights], x.shape[-1]
        whole = Spec(x.dtype, (terms, out.shape[-1]), (1, terms), all(w.aligned for w in weights))
        p = describe(x, whole, out, (0, 1, None, len(inputs), len(inputs) + 1))
        if isinstance(p, Declined):
            return p
        joined = Joined(
            tuple(range(2, 1 + len(weights))),
            tuple(accumulate(columns[:-1])),
            bool(params["steps"]),
            None if scale is None else len(inputs) - 1,
            params["eps"] or 0.0,
            scale is not None and scale.aligned,
        )
        epilogue = _gate(runtime, out, params) if params["steps"] else None
        if isinstance(epilogue, Declined):
            return epilogue
        p = replace(p, joined=joined, epilogue=epilogue)
        return build(runtime, p) if form is None else build_quantized(runtime, p, form)

    return joined_linear


def _gate(runtime: Any, out: Spec, params: Params) -> Epilogue | Declined:
    """Return the steps as an epilogue, whose operand is the sum of the second weight."""
    product = contiguous(params["out_dtype"] or out.dtype, out.shape)
    translation = translate(runtime, (product, product), params["steps"])
    if isinstance(translation, Declined):
        return translation
    steps, values = translation
    if values[-1] != 1 + len(steps):
        return Declined("the last step is not the result")
    return Epilogue(tuple(steps), (PairedSum(),))
