"""Long short-term memory over a sequence. Source: Hochreiter and Schmidhuber, Neural Computation 9 (1997); with forget
gates, Gers et al., Neural Computation 12 (2000); with projected states, Sak et al., arXiv:1402.1128.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import message
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
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.linear import fused_linear, linear
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.activation import sigmoid
from polyhal.hal.ops.pointwise.logic import equal
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
from polyhal.hal.ops.recurrent.steps_grad import lstm_steps_grad


def _lstm(
    x: Any, weight: Any, hidden: Any, cell: Any, projection: Any = None, lengths: Any = None, *, reverse: bool = False,
    keep_gates: bool = False,
) -> Any:  # fmt: skip
    """Hidden states (T, B, P) and cell states (T, B, H) after each time step of an LSTM layer, and gates for the gradient.

    `x` (T, B, 4 H) is the input's contribution to the gates i, f, g, o, with biases; `weight` (4 H, P); `hidden` (B, P) and
    `cell` (B, H) are the states before; `projection` (P, H), without which P = H. `reverse` runs from the last step to
    the first. Sequences end after `lengths` (B,) steps, after that states are held. The gates are those before
    their functions, (T, B, 4 H) with `keep_gates` and else (0, B, 4 H).
    """
    gates = np.empty(x.shape if keep_gates else (0, *x.shape[1:]))
    outs, cells = np.empty((*x.shape[:2], weight.shape[1])), np.empty((*x.shape[:2], x.shape[2] // 4))
    in_use = np_steps_in_use(lengths, *x.shape[:2])
    for t in time_order(len(x), reverse):
        joined = x[t] + hidden @ weight.T
        if keep_gates:
            gates[t] = joined
        i, f, g, o = np.split(joined, 4, -1)
        new_cell = np_sigmoid(f) * cell + np_sigmoid(i) * np.tanh(g)
        new = np_sigmoid(o) * np.tanh(new_cell)
        new = new if projection is None else new @ projection.T
        hidden, cell = np.where(in_use[t], new, hidden), np.where(in_use[t], new_cell, cell)
        outs[t], cells[t] = hidden, cell
    return outs, cells, gates


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


def _decomposed(
    x: Any, weight: Any, hidden: Any, cell: Any, projection: Any, lengths: Any, *, reverse: bool, keep_gates: bool
) -> Any:
    in_use = steps_in_use(lengths, x.shape[0])
    outs, cells, gates = {}, {}, {}
    for t in time_order(x.shape[0], reverse):
        gates[t] = fused_linear(hidden, weight, None, step_of(x, t))
        i, f, g, o = parts(gates[t], 4)
        new_cell = sigmoid(f) * cell + sigmoid(i) * tanh(g)
        new = sigmoid(o) * tanh(new_cell)
        new = new if projection is None else linear(new, projection)
        if in_use is None:
            hidden, cell = new, new_cell
        else:
            hidden, cell = where(step_of(in_use, t), new, hidden), where(step_of(in_use, t), new_cell, cell)
        outs[t], cells[t] = hidden, cell
    kept = stacked(gates) if keep_gates else full((0, *x.shape[1:]), 0.0, x.dtype)
    return stacked(outs), stacked(cells), kept


class _Factors(NamedTuple):
    """Factors of the gradients of all time steps; all depend on the forward pass only."""

    gates: Any
    """(T, B, 4 H), from the gradient of the cell (i, f, g) and of the unprojected hidden state (o) to those of the gates."""
    hidden: Any
    """(T, B, H), from the gradient of the unprojected hidden state to that of the cell."""
    cell: Any
    """(T, B, H), from the gradient of the cell to that of the cell before."""
    unprojected: Any
    """(T, B, H), the hidden state before the projection."""


def _factors(gates: list[Any], cells_before: Any, cells: Any, in_use: Any) -> _Factors:
    i, f, g, o = sigmoid(gates[0]), sigmoid(gates[1]), tanh(gates[2]), sigmoid(gates[3])
    bounded = tanh(cells)
    slopes = [g * i * (1.0 - i), cells_before * f * (1.0 - f), i * (1.0 - g * g), bounded * o * (1.0 - o)]
    hidden = o * (1.0 - bounded * bounded)
    if in_use is not None:
        slopes, hidden, f = [where(in_use, s, 0.0) for s in slopes], where(in_use, hidden, 0.0), where(in_use, f, 1.0)
    return _Factors(concat(slopes, -1), hidden, f, o * bounded)


def _lstm_grad(
    grad: Any,
    grad_cells: Any,
    gates: Any,
    weight: Any,
    hidden: Any,
    cell: Any,
    outs: Any,
    cells: Any,
    projection: Any = None,
    lengths: Any = None,
    grad_gates: Any = None,
    *,
    reverse: bool = False,
) -> Any:
    """Gradients of `lstm` with respect to x, weight, hidden, cell and projection (no rows without one), from its results.

    `grad_gates` is the gradient of the gates, which second gradients have.
    """
    before, cells_before = np_states_before(hidden, outs, reverse), np_states_before(cell, cells, reverse)
    in_use = np_steps_in_use(lengths, *gates.shape[:2])
    d_x, d_hidden, d_cell = np.zeros(gates.shape), np.zeros(hidden.shape), np.zeros(cell.shape)
    d_projection = np.zeros((0 if projection is None else len(projection), cell.shape[1]))
    for t in reversed(time_order(len(gates), reverse)):
        i, f, g, o = np.split(np.asarray(gates[t]), 4, -1)
        i, f, g, o = np_sigmoid(i), np_sigmoid(f), np.tanh(g), np_sigmoid(o)
        bounded = np.tanh(cells[t])
        d_out, d_cell = d_hidden + grad[t], d_cell + grad_cells[t]
        d_new = d_out * in_use[t]
        if projection is not None:
            d_projection += d_new.T @ (o * bounded)
            d_new = d_new @ projection
        d_c = d_cell * in_use[t] + d_new * o * (1 - bounded**2)
        slopes = (g * i * (1 - i) * d_c, cells_before[t] * f * (1 - f) * d_c, i * (1 - g**2) * d_c)
        d_x[t] = np.concatenate([*slopes, bounded * o * (1 - o) * d_new], -1)
        d_x[t] += 0 if grad_gates is None else grad_gates[t]
        d_hidden = d_x[t] @ weight + np.where(in_use[t], 0, d_out)
        d_cell = np.where(in_use[t], d_c * f, d_cell)
    return d_x, np.tensordot(d_x, before, ((0, 1), (0, 1))), d_hidden, d_cell, d_projection


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    length, batch, width, size = _check(specs[2:6] + specs[8:10], (2, 3), 4)
    for name, at, shape in (("grad", 0, width), ("grad_cells", 1, size), ("outs", 6, width), ("cells", 7, size)):
        check(name, tensor_at(specs, at), (length, batch, shape))
    check("grad_gates", specs[10], (length, batch, 4 * size))
    dtype = tensor_at(specs, 2).dtype
    shapes = [tensor_at(specs, i).shape for i in range(2, 6)]
    return [(dtype, s) for s in (*shapes, (0 if specs[8] is None else width, size))]


def _grad_decomposed(
    grad: Any,
    grad_cells: Any,
    gates: Any,
    weight: Any,
    hidden: Any,
    cell: Any,
    outs: Any,
    cells: Any,
    projection: Any,
    lengths: Any,
    grad_gates: Any,
    *,
    reverse: bool,
) -> Any:
    length, batch, size = cells.shape
    in_use = steps_in_use(lengths, length)
    before = rows(states_before(hidden, outs, reverse))
    if projection is None and lengths is None and grad_gates is None:
        d_x, d_hidden, d_cell = lstm_steps_grad(grad, grad_cells, gates, weight, cell, cells, reverse)
        d_weight = op_matmul(permute(rows(d_x), (1, 0)), before)
        return d_x, d_weight, d_hidden, d_cell, full((0, size), 0.0, gates.dtype)
    factors = _factors(parts(gates, 4), states_before(cell, cells, reverse), cells, in_use)
    slopes = reshape(factors.gates, (length, batch, 4, size))
    is_output_gate = equal(reshape(arange(0, 4, 1, dtypes.int32), (1, 4, 1)), 3)
    d_gates, d_outs = {}, {}
    d_hidden = d_cell = None
    for t in reversed(time_order(length, reverse)):
        d_out = step_of(grad, t) if d_hidden is None else d_hidden + step_of(grad, t)
        d_cell = step_of(grad_cells, t) if d_cell is None else d_cell + step_of(grad_cells, t)
        d_new = d_out if projection is None else op_matmul(d_out, projection)
        d_cell = d_cell + d_new * step_of(factors.hidden, t)
        selected = where(is_output_gate, reshape(d_new, (batch, 1, size)), reshape(d_cell, (batch, 1, size)))
        d_gates[t] = reshape(step_of(slopes, t) * selected, (batch, 4 * size))
        if grad_gates is not None:
            d_gates[t] = d_gates[t] + step_of(grad_gates, t)
        d_hidden, d_cell = op_matmul(d_gates[t], weight), d_cell * step_of(factors.cell, t)
        d_outs[t] = d_out
        if in_use is not None:
            d_outs[t] = where(step_of(in_use, t), d_out, 0.0)
            d_hidden = d_hidden + where(step_of(in_use, t), 0.0, d_out)
    d_x = stacked(d_gates)
    d_weight = op_matmul(permute(rows(d_x), (1, 0)), before)
    if projection is None:
        d_projection = full((0, size), 0.0, gates.dtype)
    else:
        d_projection = op_matmul(permute(rows(stacked(d_outs)), (1, 0)), rows(factors.unprojected))
    return d_x, d_weight, d_hidden, d_cell, d_projection


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(
        length: int, batch: int, size: int, width: int = 0, lengths: Any = None, reverse: bool = False,
        keep_gates: bool = True,
    ) -> Sample:  # fmt: skip
        def draw(*shape: int) -> Any:
            return rng.uniform(-1, 1, shape)

        projection = draw(width, size) if width else None
        width = width or size
        states = draw(batch, width), draw(batch, size)
        ends = None if lengths is None else np.array(lengths)
        inputs = (draw(length, batch, 4 * size), draw(4 * size, width), *states, projection, ends)
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
        outs, cells, gates = _lstm(*s.inputs, **s.params)
        grads = rng.uniform(-1, 1, outs.shape), rng.uniform(-1, 1, cells.shape)
        grad_gates = rng.uniform(-1, 1, gates.shape) if number else None
        inputs = (*grads, gates, *s.inputs[1:4], outs, cells, *s.inputs[4:], grad_gates)
        results.append(Sample(inputs, {"reverse": s.params["reverse"]}, differentiable=number == 2))
    return results


lstm_grad = declare(
    _lstm_grad,
    name="lstm_grad",
    family="recurrent",
    infer=_infer_grad,
    outputs=("d_x", "d_weight", "d_hidden", "d_cell", "d_projection"),
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


@copies_results
def _gradient(
    g: Any,
    g_cells: Any,
    g_gates: Any,
    weight: Any,
    hidden: Any,
    cell: Any,
    out: Any,
    cells: Any,
    gates: Any,
    projection: Any,
    lengths: Any,
    *,
    reverse: bool,
    keep_gates: bool,
) -> Any:
    if not keep_gates:
        raise ValueError(message("lstm", "the gates, which its gradient reads, were not kept", fix="pass keep_gates=True"))
    if g_cells is None:
        g_cells = full(cells.shape, 0.0, cells.dtype)
    *grads, d_projection = lstm_grad(
        g, g_cells, gates, weight, hidden, cell, out, cells, projection, lengths, g_gates, reverse
    )
    return (*grads, None if projection is None else d_projection)


lstm = declare(
    _lstm,
    name="lstm",
    family="recurrent",
    public=False,
    infer=_infer,
    outputs=("out", "cells", "gates"),
    lowering=Decompose(_decomposed),
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
