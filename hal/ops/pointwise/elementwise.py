"""Elementwise ops: the constructor of the family, with NumPy's broadcasting and type promotion.

A backend runs such an op by its `unary`, `binary` or `where` member if it has one of the op's name, and by the op's
decomposition otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import ScalarSpec, Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops.declare import (
    OPS,
    CoreCall,
    CoreInput,
    CoreMember,
    Decompose,
    OnHost,
    OpFunction,
    OpOptions,
    Output,
    Params,
    Promotion,
    Samples,
    Schema,
    Specs,
    Strategy,
    Tolerance,
    Trait,
    declare,
)
from polyhal.hal.ops.pointwise.contract_names import MEMBER_NAMES
from polyhal.hal.ops.pointwise.elementwise_samples import UNIFORM, Uniform
from polyhal.hal.ops.pointwise.promotion import operand_dtype
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_UNARY, ComputeBackend, Declined

_INPUT_NAMES = {1: ("x",), 2: ("x", "y")}


def elementwise(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    *,
    promotion: Promotion = "any",
    result: DType | None = None,
    inputs: tuple[str, ...] = (),
    decompose: Callable[..., Any] | None = None,
    on_host: str = "",
    samples: Samples | Uniform = UNIFORM,
    flops_per_element: int = 1,
    **options: Unpack[OpOptions],
) -> OpFunction:
    """Declare an elementwise op.

    `reference` is a NumPy function of arrays; its keyword-only parameters become those of the op. `promotion` says what
    dtype the inputs are cast to, `result` the dtype of the result if that is another one. `inputs` names the inputs of
    NumPy's own functions where `x` and `y` will not do. `decompose` computes the same from other ops; `on_host` says why the
    op runs in NumPy instead. `samples` are drawn uniformly unless a function makes them.
    """
    schema = _schema(reference, inputs)
    strategies: list[Strategy] = [OnHost(on_host)] if on_host else []
    if not on_host and _fits_core_member(schema):
        strategies.append(CoreMember(_core_rule(name, len(schema.inputs))))
    if decompose is not None:
        strategies.append(Decompose(decompose))
    options.setdefault("dtypes", _default_dtypes(promotion))
    options.setdefault("tolerance", Tolerance(4.0 if promotion == "float" else 1.0))
    options.setdefault("flops", lambda specs, outs, params: flops_per_element * outs[0].size)
    options["traits"] = options.get("traits", Trait.NONE) | Trait.POINTWISE | Trait.INPLACE
    return declare(
        reference,
        name=name,
        doc=doc,
        family="elementwise",
        schema=schema,
        promotion=promotion,
        infer=_infer_rule(name, result),
        lowering=tuple(strategies),
        samples=samples.of(schema.inputs, integral=promotion in ("integral", "integer"))
        if isinstance(samples, Uniform)
        else samples,
        **options,
    )


def _schema(reference: Callable[..., Any], inputs: tuple[str, ...]) -> Schema:
    if inputs:
        return Schema(inputs)
    if isinstance(reference, np.ufunc):
        return Schema(_INPUT_NAMES[reference.nin])
    return Schema.of(reference)


def _fits_core_member(schema: Schema) -> bool:
    """Return whether the op could be a call of `unary`, `binary` or `where`, which take only tensors."""
    return not schema.params and not schema.optional and len(schema.inputs) <= 3


def _default_dtypes(promotion: Promotion) -> tuple[DType, ...]:
    match promotion:
        case "float":
            return dtypes.FLOATS
        case "bool":
            return (dtypes.bool_, dtypes.float32)
        case "integral":
            return (*dtypes.INTEGERS, dtypes.bool_)
        case "integer":
            return dtypes.INTEGERS
        case "numeric" | "number":
            return dtypes.FLOATS + dtypes.INTEGERS
    return (*dtypes.FLOATS, *dtypes.INTEGERS, dtypes.bool_)


def _infer_rule(op: str, result: DType | None) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    def infer(specs: Specs, params: Params) -> list[Output]:
        if None in specs:
            schema = OPS[op].schema
            for name, s in zip(schema.inputs, specs, strict=False):
                if s is None and name not in schema.optional:
                    raise UnsupportedDTypeError(message(op, f"{name} is None", expected="a tensor or a number"))
        shape = broadcast_shapes(*[s.shape for s in specs if s is not None])
        dtype = operand_dtype(OPS[op], specs)
        return [(result or dtype, shape)]

    return infer


def _core_rule(op: str, arity: int) -> Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]:
    name = MEMBER_NAMES.get(op, op)

    def rule(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall | Declined:
        capabilities = backend.capabilities
        known = {
            1: REQUIRED_UNARY | capabilities.unary,
            2: REQUIRED_BINARY | capabilities.binary,
            3: frozenset({"where"}),
        }[arity]
        if name not in known:
            return Declined(f"the backend has no {name}")
        operand, (output,) = operand_dtype(OPS[op], specs), outputs
        operands = [s for s in specs if s is not None]  # all of them: `infer` refuses absent ones
        if arity == 2 and any(isinstance(s, ScalarSpec) or s.dtype is not operand for s in operands):
            operand = _of_mixed(operand)
        inputs: list[CoreInput | None] = []
        for input_name, s in zip(OPS[op].schema.inputs, operands, strict=True):
            condition = input_name == "cond"
            view = View(output.shape, broadcast_strides(s.shape, s.strides, output.shape))
            inputs.append(CoreInput(dtypes.bool_ if condition else operand, (output.size,), view, exact=condition))
        exact = output.dtype is dtypes.bool_
        run = _member(backend, arity, name)
        result = output.dtype if output.dtype.itemsize >= operand.itemsize or exact else operand
        return CoreCall(name, run, tuple(inputs), result, (output.size,), result_exact=exact)

    return rule


def _of_mixed(dtype: DType) -> DType:
    """Return the dtype for a tensor of `dtype` and a number or integer: float32 for half precision, which holds few of them."""
    return dtypes.accumulator(dtype) if dtype.kind == "float" else dtype


def _member(backend: ComputeBackend, arity: int, name: str) -> Callable[..., None]:
    if arity == 1:
        return lambda x, out: backend.unary(name, x, out)
    if arity == 2:
        return lambda a, b, out: backend.binary(name, a, b, out)
    return backend.where
