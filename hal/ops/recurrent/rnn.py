"""The plain recurrent layer over a sequence, with tanh or relu. Source: Elman, Cognitive Science 14 (1990)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Autocast,
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
from polyhal.hal.ops.recurrent.arithmetic import ARRAYS, Arithmetic, on_arrays, on_tensors
from polyhal.hal.ops.recurrent.sequence import (
    backward,
    check,
    check_lengths,
    check_sequence,
    draw,
    forward,
    terms,
    unused_steps,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike

_NONLINEARITIES = ("tanh", "relu")


def _rnn(
    a: Arithmetic,
    x: Array,
    weight: Array,
    hidden: Array,
    lengths: Array | None = None,
    *,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> Any:
    """Hidden states (T, B, H) after each time step: `nonlinearity(x[t] + hidden @ weight.T)`.

    `x` (T, B, H) is the input's contribution, with biases; `weight` (H, H); `hidden` (B, H) is the state before. `reverse`
    runs from the last step to the first. Sequences end after `lengths` (B,) steps, after that states are held.
    """
    function = a.tanh if nonlinearity == "tanh" else a.relu

    def step(t: int, states: Sequence[Array]) -> Any:
        return (function(a.linear_plus(states[0], weight, a.step(x, t))),)

    return forward(a, step, (hidden,), lengths, x.shape[0], reverse)[0]


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, size = check_sequence(specs, 1, (2,))
    check("hidden state", specs[2], (batch, size))
    check_lengths(specs[3], batch)
    if params["nonlinearity"] not in _NONLINEARITIES:
        raise ValueError(f"nonlinearity {params['nonlinearity']!r}; expected {' or '.join(_NONLINEARITIES)}")
    return [(tensor_at(specs, 0).dtype, (length, batch, size))]


def _rnn_grad(
    a: Arithmetic,
    grad: Array,
    weight: Array,
    hidden: Array,
    outs: Array,
    lengths: Array | None = None,
    *,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> Any:
    """Gradients of `rnn` with respect to x, weight and hidden, from its results."""
    in_use = a.in_use(lengths, outs.shape[0])
    slopes = 1.0 - outs * outs if nonlinearity == "tanh" else a.is_positive(outs)
    slopes = slopes if in_use is None else a.where(in_use, slopes, 0.0)
    d_x, d_hidden, _ = backward(
        a, grad, weight, reverse, lambda t, d_out: d_out * a.step(slopes, t), unused_steps(a, in_use)
    )
    return d_x, a.outer(d_x, a.states_before(hidden, outs, reverse)), d_hidden


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = _infer((specs[3], specs[1], specs[2], specs[4]), params)
    check("grad", tensor_at(specs, 0), shape)
    return [(dtype, s) for s in (shape, tensor_at(specs, 1).shape, tensor_at(specs, 2).shape)]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(length: int, batch: int, size: int, lengths: Sequence[int] | None = None, **params: Any) -> Sample:
        ends = None if lengths is None else np.array(lengths)
        inputs = (draw(rng, length, batch, size), draw(rng, size, size), draw(rng, batch, size), ends)
        return Sample(inputs, params)

    return [
        case(3, 2, 4, nonlinearity="tanh", reverse=False),
        case(1, 1, 3, nonlinearity="relu", reverse=True),
        case(3, 3, 2, lengths=[1, 3, 0], nonlinearity="tanh", reverse=True),
        case(2, 2, 2, lengths=[2, 1], nonlinearity="relu", reverse=False),
    ]


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    results = []
    for number, s in enumerate(_samples(rng)):
        outs = _rnn(ARRAYS, *s.inputs, **s.params)
        inputs = (draw(rng, *outs.shape), *s.inputs[1:3], outs, s.inputs[3])
        results.append(Sample(inputs, s.params, differentiable=number == 2))
    return results


rnn_grad = declare(
    on_arrays(_rnn_grad),
    name="rnn_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden"),
    lowering=on_tensors(_rnn_grad),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
@reads(x="weight out lengths", hidden="weight out lengths")
def _gradient(
    g: TensorLike,
    weight: TensorLike,
    hidden: TensorLike | None,
    out: TensorLike,
    lengths: TensorLike | None,
    hidden_spec: Spec,
    *,
    nonlinearity: str,
    reverse: bool,
) -> Any:
    if hidden is None:  # only the gradient of the weight reads it
        hidden = full(hidden_spec.shape, 0.0, hidden_spec.dtype)
    return rnn_grad(g, weight, hidden, out, lengths, nonlinearity, reverse)


rnn = declare(
    on_arrays(_rnn),
    name="rnn",
    family="recurrent",
    public=False,
    infer=_infer,
    lowering=on_tensors(_rnn),
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
