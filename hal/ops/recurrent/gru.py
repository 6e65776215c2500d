"""Gated recurrent units over a sequence. Source: Cho et al., arXiv:1406.1078, with the reset gate after the product."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.gradient_rule import copies_results
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.linear import linear
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.activation import sigmoid
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.recurrent.sequence import (
    check,
    check_lengths,
    check_sequence,
    np_sigmoid,
    np_states_before,
    np_steps_in_use,
    parts,
    rows,
    stacked,
    states_before,
    step_of,
    steps_in_use,
    terms,
    time_order,
)
from polyhal.hal.ops.recurrent.steps_grad import gru_steps_grad
from polyhal.hal.ops.reductions.sums import sum_


def _gru(x: Any, weight: Any, hidden: Any, bias: Any = None, lengths: Any = None, *, reverse: bool = False) -> Any:
    """Hidden states (T, B, H) after each time step of a GRU layer.

    `x` (T, B, 3 H) is the input's contribution to the gates r, z, n, with its bias; `weight` (3 H, H) and `bias` (3 H,)
    belong to the hidden state, which is `hidden` (B, H) before. `reverse` runs from the last step to the first.
    Sequences end after `lengths` (B,) steps, after that states are held.
    """
    outs = np.empty((*x.shape[:2], weight.shape[1]))
    in_use = np_steps_in_use(lengths, *x.shape[:2])
    for t in time_order(len(x), reverse):
        _, z, n, _ = _np_gates(x[t], hidden, weight, bias)
        hidden = outs[t] = np.where(in_use[t], (1 - z) * n + z * hidden, hidden)
    return outs


def _np_gates(x: Any, hidden: Any, weight: Any, bias: Any) -> Any:
    """The three gates, and the hidden state's contribution to the last one before it is reset."""
    fed_back = hidden @ weight.T + (0 if bias is None else bias)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(x, 3, -1), np.split(fed_back, 3, -1)
    r, z = np_sigmoid(x_r + h_r), np_sigmoid(x_z + h_z)
    return r, z, np.tanh(x_n + r * h_n), h_n


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, size = check_sequence(specs, 3, (2,))
    check("hidden state", specs[2], (batch, size))
    check("bias", specs[3], (3 * size,))
    check_lengths(specs[4], batch)
    return [(tensor_at(specs, 0).dtype, (length, batch, size))]


def _decomposed(x: Any, weight: Any, hidden: Any, bias: Any, lengths: Any, *, reverse: bool) -> Any:
    in_use = steps_in_use(lengths, x.shape[0])
    outs = {}
    for t in time_order(x.shape[0], reverse):
        x_r, x_z, x_n = parts(step_of(x, t), 3)
        h_r, h_z, h_n = parts(linear(hidden, weight, bias), 3)
        n = tanh(x_n + sigmoid(x_r + h_r) * h_n)
        new = n + sigmoid(x_z + h_z) * (hidden - n)
        hidden = outs[t] = new if in_use is None else where(step_of(in_use, t), new, hidden)
    return stacked(outs)


def _gru_grad(
    grad: Any, x: Any, weight: Any, hidden: Any, outs: Any, bias: Any = None, lengths: Any = None, *,
    reverse: bool = False,
) -> Any:  # fmt: skip
    """Gradients of `gru` with respect to x, weight, hidden and bias, from its results."""
    before = np_states_before(hidden, outs, reverse)
    in_use = np_steps_in_use(lengths, *x.shape[:2])
    d_x, d_fed_back, d_hidden = np.zeros(x.shape), np.zeros(x.shape), np.zeros(hidden.shape)
    for t in reversed(time_order(len(x), reverse)):
        r, z, n, h_n = _np_gates(x[t], before[t], weight, bias)
        d_out = d_hidden + grad[t]
        d_new = np.where(in_use[t], d_out, 0)
        d_n = d_new * (1 - z) * (1 - n**2)
        d_r, d_z = d_n * h_n * r * (1 - r), d_new * (before[t] - n) * z * (1 - z)
        d_x[t], d_fed_back[t] = np.concatenate([d_r, d_z, d_n], -1), np.concatenate([d_r, d_z, d_n * r], -1)
        d_hidden = d_fed_back[t] @ weight + np.where(in_use[t], d_out * z, d_out)
    return d_x, np.tensordot(d_fed_back, before, ((0, 1), (0, 1))), d_hidden, np.sum(d_fed_back, axis=(0, 1))


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = _infer((*specs[1:4], *specs[5:]), params)
    check("grad", tensor_at(specs, 0), shape)
    check("outs", tensor_at(specs, 4), shape)
    x, weight, hidden = (tensor_at(specs, i).shape for i in (1, 2, 3))
    return [(dtype, s) for s in (x, weight, hidden, weight[:1])]


def _grad_decomposed(
    grad: Any, x: Any, weight: Any, hidden: Any, outs: Any, bias: Any, lengths: Any, *, reverse: bool
) -> Any:
    length, batch, size = outs.shape
    in_use = steps_in_use(lengths, length)
    before = states_before(hidden, outs, reverse)
    fed_back = reshape(linear(rows(before), weight, bias), x.shape)
    if lengths is None:
        d_x, d_fed_back, d_hidden = gru_steps_grad(grad, x, fed_back, weight, hidden, outs, reverse)
        d_weight = op_matmul(permute(rows(d_fed_back), (1, 0)), rows(before))
        return d_x, d_weight, d_hidden, sum_(rows(d_fed_back), 0)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = parts(x, 3), parts(fed_back, 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    to_n = (1.0 - z) * (1.0 - n * n)
    slopes = [to_n * h_n * r * (1.0 - r), (before - n) * z * (1.0 - z), to_n * r]
    if in_use is not None:
        slopes, to_n, z = [where(in_use, s, 0.0) for s in slopes], where(in_use, to_n, 0.0), where(in_use, z, 1.0)
    joined = reshape(concat(slopes, -1), (length, batch, 3, size))
    d_gates, d_news = {}, {}
    d_hidden = None
    for t in reversed(time_order(length, reverse)):
        d_new = d_news[t] = step_of(grad, t) if d_hidden is None else d_hidden + step_of(grad, t)
        d_gates[t] = reshape(step_of(joined, t) * reshape(d_new, (batch, 1, size)), (batch, 3 * size))
        d_hidden = op_matmul(d_gates[t], weight) + d_new * step_of(z, t)
    d_fed_back = stacked(d_gates)
    d_r, d_z, _ = parts(d_fed_back, 3)
    d_x = concat([d_r, d_z, stacked(d_news) * to_n], -1)
    d_weight = op_matmul(permute(rows(d_fed_back), (1, 0)), rows(before))
    return d_x, d_weight, d_hidden, sum_(rows(d_fed_back), 0)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(length: int, batch: int, size: int, biased: bool, lengths: Any = None, reverse: bool = False) -> Sample:
        def draw(*shape: int) -> Any:
            return rng.uniform(-1, 1, shape)

        ends = None if lengths is None else np.array(lengths)
        bias = draw(3 * size) if biased else None
        inputs = (draw(length, batch, 3 * size), draw(3 * size, size), draw(batch, size), bias, ends)
        return Sample(inputs, {"reverse": reverse})

    return [
        case(3, 2, 4, True),
        case(1, 1, 3, False, reverse=True),
        case(3, 2, 2, True, lengths=[1, 3], reverse=True),
        case(2, 3, 2, False, lengths=[2, 1, 0]),
    ]


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    results = []
    for number, s in enumerate(_samples(rng)):
        outs = _gru(*s.inputs, **s.params)
        inputs = (rng.uniform(-1, 1, outs.shape), *s.inputs[:3], outs, *s.inputs[3:])
        results.append(Sample(inputs, s.params, differentiable=number == 2))
    return results


gru_grad = declare(
    _gru_grad,
    name="gru_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden", "d_bias"),
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
def _gradient(g: Any, x: Any, weight: Any, hidden: Any, out: Any, bias: Any, lengths: Any, *, reverse: bool) -> Any:
    *grads, d_bias = gru_grad(g, x, weight, hidden, out, bias, lengths, reverse)
    return (*grads, None if bias is None else d_bias)


gru = declare(
    _gru,
    name="gru",
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
        ErrorSample((np.zeros((2, 1, 8)), np.zeros((9, 3)), np.zeros((1, 3)), None, None), {}, ValueError, "3 \\* H")
    ],
)
