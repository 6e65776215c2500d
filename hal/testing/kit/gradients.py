"""Gradient checks: the tape against central differences, a hand-written rule against the decomposition, second
derivatives.

Bounds: a gradient rule is a short chain of ops, each within its own tolerance, so that `_CHAIN` units of the dtype at
the largest gradient are allowed, and as many again per doubling of the elements that flow together; central differences
in float64 add about 1e-8 of the same magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.autograd import grad
from polyhal.hal import dispatch, dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, finfo
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.decompose import decomposition
from polyhal.hal.testing.kit.arrangements import Arrangement, arrange
from polyhal.hal.testing.kit.differences import Direction, along, directions, slope
from polyhal.hal.testing.kit.failures import ResultError, during
from polyhal.hal.testing.kit.forward import placed, plain, rotation, run
from polyhal.hal.testing.kit.scope import Scope
from polyhal.hal.testing.kit.tolerances import computing
from polyhal.hal.testing.kit.values import SEED, Call, evaluate, runnable, specs_of
from polyhal.tensor import Tensor

_CHAIN = 64.0
_DIFFERENCES = 1e-7
_SECOND_ORDER = 3
"""Samples per op whose second derivatives are checked."""


def differentiable(device: Device, op: OpDef, scope: Scope) -> bool:
    """Whether the tape records `op` and any sample says that its derivative exists."""
    if (op.gradient is None and op.decompose is None) or op.schema.mutates or op.tests.samples is None:
        return False
    return bool(usable(device, op, dtypes.float32, scope))


def usable(device: Device, op: OpDef, dtype: DType, scope: Scope) -> list[Call]:
    """The calls with float tensors in, a float result, elements to differentiate, and no special values."""
    found = []
    for call in runnable(device, op, dtype, scope):
        if call.sample.special or not call.sample.differentiable or not _varying(call):
            continue
        first = call.outputs()[0]
        if first.dtype.is_floating_point and first.size:
            found.append(call)
    return found


def _varying(call: Call) -> tuple[int, ...]:
    """The inputs that derivatives are taken in."""
    return tuple(
        i
        for i, v in enumerate(call.values)
        if isinstance(v, np.ndarray) and v.size and as_dtype(v.dtype).is_floating_point
    )


def _weighted(op: OpDef, outputs: Sequence[Spec]) -> tuple[int, ...]:
    """The outputs that gradients come in through: the first, and those that the rule asks for by name."""
    rule = op.gradient
    if rule is None:
        return tuple(i for i, s in enumerate(outputs) if s.dtype.is_floating_point)
    named = tuple(
        op.schema.outputs.index(n[2:]) for n in rule.needs if n.startswith("g_") and n[2:] in op.schema.outputs
    )
    return (0, *(i for i in named if i))


def _weights(call: Call, outputs: Sequence[Spec]) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(SEED + call.number)
    return {
        i: rng.uniform(0.5, 1.5, outputs[i].shape) * rng.choice([-1.0, 1.0], outputs[i].shape)
        for i in _weighted(call.op, outputs)
    }


def tape_gradients(
    call: Call,
    inputs: tuple[Any, ...],
    weights: dict[int, np.ndarray],
    device: Device,
    *,
    derived: bool = False,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Gradients of the weighted sum of the results in the varying inputs; `derived` goes through the decomposition."""
    varying = [inputs[i] for i in _varying(call)]
    for x in varying:
        x.requires_grad_()
    if derived:
        with dispatch.default_device(device):
            outs = decomposition(call.op, call.outputs())(*inputs, **_bound(call))
    else:
        outs = run(call, inputs, device)
    chosen = [(outs[i], w) for i, w in weights.items() if outs[i].requires_grad]
    if not chosen:
        return [None] * len(varying)
    seeds = [arrange(w.astype(o.dtype.numpy), Arrangement.CONTIGUOUS, device) for o, w in chosen]
    return list(grad([o for o, _ in chosen], varying, seeds, create_graph=create_graph, allow_unused=True))


def _bound(call: Call) -> dict[str, Any]:
    """The parameters as the op's rule normalises them, which is how a decomposition receives them."""
    bound = dict(call.params)
    dispatch.infer(call.op, specs_of(call.values), bound)
    return bound


def _arrays(found: Sequence[Tensor | None], call: Call, what: str) -> list[np.ndarray]:
    """Gradients in float64, zeros for absent ones. Raises AssertionError for a wrong shape or dtype."""
    out = []
    for i, g in zip(_varying(call), found, strict=True):
        value = call.values[i]
        if g is None:
            out.append(np.zeros(value.shape))
            continue
        kind = as_dtype(value.dtype)
        if g.shape != value.shape or g.dtype is not kind:
            raise ResultError(what, f"the gradient of input {i} is {g.spec}; expected {kind.name}{list(value.shape)}")
        out.append(g.numpy().astype(np.float64))
    return out


def _limit(dtype: DType, arrays: Sequence[np.ndarray], elements: float) -> float:
    """The allowed error of a directional derivative that sums `elements` products of such gradients."""
    largest = max([1.0, *(float(np.abs(a).max(initial=0.0)) for a in arrays)])
    return (
        (_CHAIN * (1 + math.log2(max(elements, 1))) * finfo(computing(dtype)).eps + _DIFFERENCES)
        * largest
        * math.sqrt(max(elements, 1))
    )


def first_order(device: Device, op: OpDef, dtype: DType, scope: Scope) -> None:
    """Check the tape against central differences of the reference, and the rule against the decomposition's gradient.

    Half-precision gradients are compared with the device's own float32 gradients at the same, rounded, inputs.
    """
    for call in usable(device, op, dtype, scope):
        values, inputs = placed(call, rotation(call, 1) if call.number % 2 else plain(call), device)
        call = Call(op, values, call.params, call.sample, call.number)
        what = f"gradient of {call}"
        with during(what):
            _first_order(device, call, inputs, dtype, what)


def _first_order(device: Device, call: Call, inputs: tuple[Any, ...], dtype: DType, what: str) -> None:
    op, weights = call.op, _weights(call, call.outputs())
    got = _arrays(tape_gradients(call, inputs, weights, device), call, what)
    if dtype.itemsize < 4:
        _half(call, got, weights, device, what)
        return
    _against_differences(call, got, weights, dtype, what)
    if op.gradient is None or op.decompose is None:
        return
    _, fresh = placed(call, plain(call), device)
    other = _arrays(tape_gradients(call, fresh, weights, device, derived=True), call, what)
    for i, a, b in zip(_varying(call), got, other, strict=True):
        limit = _limit(dtype, [a, b], call.values[i].size)
        worst = float(np.abs(a - b).max(initial=0.0))
        if not worst <= limit:
            raise ResultError(what, f"rule and decomposition differ by {worst:.3g} for input {i}, {limit:.3g} allowed")


def _against_differences(
    call: Call, got: list[np.ndarray], weights: dict[int, np.ndarray], dtype: DType, what: str
) -> None:
    varying = _varying(call)
    points = [call.values[i].astype(np.float64) for i in varying]

    def loss(at: Sequence[np.ndarray]) -> float:
        values = [
            v.astype(np.float64) if isinstance(v, np.ndarray) and as_dtype(v.dtype).is_floating_point else v
            for v in call.values
        ]
        for i, p in zip(varying, at, strict=True):
            values[i] = p
        results = evaluate(call.op.reference, tuple(values), call.params)
        return float(sum(np.sum(results[i] * w) for i, w in weights.items()))

    for direction in directions(points, np.random.default_rng(SEED)):
        predicted, measured = along(got, direction), slope(loss, points, direction)
        limit = _limit(dtype, got, sum(float(np.count_nonzero(s)) for s in direction.steps))
        if not abs(predicted - measured) <= limit:
            raise _disagreement(what, direction, predicted, measured, limit)


def _disagreement(what: str, direction: Direction, predicted: float, measured: float, limit: float) -> ResultError:
    said = f"the tape says {predicted:.9g}, differences say {measured:.9g}; {limit:.3g} apart allowed"
    return ResultError(what, f"along {direction.name} {said}")


def _half(call: Call, got: list[np.ndarray], weights: dict[int, np.ndarray], device: Device, what: str) -> None:
    wide = tuple(
        v.astype(np.float32) if isinstance(v, np.ndarray) and as_dtype(v.dtype).is_floating_point else v
        for v in call.values
    )
    reference = Call(call.op, wide, call.params, call.sample, call.number)
    _, inputs = placed(reference, plain(reference), device)
    rounded = {i: w.astype(call.values[_varying(call)[0]].dtype).astype(np.float64) for i, w in weights.items()}
    expected = _arrays(tape_gradients(reference, inputs, rounded, device), reference, what)
    for i, a, b in zip(_varying(call), got, expected, strict=True):
        kind = as_dtype(call.values[i].dtype)
        # The rule's intermediate results are rounded to half precision too: a few units, at the largest magnitude.
        limit = 8 * finfo(kind).eps * max(1.0, float(np.abs(b).max(initial=0.0)))
        worst = float(np.abs(a - b).max(initial=0.0))
        if not worst <= limit:
            raise ResultError(what, f"input {i} is {worst:.3g} away from the float32 gradient, {limit:.3g} allowed")


def second_order(device: Device, op: OpDef, scope: Scope) -> None:
    """Check gradients of gradients against central differences of the first-order gradients in float64 on the host.

    The latter are those of the NumPy device, which the first-order check has measured against the reference.
    """
    precise = scope.full and dtypes.float64 in device.capabilities.compute and dtypes.float64 in op.tests.dtypes
    dtype = dtypes.float64 if precise else dtypes.float32
    small = [c for c in usable(device, op, dtype, scope) if c.elements <= 400]
    for call in small[:_SECOND_ORDER]:
        what = f"second derivative of {call}"
        with during(what):
            _second_order(device, call, dtype, what)


def _second_order(device: Device, call: Call, dtype: DType, what: str) -> None:
    host = Device("numpy")
    weights, varying = _weights(call, call.outputs()), _varying(call)
    rng = np.random.default_rng(SEED)
    seeds = [rng.uniform(-1.0, 1.0, call.values[i].shape) for i in varying]
    got = _second(call, weights, seeds, device, what)
    points = [call.values[i].astype(np.float64) for i in varying]

    def slopes(at: Sequence[np.ndarray]) -> float:
        moved = [
            v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v for v in call.values
        ]
        for i, p in zip(varying, at, strict=True):
            moved[i] = p
        there = Call(call.op, tuple(moved), call.params, call.sample, call.number)
        _, inputs = placed(there, plain(there), host)
        found = tape_gradients(there, inputs, weights, host)
        return float(sum(np.sum(g.numpy() * s) for g, s in zip(found, seeds, strict=True) if g is not None))

    for direction in directions(points, rng, some=4)[-5:]:
        predicted, measured = along(got, direction), slope(slopes, points, direction)
        limit = 4 * _limit(dtype, [*got, *seeds], sum(float(np.count_nonzero(s)) for s in direction.steps))
        if not abs(predicted - measured) <= limit:
            raise _disagreement(what, direction, predicted, measured, limit)


def _second(
    call: Call, weights: dict[int, np.ndarray], seeds: list[np.ndarray], device: Device, what: str
) -> list[np.ndarray]:
    """The gradient of the gradients' product with `seeds`, in float64."""
    _, inputs = placed(call, plain(call), device)
    varying = [inputs[i] for i in _varying(call)]
    found = tape_gradients(call, inputs, weights, device, create_graph=True)
    tracked = [(g, s) for g, s in zip(found, seeds, strict=True) if g is not None and g.requires_grad]
    if not tracked:
        return [np.zeros(x.shape) for x in varying]
    cotangents = [arrange(s.astype(g.dtype.numpy), Arrangement.CONTIGUOUS, device) for g, s in tracked]
    return _arrays(grad([g for g, _ in tracked], varying, cotangents, allow_unused=True), call, what)
