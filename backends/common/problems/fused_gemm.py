"""Matrix products with fused elementwise steps, as products with an epilogue."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.elementwise import translate
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gemm import Addend, Epilogue, Matrix, PairedSum, Product, ProductBuilder, describe
from polyhal.hal.layout import Spec
from polyhal.hal.ops.linear_algebra.fused_matmul import epilogue_inputs
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def lowerings(
    build: ProductBuilder, excluded: Callable[[Any], Collection[str]], *, wide: bool = False
) -> dict[str, LoweringFunction]:
    """Return the lowering function of `fused_matmul` on a builder that supports epilogues.

    `excluded(runtime)` returns the names of ops that are faster in a separate launch. `wide` means that the builder supports
    results, and operands of the epilogue, in another dtype than the factors'.
    """

    def fused_matmul(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x, y, *others = inputs
        (out,) = outputs
        if not isinstance(x, Spec) or not isinstance(y, Spec) or any(not isinstance(s, Spec) for s in others):
            return Declined("an operand is a number")
        if x.dtype is not y.dtype or any(
            s.dtype not in ((x.dtype, out.dtype) if wide else (x.dtype,)) for s in (out, *others) if s is not None
        ):
            return Declined("the operands have different dtypes")
        slow = {step[0] for step in params["steps"]}.intersection(excluded(runtime))
        if slow:
            return Declined(f"{', '.join(sorted(slow))} is faster in a separate launch")
        p = describe(x, y, out, (0, 1, None, len(inputs), len(inputs) + 1))
        if isinstance(p, Declined):
            return p
        fused = with_epilogue(runtime, p, inputs, out, params)
        if isinstance(fused, Declined):
            return fused
        return build(runtime, replace(fused, precision=params.get("precision", "highest")))

    return {"fused_matmul": fused_matmul}


def with_epilogue(
    runtime: Any, p: Product, inputs: tuple[InputSpec | None, ...], out: Spec, params: Params
) -> Product | Declined:
    """Return a product of the first two inputs with the steps of a fused op as its epilogue."""
    translation = translate(runtime, epilogue_inputs(out, inputs, params), params["steps"])
    if isinstance(translation, Declined):
        return translation
    steps, values = translation
    operands: list[Addend | PairedSum | float] = []
    for index, spec in enumerate(inputs[2:], 2):
        assert isinstance(spec, Spec)
        addend = _addend(p, out, index, spec)
        if isinstance(addend, Declined):
            return addend
        operands.append(addend)
    operands += [float(n) for n in params["numbers"]]
    if values[-1] != len(operands) + len(steps):
        return Declined("the last step is not the result")
    return replace(p, epilogue=Epilogue(tuple(steps), tuple(operands)))


def _addend(p: Product, out: Spec, index: int, spec: Spec) -> Addend | Declined:
    """Describe an epilogue operand: of the shape of the output, broadcast over rows, or a single element."""
    if spec.shape == out.shape and spec.is_contiguous:
        return Addend(replace(p.out, place=index, aligned=spec.aligned), spec.dtype)
    if spec.size == 1:
        return Addend(Matrix(index, 0, 0, (0, 0, 0)), spec.dtype)
    if spec.size == spec.shape[-1] == out.shape[-1]:
        return Addend(Matrix(index, 0, spec.strides[-1], (0, 0, 0), spec.aligned), spec.dtype)
    return Declined(f"an operand of shape {spec.shape} does not broadcast to rows of the product of shape {out.shape}")
