"""Long short-term memory over a sequence. Source: Hochreiter and Schmidhuber, Neural Computation 9 (1997); with forget
gates, Gers et al., Neural Computation 12 (2000); with projected states, Sak et al., arXiv:1402.1128.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import message
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
from polyhal.hal.ops.layout.creation import full
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
    unused_steps,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _lstm(
    a: Arithmetic,
    x: Array,
    weight: Array,
    hidden: Array,
    cell: Array,
    projection: Array | None = None,
    lengths: Array | None = None,
    *,
    reverse: bool = False,
    keep_gates: bool = False,
) -> Any:
    """Hidden states (T, B, P) and cell states (T, B, H) after each time step of an LSTM layer, and gates for the gradient.

    `x` (T, B, 4 H) is the input's contribution to the gates i, f, g, o, with biases; `weight` (4 H, P); `hidden` (B, P) and
    `cell` (B, H) are the states before; `projection` (P, H), without which P = H. `reverse` runs from the last step to
    the first. Sequences end after `lengths` (B,) steps, after that states are held. The gates are those before
    their functions, (T, B, 4 H) with `keep_gates` and else (0, B, 4 H).
    """
    gates = {}

    def step(t: int, states: Sequence[Array]) -> Any:
        gates[t] = a.linear_plus(states[0], weight, a.step(x, t))
        i, f, g, o = a.parts(gates[t], 4)
        cell = a.sigmoid(f) * states[1] + a.sigmoid(i) * a.tanh(g)
        hidden = a.sigmoid(o) * a.tanh(cell)
        return (hidden if projection is None else a.linear(hidden, projection)), cell

    outs, cells = forward(a, step, (hidden, cell), lengths, x.shape[0], reverse)
    return outs, cells, a.stacked(gates) if keep_gates else a.zeros((0, *x.shape[1:]), x)


def _check(specs: Specs, states: tuple[int, int], projection: int) -> tuple[int, int, int, int]:
    """Check the inputs; returns length, batch, the size of the hidden state and that of the cell."""
    length, batch, size = check_sequence(specs, 4, states)
    width = tensor_at(specs, states[0]).shape[-1]
    check("cell state", specs[states[1]], (batch, size))
    check("projection", specs[projection], (width, size))
    if specs[projection] is None and width != size:
        raise ValueError(f"hidden state of width {width} and cell state of width {size}; expected a projection")
    check_lengths(specs[projection + 1], batch)
    return length, batch, width, size


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, width, size = _check(specs, (2, 3), 4)
    dtype = tensor_at(specs, 0).dtype
    kept = length if params["keep_gates"] else 0
    return [(dtype, (length, batch, width)), (dtype, (length, batch, size)), (dtype, (kept, batch, 4 * size))]


def _lstm_grad(
    a: Arithmetic,
    grad: Array,
    grad_cells: Array,
    gates: Array,
    weight: Array,
    hidden: Array,
    cell: Array,
    outs: Array,
    cells: Array,
    projection: Array | None = None,
    lengths: Array | None = None,
    grad_gates: Array | None = None,
    *,
    reverse: bool = False,
) -> Any:
    """Gradients of `lstm` with respect to x, weight, hidden, cell and projection (no rows without one), from its results.

    `grad_gates` is the gradient of the gates, which second gradients have.
    """
    before = a.states_before(hidden, outs, reverse)
    inputs = grad, grad_cells, gates, weight, cell, cells
    if a is TENSORS and projection is None and lengths is None and grad_gates is None:
        d_x, d_hidden, d_cell = lstm_steps_grad(*inputs, reverse)
        d_projection = None
    else:
        d_x, d_hidden, d_cell, d_projection = _steps_grad(a, *inputs, projection, lengths, grad_gates, reverse=reverse)
    if d_projection is None:
        d_projection = a.zeros((0, cells.shape[2]), gates)
    return d_x, a.outer(d_x, before), d_hidden, d_cell, d_projection


def _infer_grad(specs: Specs, params: Params) -> list[Output]:
    length, batch, width, size = _check(specs[2:6] + specs[8:10], (2, 3), 4)
    for name, at, shape in (("grad", 0, width), ("grad_cells", 1, size), ("outs", 6, width), ("cells", 7, size)):
        check(name, tensor_at(specs, at), (length, batch, shape))
    check("grad_gates", specs[10], (length, batch, 4 * size))
    dtype = tensor_at(specs, 2).dtype
    shapes = [tensor_at(specs, i).shape for i in range(2, 6)]
    return [(dtype, s) for s in (*shapes, (0 if specs[8] is None else width, size))]


def _lstm_steps_grad(
    a: Arithmetic, grad: Any, grad_cells: Any, gates: Any, weight: Any, cell: Any, cells: Any, *, reverse: bool = False
) -> Any:
    """Gradients of an LSTM's gates (T, B, 4 H), before their functions, and of its initial hidden and cell state.

    `grad` and `grad_cells` (T, B, H) are the gradients of the states after each step, `cell` and `cells` the states of the
    cell. The gradient of the weight comes from one product after it.
    """
    return _steps_grad(a, grad, grad_cells, gates, weight, cell, cells, None, None, None, reverse=reverse)[:3]


def _steps_grad(
    a: Arithmetic,
    grad: Array,
    grad_cells: Array,
    gates: Array,
    weight: Array,
    cell: Array,
    cells: Array,
    projection: Array | None,
    lengths: Any,
    grad_gates: Any,
    *,
    reverse: bool,
) -> Any:
    """Return gradients of the gates, the first hidden state, the first cell state and the projection, if there is one.

    All slopes depend on the forward pass only and are computed for all steps at once.
    """
    length, batch, size = cells.shape
    in_use = a.in_use(lengths, length)
    x_i, x_f, x_g, x_o = a.parts(gates, 4)
    i, f, g, o = a.sigmoid(x_i), a.sigmoid(x_f), a.tanh(x_g), a.sigmoid(x_o)
    bounded, before = a.tanh(cells), a.states_before(cell, cells, reverse)
    slopes = [g * i * (1.0 - i), before * f * (1.0 - f), i * (1.0 - g * g), bounded * o * (1.0 - o)]
    from_hidden = o * (1.0 - bounded * bounded)
    if in_use is not None:
        slopes, from_hidden = [a.where(in_use, s, 0.0) for s in slopes], a.where(in_use, from_hidden, 0.0)
        f = a.where(in_use, f, 1.0)
    joined, is_output_gate = a.reshape(a.joined(slopes), (length, batch, 4, size)), a.is_last(4)
    d_cell = None

    def gates_of(t: int, d_out: Array) -> Any:
        nonlocal d_cell
        d_cell = a.step(grad_cells, t) if d_cell is None else d_cell + a.step(grad_cells, t)
        d_new = d_out if projection is None else a.product(d_out, projection)
        d_cell = d_cell + d_new * a.step(from_hidden, t)
        selected = a.where(is_output_gate, a.reshape(d_new, (batch, 1, size)), a.reshape(d_cell, (batch, 1, size)))
        d_gates = a.reshape(a.step(joined, t) * selected, (batch, 4 * size))
        d_cell = d_cell * a.step(f, t)
        return d_gates if grad_gates is None else d_gates + a.step(grad_gates, t)

    d_gates, d_hidden, d_outs = backward(a, grad, weight, reverse, gates_of, unused_steps(a, in_use))
    if projection is None:
        return d_gates, d_hidden, d_cell, None
    if in_use is not None:
        d_outs = {t: a.where(a.step(in_use, t), d_out, 0.0) for t, d_out in d_outs.items()}
    return d_gates, d_hidden, d_cell, a.outer(a.stacked(d_outs), o * bounded)


def _infer_steps_grad(specs: Specs, params: Params) -> list[Output]:
    grad, grad_cells, gates, weight, cell, cells = specs
    length, batch, size = check_sequence((gates, weight, cell), 4, (2,))
    for name, spec in (("grad", grad), ("grad_cells", grad_cells), ("cells", cells)):
        check(name, spec, (length, batch, size))
    dtype = tensor_at(specs, 2).dtype
    return [(dtype, (length, batch, 4 * size)), (dtype, (batch, size)), (dtype, (batch, size))]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(
        length: int,
        batch: int,
        size: int,
        width: int = 0,
        lengths: Sequence[int] | None = None,
        reverse: bool = False,
        keep_gates: bool = True,
    ) -> Sample:
        projection = draw(rng, width, size) if width else None
        width = width or size
        states = draw(rng, batch, width), draw(rng, batch, size)
        ends = None if lengths is None else np.array(lengths)
        inputs = (draw(rng, length, batch, 4 * size), draw(rng, 4 * size, width), *states, projection, ends)
        return Sample(inputs, {"reverse": reverse, "keep_gates": keep_gates}, differentiable=keep_gates)

    return [
        case(3, 2, 4),
        case(3, 1, 2, keep_gates=False),
        case(1, 1, 3, reverse=True),
        case(3, 2, 3, width=2, lengths=[1, 3], reverse=True),
        case(2, 3, 2, lengths=[2, 1, 0]),
    ]


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    results = []
    for number, s in enumerate(s for s in _samples(rng) if s.params["keep_gates"]):
        outs, cells, gates = _lstm(ARRAYS, *s.inputs, **s.params)
        grads = draw(rng, *outs.shape), draw(rng, *cells.shape)
        grad_gates = draw(rng, *gates.shape) if number else None
        inputs = (*grads, gates, *s.inputs[1:4], outs, cells, *s.inputs[4:], grad_gates)
        results.append(Sample(inputs, {"reverse": s.params["reverse"]}, differentiable=number == 2))
    return results


def _steps_grad_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (
                *(draw(rng, length, batch, size) for _ in range(2)),
                draw(rng, length, batch, 4 * size),
                draw(rng, 4 * size, size),
                draw(rng, batch, size),
                draw(rng, length, batch, size),
            ),
            {"reverse": reverse},
            differentiable=length == 2 and reverse,
        )
        for length, batch, size, reverse in STEPS_GRAD_CASES
    ]


lstm_steps_grad = declare(
    on_arrays(_lstm_steps_grad),
    name="lstm_steps_grad",
    family="recurrent",
    infer=_infer_steps_grad,
    outputs=("d_gates", "d_hidden", "d_cell"),
    lowering=on_tensors(_lstm_steps_grad),
    samples=_steps_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)
lstm_grad = declare(
    on_arrays(_lstm_grad),
    name="lstm_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden", "d_cell", "d_projection"),
    lowering=on_tensors(_lstm_grad),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
def _gradient(
    g: TensorLike,
    g_cells: TensorLike | None,
    g_gates: TensorLike | None,
    weight: TensorLike,
    hidden: TensorLike,
    cell: TensorLike,
    out: TensorLike,
    cells: TensorLike,
    gates: TensorLike,
    projection: TensorLike | None,
    lengths: TensorLike | None,
    *,
    reverse: bool,
    keep_gates: bool,
) -> Any:
    if not keep_gates:
        raise ValueError(
            message("lstm", "the gates, which its gradient reads, were not kept", fix="pass keep_gates=True")
        )
    if g_cells is None:
        g_cells = full(cells.shape, 0.0, cells.dtype)
    *grads, d_projection = lstm_grad(
        g, g_cells, gates, weight, hidden, cell, out, cells, projection, lengths, g_gates, reverse
    )
    return (*grads, None if projection is None else d_projection)


lstm = declare(
    on_arrays(_lstm),
    name="lstm",
    family="recurrent",
    public=False,
    infer=_infer,
    outputs=("out", "cells", "gates"),
    lowering=on_tensors(_lstm),
    gradient=_gradient,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=1.0, terms=terms),
    autocast=Autocast.FLOAT32,
    errors=[
        ErrorSample(
            (np.zeros((2, 1, 8)), np.zeros((8, 1)), np.zeros((1, 1)), np.zeros((1, 2)), None, None),
            {},
            ValueError,
            "a projection",
        )
    ],
)
