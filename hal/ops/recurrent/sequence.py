"""Common parts of the recurrent ops: their walks through the time steps, checks, and samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Params, Specs, tensor_at
from polyhal.hal.ops.recurrent.arithmetic import Arithmetic
from polyhal.hal.ops.tensor_like import Array


def forward(
    a: Arithmetic,
    step: Callable[[int, Any], Sequence[Any]],
    first: Sequence[Array],
    lengths: Any,
    length: int,
    reverse: bool,
) -> list[Any]:
    """Return the sequences of states that begin with `first`. `step` returns the states after a step from the states before.

    Sequences hold their states after `lengths` steps.
    """
    in_use = a.in_use(lengths, length)
    states, results = first, {}
    for t in time_order(length, reverse):
        new = step(t, states)
        if in_use is not None:
            new = [a.where(a.step(in_use, t), n, s) for n, s in zip(new, states, strict=True)]
        states = results[t] = new
    return [a.stacked({t: states[i] for t, states in results.items()}) for i in range(len(first))]


def backward(
    a: Arithmetic,
    grad: Array,
    weight: Array,
    reverse: bool,
    gates: Callable[[int, Any], Any],
    held: Callable[[int, Any], Any] | None = None,
) -> tuple[Any, Any, dict[int, Any]]:
    """Return gradients of the gates of all steps and of the first hidden state, and the gradients of hidden states by step.

    `grad` is the gradient of the sequence of hidden states. `gates` returns the gradient of a step's gates from the
    gradient of the hidden state after the step, and `held` the part of it that reaches the state before directly.
    """
    d_gates, d_hiddens = {}, {}
    d_hidden = None
    for t in reversed(time_order(grad.shape[0], reverse)):
        d_out = d_hiddens[t] = a.step(grad, t) if d_hidden is None else d_hidden + a.step(grad, t)
        d_gates[t] = gates(t, d_out)
        d_hidden = a.product(d_gates[t], weight)
        if held is not None:
            d_hidden = d_hidden + held(t, d_out)
    return a.stacked(d_gates), d_hidden, d_hiddens


def unused_steps(a: Arithmetic, in_use: Any) -> Callable[[int, Any], Any] | None:
    """Return a function to the part of a gradient that belongs to sequences which have ended; None if none end early."""
    return None if in_use is None else lambda t, d_out: a.where(a.step(in_use, t), 0.0, d_out)


def time_order(length: int, reverse: bool) -> Sequence[int]:
    """Return the time steps in the order in which the layer computes them."""
    return range(length - 1, -1, -1) if reverse else range(length)


def check_sequence(specs: Specs, gates: int, states: Sequence[int]) -> tuple[int, int, int]:
    """Check input, recurrent weight and initial states, which lie at `states`; returns length, batch and hidden size.

    The first input is (T, B, gates * H), T > 0, the second (gates * H, width of the state that is fed back). Raises
    ValueError and TypeError.
    """
    x, weight, hidden = tensor_at(specs, 0), tensor_at(specs, 1), tensor_at(specs, states[0])
    if x.ndim != 3 or x.shape[2] % gates or not x.shape[0]:
        raise ValueError(f"input {x.shape}; expected (T, B, {gates} * H) with at least one time step")
    length, batch, width = x.shape
    check("hidden state", hidden, (batch, hidden.shape[-1]))
    check("weight", weight, (width, hidden.shape[-1]))
    for spec in (x, weight, *(tensor_at(specs, i) for i in states)):
        if not spec.dtype.is_floating_point or spec.dtype is not x.dtype:
            raise TypeError(f"a tensor is {spec.dtype.name}, the input {x.dtype.name}; expected floats of one dtype")
    return length, batch, width // gates


def check(name: str, spec: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an optional input has this shape."""
    if spec is not None and spec.shape != shape:
        raise ValueError(f"{name} has shape {spec.shape}; expected {shape}")


def check_lengths(spec: Any, batch: int) -> None:
    """Raise ValueError or TypeError unless optional lengths are integers, one per sequence."""
    check("lengths", spec, (batch,))
    if spec is not None and not spec.dtype.is_integral:
        raise TypeError(f"lengths are {spec.dtype.name}; expected integers")


def terms(specs: Specs, params: Params) -> int:
    """An error of a step reaches all later ones, and each adds as many products as the state is wide."""
    given = [s for s in specs if isinstance(s, Spec)]
    length, batch, _ = next(s.shape for s in given if s.ndim == 3)
    width = next(s.shape[1] for s in given if s.ndim == 2)
    return length * max(width, batch)


def draw(rng: np.random.Generator, *shape: int) -> Any:
    """Draw elements of a sample."""
    return rng.uniform(-1, 1, shape)


STEPS_GRAD_CASES = ((3, 2, 4, False), (2, 3, 2, True), (1, 1, 3, False), (2, 9, 19, False))
"""Steps, sequences, units and direction of samples of the gradients between steps."""
