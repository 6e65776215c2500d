"""The plain recurrent layer over a sequence, with tanh or relu. Source: Elman, Cognitive Science 14 (1990)."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.gradient_rule import copies_results
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.views import permute
from polyhal.hal.ops.linear_algebra.linear import fused_linear
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.activation import relu
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.recurrent.sequence import (
    check,
    check_lengths,
    check_sequence,
    np_states_before,
    np_steps_in_use,
    rows,
    stacked,
    states_before,
    step_of,
    steps_in_use,
    terms,
    time_order,
)

_NONLINEARITIES = ("tanh", "relu")


def _rnn(
    x: Any, weight: Any, hidden: Any, lengths: Any = None, *, nonlinearity: str = "tanh", reverse: bool = False
) -> Any:
    """Hidden states (T, B, H) after each time step: `nonlinearity(x[t] + hidden @ weight.T)`.

    `x` (T, B, H) is the input's contribution, with biases; `weight` (H, H); `hidden` (B, H) is the state before. `reverse`
    runs from the last step to the first. Sequences end after `lengths` (B,) steps, after that states are held.
    """
    outs = np.empty(x.shape)
    in_use = np_steps_in_use(lengths, *x.shape[:2])
    for t in time_order(len(x), reverse):
        total = x[t] + hidden @ weight.T
        new = np.tanh(total) if nonlinearity == "tanh" else np.maximum(total, 0)
        hidden = outs[t] = np.where(in_use[t], new, hidden)
    return outs


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, size = check_sequence(specs, 1, (2,))
    check("hidden state", specs[2], (batch, size))
    check_lengths(specs[3], batch)
    if params["nonlinearity"] not in _NONLINEARITIES:
        raise ValueError(f"nonlinearity {params['nonlinearity']!r}; expected {' or '.join(_NONLINEARITIES)}")
    return [(tensor_at(specs, 0).dtype, (length, batch, size))]


def _decomposed(x: Any, weight: Any, hidden: Any, lengths: Any, *, nonlinearity: str, reverse: bool) -> Any:
    function = tanh if nonlinearity == "tanh" else relu
    in_use = steps_in_use(lengths, x.shape[0])
    outs = {}
    for t in time_order(x.shape[0], reverse):
        new = function(fused_linear(hidden, weight, None, step_of(x, t)))
        hidden = outs[t] = new if in_use is None else where(step_of(in_use, t), new, hidden)
    return stacked(outs)


def _rnn_grad(
    grad: Any, weight: Any, hidden: Any, outs: Any, lengths: Any = None, *, nonlinearity: str = "tanh",
    reverse: bool = False,
) -> Any:  # fmt: skip
    """Gradients of `rnn` with respect to x, weight and hidden, from its results."""
    before = np_states_before(hidden, outs, reverse)
    in_use = np_steps_in_use(lengths, *outs.shape[:2])
    d_x, d_hidden = np.zeros(outs.shape), np.zeros(hidden.shape)
    for t in reversed(time_order(len(outs), reverse)):
        d_out = d_hidden + grad[t]
        slope = 1 - outs[t] ** 2 if nonlinearity == "tanh" else outs[t] > 0
        d_x[t] = np.where(in_use[t], d_out * slope, 0)
        d_hidden = d_x[t] @ weight + np.where(in_use[t], 0, d_out)
    return d_x, np.tensordot(d_x, before, ((0, 1), (0, 1))), d_hidden


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = _infer((specs[3], specs[1], specs[2], specs[4]), params)
    check("grad", tensor_at(specs, 0), shape)
    return [(dtype, s) for s in (shape, tensor_at(specs, 1).shape, tensor_at(specs, 2).shape)]


def _grad_decomposed(
    grad: Any, weight: Any, hidden: Any, outs: Any, lengths: Any, *, nonlinearity: str, reverse: bool
) -> Any:
    length = outs.shape[0]
    in_use = steps_in_use(lengths, length)
    slopes = 1.0 - outs * outs if nonlinearity == "tanh" else where(less(0.0, outs), 1.0, 0.0).cast(dtype=outs.dtype)
    slopes = slopes if in_use is None else where(in_use, slopes, 0.0)
    d_gates = {}
    d_hidden = None
    for t in reversed(time_order(length, reverse)):
        d_out = step_of(grad, t) if d_hidden is None else d_hidden + step_of(grad, t)
        d_gates[t] = d_out * step_of(slopes, t)
        d_hidden = op_matmul(d_gates[t], weight)
        if in_use is not None:
            d_hidden = d_hidden + where(step_of(in_use, t), 0.0, d_out)
    d_x = stacked(d_gates)
    before = rows(states_before(hidden, outs, reverse))
    return d_x, op_matmul(permute(rows(d_x), (1, 0)), before), d_hidden


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(length: int, batch: int, size: int, lengths: Any = None, **params: Any) -> Sample:
        def draw(*shape: int) -> Any:
            return rng.uniform(-1, 1, shape)

        ends = None if lengths is None else np.array(lengths)
        return Sample((draw(length, batch, size), draw(size, size), draw(batch, size), ends), params)

    return [
        case(3, 2, 4, nonlinearity="tanh", reverse=False),
        case(1, 1, 3, nonlinearity="relu", reverse=True),
        case(3, 3, 2, lengths=[1, 3, 0], nonlinearity="tanh", reverse=True),
        case(2, 2, 2, lengths=[2, 1], nonlinearity="relu", reverse=False),
    ]


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    results = []
    for number, s in enumerate(_samples(rng)):
        outs = _rnn(*s.inputs, **s.params)
        inputs = (rng.uniform(-1, 1, outs.shape), *s.inputs[1:3], outs, s.inputs[3])
        results.append(Sample(inputs, s.params, differentiable=number == 2))
    return results


rnn_grad = declare(
    _rnn_grad,
    name="rnn_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden"),
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
@reads(x="weight out lengths", hidden="weight out lengths")
def _gradient(
    g: Any, weight: Any, hidden: Any, out: Any, lengths: Any, hidden_spec: Spec, *, nonlinearity: str, reverse: bool
) -> Any:
    if hidden is None:  # only the gradient of the weight reads it
        hidden = full(hidden_spec.shape, 0.0, hidden_spec.dtype)
    return rnn_grad(g, weight, hidden, out, lengths, nonlinearity, reverse)


rnn = declare(
    _rnn,
    name="rnn",
    family="recurrent",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    gradient=_gradient,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=1.0, terms=terms),
    autocast=Autocast.FLOAT32,
    errors=[
        ErrorSample(
            (np.zeros((2, 1, 3)), np.zeros((3, 3)), np.zeros((1, 3)), None),
            {"nonlinearity": "gelu"},
            ValueError,
            "'gelu'",
        )
    ],
)
