"""Gated recurrent units over a sequence. Source: Cho et al., arXiv:1406.1078, with the reset gate after the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    ErrorSample,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.gradient_rule import copies_results
from polyhal.hal.ops.recurrent.arithmetic import ARRAYS, TENSORS, Arithmetic, on_arrays, on_tensors
from polyhal.hal.ops.recurrent.sequence import (
    STEPS_GRAD_CASES,
    backward,
    check,
    check_lengths,
    check_sequence,
    draw,
    forward,
    terms,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _gru(
    a: Arithmetic,
    x: Array,
    weight: Array,
    hidden: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    *,
    reverse: bool = False,
) -> Any:
    """Hidden states (T, B, H) after each time step of a GRU layer.

    `x` (T, B, 3 H) is the input's contribution to the gates r, z, n, with its bias; `weight` (3 H, H) and `bias` (3 H,)
    belong to the hidden state, which is `hidden` (B, H) before. `reverse` runs from the last step to the first.
    Sequences end after `lengths` (B,) steps, after that states are held.
    """

    def step(t: int, states: Sequence[Array]) -> Any:
        x_r, x_z, x_n = a.parts(a.step(x, t), 3)
        h_r, h_z, h_n = a.parts(a.linear(states[0], weight, bias), 3)
        n = a.tanh(x_n + a.sigmoid(x_r + h_r) * h_n)
        return (n + a.sigmoid(x_z + h_z) * (states[0] - n),)

    return forward(a, step, (hidden,), lengths, x.shape[0], reverse)[0]


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, size = check_sequence(specs, 3, (2,))
    check("hidden state", specs[2], (batch, size))
    check("bias", specs[3], (3 * size,))
    check_lengths(specs[4], batch)
    return [(tensor_at(specs, 0).dtype, (length, batch, size))]


def _gru_grad(
    a: Arithmetic,
    grad: Array,
    x: Array,
    weight: Array,
    hidden: Array,
    outs: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    *,
    reverse: bool = False,
) -> Any:
    """Gradients of `gru` with respect to x, weight, hidden and bias, from its results."""
    before = a.states_before(hidden, outs, reverse)
    inputs = grad, x, a.linear(before, weight, bias), weight, hidden, outs
    if a is TENSORS and lengths is None:
        d_x, d_fed_back, d_hidden = gru_steps_grad(*inputs, reverse)
    else:
        d_x, d_fed_back, d_hidden = _steps_grad(a, *inputs, lengths, reverse=reverse)
    return d_x, a.outer(d_fed_back, before), d_hidden, a.total(d_fed_back)


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = _infer((*specs[1:4], *specs[5:]), params)
    check("grad", tensor_at(specs, 0), shape)
    check("outs", tensor_at(specs, 4), shape)
    x, weight, hidden = (tensor_at(specs, i).shape for i in (1, 2, 3))
    return [(dtype, s) for s in (x, weight, hidden, weight[:1])]


def _gru_steps_grad(
    a: Arithmetic, grad: Any, x: Any, fed_back: Any, weight: Any, hidden: Any, outs: Any, *, reverse: bool = False
) -> Any:
    """Gradients of the contributions of the input and the hidden state to a GRU's gates (T, B, 3 H), and of its initial state.

    `x` and `fed_back` are the two, `grad` (T, B, H) is the gradient of the states `outs` after each step. The gates of all
    steps come from one product before, and the gradient of the weight from one after it.
    """
    return _steps_grad(a, grad, x, fed_back, weight, hidden, outs, None, reverse=reverse)


def _steps_grad(
    a: Arithmetic,
    grad: Array,
    x: Array,
    fed_back: Array,
    weight: Array,
    hidden: Array,
    outs: Array,
    lengths: Any,
    *,
    reverse: bool,
) -> Any:
    """Return the results of `gru_steps_grad` for sequences of any `lengths`."""
    length, batch, size = outs.shape
    before, in_use = a.states_before(hidden, outs, reverse), a.in_use(lengths, length)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = a.parts(x, 3), a.parts(fed_back, 3)
    r, z = a.sigmoid(x_r + h_r), a.sigmoid(x_z + h_z)
    n = a.tanh(x_n + r * h_n)
    to_n = (1.0 - z) * (1.0 - n * n)
    slopes = [to_n * h_n * r * (1.0 - r), (before - n) * z * (1.0 - z), to_n * r]
    if in_use is not None:
        slopes, to_n, z = [a.where(in_use, s, 0.0) for s in slopes], a.where(in_use, to_n, 0.0), a.where(in_use, z, 1.0)
    joined = a.reshape(a.joined(slopes), (length, batch, 3, size))

    def gates(t: int, d_out: Array) -> Any:
        return a.reshape(a.step(joined, t) * a.reshape(d_out, (batch, 1, size)), (batch, 3 * size))

    d_fed_back, d_hidden, d_outs = backward(a, grad, weight, reverse, gates, lambda t, d_out: d_out * a.step(z, t))
    d_r, d_z, _ = a.parts(d_fed_back, 3)
    return a.joined([d_r, d_z, a.stacked(d_outs) * to_n]), d_fed_back, d_hidden


def _infer_steps_grad(specs: Specs, params: Params) -> list[Output]:
    grad, x, fed_back, weight, hidden, outs = specs
    length, batch, size = check_sequence((x, weight, hidden), 3, (2,))
    for name, spec, width in (("grad", grad, size), ("fed_back", fed_back, 3 * size), ("outs", outs, size)):
        check(name, spec, (length, batch, width))
    dtype = tensor_at(specs, 1).dtype
    return [*[(dtype, (length, batch, 3 * size))] * 2, (dtype, (batch, size))]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(
        length: int, batch: int, size: int, biased: bool, lengths: Sequence[int] | None = None, reverse: bool = False
    ) -> Sample:
        ends = None if lengths is None else np.array(lengths)
        bias = draw(rng, 3 * size) if biased else None
        inputs = draw(rng, length, batch, 3 * size), draw(rng, 3 * size, size), draw(rng, batch, size), bias, ends
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
        outs = _gru(ARRAYS, *s.inputs, **s.params)
        inputs = (draw(rng, *outs.shape), *s.inputs[:3], outs, *s.inputs[3:])
        results.append(Sample(inputs, s.params, differentiable=number == 2))
    return results


def _steps_grad_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (
                draw(rng, length, batch, size),
                *(draw(rng, length, batch, 3 * size) for _ in range(2)),
                draw(rng, 3 * size, size),
                draw(rng, batch, size),
                draw(rng, length, batch, size),
            ),
            {"reverse": reverse},
            differentiable=length == 2 and reverse,
        )
        for length, batch, size, reverse in STEPS_GRAD_CASES
    ]


gru_steps_grad = declare(
    on_arrays(_gru_steps_grad),
    name="gru_steps_grad",
    family="recurrent",
    infer=_infer_steps_grad,
    outputs=("d_x", "d_fed_back", "d_hidden"),
    lowering=on_tensors(_gru_steps_grad),
    samples=_steps_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)
gru_grad = declare(
    on_arrays(_gru_grad),
    name="gru_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden", "d_bias"),
    lowering=on_tensors(_gru_grad),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
def _gradient(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike,
    hidden: TensorLike,
    out: TensorLike,
    bias: TensorLike | None,
    lengths: TensorLike | None,
    *,
    reverse: bool,
) -> Any:
    *grads, d_bias = gru_grad(g, x, weight, hidden, out, bias, lengths, reverse)
    return (*grads, None if bias is None else d_bias)


gru = declare(
    on_arrays(_gru),
    name="gru",
    family="recurrent",
    public=False,
    infer=_infer,
    lowering=on_tensors(_gru),
    gradient=_gradient,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=1.0, terms=terms),
    autocast=Autocast.FLOAT32,
    errors=[
        ErrorSample((np.zeros((2, 1, 8)), np.zeros((9, 3)), np.zeros((1, 3)), None, None), {}, ValueError, "3 \\* H")
    ],
)
