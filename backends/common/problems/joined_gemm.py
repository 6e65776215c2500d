"""Products of one input with several weights, with a norm before and a gate after them, as one product."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.elementwise import translate
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gemm import Epilogue, Joined, PairedSum, ProductBuilder, describe
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def lowering(build: ProductBuilder) -> LoweringFunction:
    """Return the lowering function of `joined_linear` on a builder that supports `Product.joined`."""

    def joined_linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x, *weights = (s for s in inputs if isinstance(s, Spec))
        (out,) = outputs
        scale = None if params["eps"] is None else weights.pop()
        if any(s.dtype is not x.dtype or not s.is_contiguous for s in (*weights, scale) if s is not None):
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
        )
        epilogue = _gate(runtime, out, params) if params["steps"] else None
        return (
            epilogue if isinstance(epilogue, Declined) else build(runtime, replace(p, joined=joined, epilogue=epilogue))
        )

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
