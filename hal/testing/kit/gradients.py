"""Gradient checks: the tape against central differences, hand-written rules against decompositions, second derivatives.

Bounds: a gradient rule is a short chain of ops, each within its own tolerance. `_CHAIN_UNITS` units of the dtype at the
largest gradient are allowed, and as many more per doubling of the summed elements. Central differences in float64 add
about 1e-8 of the same magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.autograd import grad
from polyhal.hal import dtypes
from polyhal.hal.compile.planning.decompose import decomposition
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, finfo
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.tensor_like import Array
from polyhal.hal.system.reference.op_calls import OpCall, evaluate, specs_of
from polyhal.hal.system.reference.tolerances import ResultError, computing
from polyhal.hal.testing.kit.failures import failure_context
from polyhal.hal.testing.kit.finite_differences import Direction, central_difference, directional_derivative, directions
from polyhal.hal.testing.kit.forward import contiguous_layouts, place_inputs, rotated_layouts, run_call
from polyhal.hal.testing.kit.input_layouts import InputLayout, place_input
from polyhal.hal.testing.kit.sample_calls import SEED, runnable_calls
from polyhal.hal.testing.kit.scope import Scope
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs

_CHAIN_UNITS = 64.0
_DIFFERENCE_ERROR = 1e-7
_HALF_UNITS = 8
"""Units allowed for a half-precision gradient, whose intermediate results are also rounded to half precision."""
_SECOND_ORDER_SAMPLES = 3
_SECOND_ORDER_DIRECTIONS = 5
_SECOND_ORDER_ELEMENTS = 400

Weights = dict[int, np.ndarray]
"""Weights of the outputs in the differentiated scalar, by output."""


def is_differentiable(device: Device, op: OpDef, scope: Scope) -> bool:
    """Return whether the tape records `op`, and it has a differentiable sample."""
    if (op.gradient is None and op.decompose is None) or op.schema.mutates or op.tests.samples is None:
        return False
    if dtypes.float32 not in op.tests.dtypes:
        return False
    return any(_is_differentiable_call(c) for c in runnable_calls(device, op, dtypes.float32, scope))


def differentiable_calls(device: Device, op: OpDef, dtype: DType, scope: Scope) -> list[OpCall]:
    """Return the calls with non-empty float inputs, a float result, and no special values."""
    return [c for c in runnable_calls(device, op, dtype, scope) if _is_differentiable_call(c)]


def _is_differentiable_call(call: OpCall) -> bool:
    if call.sample.special or not call.sample.differentiable or not _differentiated(call):
        return False
    first = call.outputs()[0]
    return first.dtype.is_floating_point and bool(first.size)


def _is_float_array(value: Array | float) -> bool:
    return isinstance(value, np.ndarray) and as_dtype(value.dtype).is_floating_point


def _differentiated(call: OpCall) -> tuple[int, ...]:
    """Return the inputs with respect to which derivatives are taken."""
    return tuple(i for i, v in enumerate(call.values) if _is_float_array(v) and v.size)


def _weights(call: OpCall) -> Weights:
    """Return random weights for the outputs with gradients: the first one, and outputs that the rule names."""
    op, outputs = call.op, call.outputs()
    rng = np.random.default_rng(SEED + call.number)
    if op.gradient is None:
        weighted = tuple(i for i, s in enumerate(outputs) if s.dtype.is_floating_point)
    else:
        names = op.schema.outputs
        named = [names.index(n[2:]) for n in op.gradient.needs if n.startswith("g_") and n[2:] in names]
        weighted = (0, *(i for i in named if i))
    return {i: rng.uniform(0.5, 1.5, outputs[i].shape) * rng.choice([-1.0, 1.0], outputs[i].shape) for i in weighted}


def tape_gradients(
    call: OpCall,
    inputs: Inputs,
    weights: Weights,
    device: Device,
    *,
    derived: bool = False,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Return gradients of the weighted sum of the results; `derived` differentiates the decomposition instead of the op."""
    leaves = [inputs[i] for i in _differentiated(call)]
    for x in leaves:
        x.requires_grad_()
    if derived:
        with dispatch.default_device(device):
            outs = decomposition(call.op, call.outputs())(*inputs, **_normalized_params(call))
    else:
        outs = run_call(call, inputs, device)
    factors = _unique_factors(call, [out.detach().numpy() for out in outs])
    roots = [(outs[i], np.broadcast_to(w * factors[i], w.shape)) for i, w in weights.items() if outs[i].requires_grad]
    if not roots:
        return [None] * len(leaves)
    seeds = [place_input(w.astype(o.dtype.numpy), InputLayout.CONTIGUOUS, device) for o, w in roots]
    return list(grad([o for o, _ in roots], leaves, seeds, create_graph=create_graph, allow_unused=True))


def _unique_factors(call: OpCall, results: Sequence[np.ndarray]) -> Sequence[Any]:
    """Return the factors that make results unique (see `OpTests`)."""
    unique = call.op.tests.unique
    return [1] * len(results) if unique is None else unique(tuple(results))


def _normalized_params(call: OpCall) -> dict[str, Any]:
    """Return the parameters normalized by the op's rule, as passed to a decomposition."""
    params = dict(call.params)
    dispatch.infer(call.op, specs_of(call.values), params, call.stand_ins)
    return params


def _arrays(gradients: Sequence[Tensor | None], call: OpCall, what: str) -> list[np.ndarray]:
    """Return gradients in float64, zeros for absent ones. Raises ResultError for a wrong shape or dtype."""
    out = []
    for i, g in zip(_differentiated(call), gradients, strict=True):
        value = call.values[i]
        if g is None:
            out.append(np.zeros(value.shape))
            continue
        kind = as_dtype(value.dtype)
        if g.shape != value.shape or g.dtype is not kind:
            raise ResultError(what, f"the gradient of input {i} is {g.spec}; expected {kind.name}{list(value.shape)}")
        out.append(g.numpy().astype(np.float64))
    return out


def _limit(dtype: DType, arrays: Sequence[np.ndarray], elements: float, chain: float = _CHAIN_UNITS) -> float:
    """Return the allowed error of a directional derivative that sums `elements` products with these gradients.

    Each of them may be off by `chain` units of the dtype.
    """
    count = max(elements, 1)
    largest = max([1.0, *(float(np.abs(a).max(initial=0.0)) for a in arrays)])
    units = chain * (1 + math.log2(count))
    return (units * finfo(computing(dtype)).eps + _DIFFERENCE_ERROR) * largest * math.sqrt(count)


def _chain_units(call: OpCall) -> float:
    """Return the units by which a gradient may be off: errors of the terms of a sum are independent."""
    terms = call.op.tests.tolerance.gradient_terms
    return _CHAIN_UNITS if terms is None else max(_CHAIN_UNITS, math.sqrt(terms(specs_of(call.values), call.params)))


def _moving(direction: Direction) -> float:
    """Return the number of elements that a direction moves."""
    return sum(float(np.count_nonzero(s)) for s in direction.steps)


# --- first order ----------------------------------------------------------------------------------------------------


def check_first_order(device: Device, op: OpDef, dtype: DType, scope: Scope) -> None:
    """Check the tape against central differences of the reference, and the rule against the decomposition's gradient.

    Half-precision gradients are compared with the device's own float32 gradients at equal, rounded inputs.
    """
    for call in differentiable_calls(device, op, dtype, scope):
        rotated = call.number % 2 and not scope.few_shapes
        layouts = rotated_layouts(call, 1) if rotated else contiguous_layouts(call)
        values, inputs = place_inputs(call, layouts, device)
        call = OpCall(op, values, call.params, call.sample, call.number)
        what = f"gradient of {call}"
        with failure_context(what):
            _check_first_order(device, call, inputs, dtype, what)


def _check_first_order(device: Device, call: OpCall, inputs: Inputs, dtype: DType, what: str) -> None:
    op, weights = call.op, _weights(call)
    gradients = _arrays(tape_gradients(call, inputs, weights, device), call, what)
    if dtype.itemsize < 4:
        _compare_with_float32(call, gradients, weights, device, what)
        return
    _compare_with_differences(call, gradients, weights, dtype, what)
    if op.gradient is None or op.decompose is None:
        return
    _, fresh = place_inputs(call, contiguous_layouts(call), device)
    derived = _arrays(tape_gradients(call, fresh, weights, device, derived=True), call, what)
    for i, a, b in zip(_differentiated(call), gradients, derived, strict=True):
        limit = _limit(dtype, [a, b], call.values[i].size, _chain_units(call))
        worst = float(np.abs(a - b).max(initial=0.0))
        if not worst <= limit:
            raise ResultError(what, f"rule and decomposition differ by {worst:.3g} for input {i}, {limit:.3g} allowed")


def _compare_with_differences(
    call: OpCall, gradients: list[np.ndarray], weights: Weights, dtype: DType, what: str
) -> None:
    differentiated = _differentiated(call)
    points = [call.values[i].astype(np.float64) for i in differentiated]

    def loss(at: Sequence[np.ndarray]) -> float:
        values = [v.astype(np.float64) if _is_float_array(v) else v for v in call.values]
        for i, p in zip(differentiated, at, strict=True):
            values[i] = p
        results = evaluate(call.op.reference, tuple(values), call.params)
        factors = _unique_factors(call, results)
        return float(sum(np.sum(results[i] * w * factors[i]) for i, w in weights.items()))

    for direction in directions(points, np.random.default_rng(SEED)):
        predicted, measured = directional_derivative(gradients, direction), central_difference(loss, points, direction)
        limit = _limit(dtype, gradients, _moving(direction), _chain_units(call))
        if not abs(predicted - measured) <= limit:
            raise _disagreement(what, direction, predicted, measured, limit)


def _disagreement(what: str, direction: Direction, predicted: float, measured: float, limit: float) -> ResultError:
    values = f"{predicted:.9g} by the tape, {measured:.9g} by central differences; allowed difference {limit:.3g}"
    return ResultError(what, f"along {direction.name} {values}")


def _compare_with_float32(
    call: OpCall, gradients: list[np.ndarray], weights: Weights, device: Device, what: str
) -> None:
    values = tuple(v.astype(np.float32) if _is_float_array(v) else v for v in call.values)
    wide = OpCall(call.op, values, call.params, call.sample, call.number)
    _, inputs = place_inputs(wide, contiguous_layouts(wide), device)
    rounded = {i: w.astype(call.values[_differentiated(call)[0]].dtype).astype(np.float64) for i, w in weights.items()}
    expected = _arrays(tape_gradients(wide, inputs, rounded, device), wide, what)
    for i, a, b in zip(_differentiated(call), gradients, expected, strict=True):
        eps = finfo(as_dtype(call.values[i].dtype)).eps
        limit = _HALF_UNITS * eps * max(1.0, float(np.abs(b).max(initial=0.0)))
        worst = float(np.abs(a - b).max(initial=0.0))
        if not worst <= limit:
            raise ResultError(what, f"input {i} is {worst:.3g} away from the float32 gradient, {limit:.3g} allowed")


# --- second order ---------------------------------------------------------------------------------------------------


def check_second_order(device: Device, op: OpDef, scope: Scope) -> None:
    """Check gradients of gradients against central differences of first-order gradients in float64 on the host.

    The first-order gradients are the NumPy device's, which the first-order check compares with the reference.
    """
    precise = scope.full and dtypes.float64 in device.capabilities.compute and dtypes.float64 in op.tests.dtypes
    dtype = dtypes.float64 if precise else dtypes.float32
    small = [c for c in differentiable_calls(device, op, dtype, scope) if c.elements <= _SECOND_ORDER_ELEMENTS]
    for call in small[:_SECOND_ORDER_SAMPLES]:
        what = f"second derivative of {call}"
        with failure_context(what):
            _check_second_order(device, call, dtype, what)


def _check_second_order(device: Device, call: OpCall, dtype: DType, what: str) -> None:
    host = Device("numpy")
    weights, differentiated = _weights(call), _differentiated(call)
    rng = np.random.default_rng(SEED)
    cotangents = [rng.uniform(-1.0, 1.0, call.values[i].shape) for i in differentiated]
    second = _second_gradients(call, weights, cotangents, device, what)
    points = [call.values[i].astype(np.float64) for i in differentiated]

    def first_gradients(at: Sequence[np.ndarray]) -> float:
        """Return the product of the first-order gradients at a point with the cotangents."""
        values = [
            v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v for v in call.values
        ]
        for i, p in zip(differentiated, at, strict=True):
            values[i] = p
        there = OpCall(call.op, tuple(values), call.params, call.sample, call.number)
        _, inputs = place_inputs(there, contiguous_layouts(there), host)
        gradients = tape_gradients(there, inputs, weights, host)
        return float(sum(np.sum(g.numpy() * c) for g, c in zip(gradients, cotangents, strict=True) if g is not None))

    for direction in directions(points, rng, sampled=4)[-_SECOND_ORDER_DIRECTIONS:]:
        predicted = directional_derivative(second, direction)
        measured = central_difference(first_gradients, points, direction)
        limit = 4 * _limit(dtype, [*second, *cotangents], _moving(direction))
        if not abs(predicted - measured) <= limit:
            raise _disagreement(what, direction, predicted, measured, limit)


def _second_gradients(
    call: OpCall, weights: Weights, cotangents: list[np.ndarray], device: Device, what: str
) -> list[np.ndarray]:
    """Return the gradient of the product of the gradients with `cotangents`, in float64."""
    _, inputs = place_inputs(call, contiguous_layouts(call), device)
    leaves = [inputs[i] for i in _differentiated(call)]
    gradients = tape_gradients(call, inputs, weights, device, create_graph=True)
    tracked = [(g, c) for g, c in zip(gradients, cotangents, strict=True) if g is not None and g.requires_grad]
    if not tracked:
        return [np.zeros(x.shape) for x in leaves]
    seeds = [place_input(c.astype(g.dtype.numpy), InputLayout.CONTIGUOUS, device) for g, c in tracked]
    return _arrays(grad([g for g, _ in tracked], leaves, seeds, allow_unused=True), call, what)
