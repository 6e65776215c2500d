"""The part of the gradients of `lstm` and `gru` that goes from step to step, for sequences of one length.

Gates of all time steps come from one product before it, and the gradient of the weight from one behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Autocast, Decompose, Output, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.activation import sigmoid
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.recurrent.sequence import (
    check,
    check_sequence,
    np_sigmoid,
    np_states_before,
    parts,
    stacked,
    states_before,
    step_of,
    terms,
    time_order,
)

# --- LSTM -----------------------------------------------------------------------------------------------------------


def _lstm_steps_grad(
    grad: Any, grad_cells: Any, gates: Any, weight: Any, cell: Any, cells: Any, *, reverse: bool = False
) -> Any:
    """Gradients of an LSTM's gates (T, B, 4 H), before their functions, and of its initial hidden and cell state.

    `grad` and `grad_cells` (T, B, H) are those of the states after each step, `cell` and `cells` the states of the cell.
    """
    before = np_states_before(cell, cells, reverse)
    d_gates, d_hidden, d_cell = np.zeros(gates.shape), np.zeros(cell.shape), np.zeros(cell.shape)
    for t in reversed(time_order(len(gates), reverse)):
        i, f, g, o = np.split(np.asarray(gates[t]), 4, -1)
        i, f, g, o = np_sigmoid(i), np_sigmoid(f), np.tanh(g), np_sigmoid(o)
        bounded = np.tanh(cells[t])
        d_out = d_hidden + grad[t]
        d_cell = d_cell + grad_cells[t] + d_out * o * (1 - bounded**2)
        slopes = (g * i * (1 - i) * d_cell, before[t] * f * (1 - f) * d_cell, i * (1 - g**2) * d_cell)
        d_gates[t] = np.concatenate([*slopes, bounded * o * (1 - o) * d_out], -1)
        d_hidden, d_cell = d_gates[t] @ weight, d_cell * f
    return d_gates, d_hidden, d_cell


def _infer_lstm(specs: Specs, params: dict[str, Any]) -> list[Output]:
    grad, grad_cells, gates, weight, cell, cells = specs
    length, batch, size = check_sequence((gates, weight, cell), 4, (2,))
    for name, spec in (("grad", grad), ("grad_cells", grad_cells), ("cells", cells)):
        check(name, spec, (length, batch, size))
    dtype = tensor_at(specs, 2).dtype
    return [(dtype, (length, batch, 4 * size)), (dtype, (batch, size)), (dtype, (batch, size))]


def _lstm_decomposed(
    grad: Any, grad_cells: Any, gates: Any, weight: Any, cell: Any, cells: Any, *, reverse: bool
) -> Any:
    length, batch, size = cells.shape
    x_i, x_f, x_g, x_o = parts(gates, 4)
    i, f, g, o, bounded = sigmoid(x_i), sigmoid(x_f), tanh(x_g), sigmoid(x_o), tanh(cells)
    before = states_before(cell, cells, reverse)
    slopes = [g * i * (1.0 - i), before * f * (1.0 - f), i * (1.0 - g * g), bounded * o * (1.0 - o)]
    joined = reshape(concat(slopes, -1), (length, batch, 4, size))
    from_hidden = o * (1.0 - bounded * bounded)
    is_output_gate = equal(reshape(arange(0, 4, 1, dtypes.int32), (1, 4, 1)), 3)
    d_gates: dict[int, Any] = {}
    d_hidden = d_cell = None
    for t in reversed(time_order(length, reverse)):
        d_out = step_of(grad, t) if d_hidden is None else d_hidden + step_of(grad, t)
        d_cell = step_of(grad_cells, t) if d_cell is None else d_cell + step_of(grad_cells, t)
        d_cell = d_cell + d_out * step_of(from_hidden, t)
        selected = where(is_output_gate, reshape(d_out, (batch, 1, size)), reshape(d_cell, (batch, 1, size)))
        d_gates[t] = reshape(step_of(joined, t) * selected, (batch, 4 * size))
        d_hidden, d_cell = op_matmul(d_gates[t], weight), d_cell * step_of(f, t)
    return stacked(d_gates), d_hidden, d_cell


def _draw(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(-1, 1, shape)


_CASES = ((3, 2, 4, False), (2, 3, 2, True), (1, 1, 3, False), (2, 9, 19, False))
"""Steps, sequences, units and whether time runs backwards."""


def _lstm_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (
                *(_draw(rng, length, batch, size) for _ in range(2)), _draw(rng, length, batch, 4 * size),
                _draw(rng, 4 * size, size), _draw(rng, batch, size), _draw(rng, length, batch, size),
            ),
            {"reverse": reverse},
            differentiable=length == 2 and reverse,
        )
        for length, batch, size, reverse in _CASES
    ]  # fmt: skip


lstm_steps_grad = declare(
    _lstm_steps_grad,
    name="lstm_steps_grad",
    family="recurrent",
    infer=_infer_lstm,
    outputs=("d_gates", "d_hidden", "d_cell"),
    lowering=Decompose(_lstm_decomposed),
    samples=_lstm_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)


# --- GRU ------------------------------------------------------------------------------------------------------------


def _gru_steps_grad(
    grad: Any, x: Any, fed_back: Any, weight: Any, hidden: Any, outs: Any, *, reverse: bool = False
) -> Any:
    """Gradients of the contributions of the input and the hidden state to a GRU's gates (T, B, 3 H), and of its initial state.

    `x` and `fed_back` are the two, `grad` (T, B, H) is the gradient of the states `outs` after each step.
    """
    before = np_states_before(hidden, outs, reverse)
    d_x, d_fed_back, d_hidden = np.zeros(x.shape), np.zeros(x.shape), np.zeros(hidden.shape)
    for t in reversed(time_order(len(x), reverse)):
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(np.asarray(x[t]), 3, -1), np.split(np.asarray(fed_back[t]), 3, -1)
        r, z = np_sigmoid(x_r + h_r), np_sigmoid(x_z + h_z)
        n = np.tanh(x_n + r * h_n)
        d_out = d_hidden + grad[t]
        d_n = d_out * (1 - z) * (1 - n**2)
        d_r, d_z = d_n * h_n * r * (1 - r), d_out * (before[t] - n) * z * (1 - z)
        d_x[t], d_fed_back[t] = np.concatenate([d_r, d_z, d_n], -1), np.concatenate([d_r, d_z, d_n * r], -1)
        d_hidden = d_fed_back[t] @ weight + d_out * z
    return d_x, d_fed_back, d_hidden


def _infer_gru(specs: Specs, params: dict[str, Any]) -> list[Output]:
    grad, x, fed_back, weight, hidden, outs = specs
    length, batch, size = check_sequence((x, weight, hidden), 3, (2,))
    for name, spec, width in (("grad", grad, size), ("fed_back", fed_back, 3 * size), ("outs", outs, size)):
        check(name, spec, (length, batch, width))
    dtype = tensor_at(specs, 1).dtype
    return [*[(dtype, (length, batch, 3 * size))] * 2, (dtype, (batch, size))]


def _gru_decomposed(grad: Any, x: Any, fed_back: Any, weight: Any, hidden: Any, outs: Any, *, reverse: bool) -> Any:
    length, batch, size = outs.shape
    before = states_before(hidden, outs, reverse)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = parts(x, 3), parts(fed_back, 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    to_n = (1.0 - z) * (1.0 - n * n)
    slopes = [to_n * h_n * r * (1.0 - r), (before - n) * z * (1.0 - z), to_n * r]
    joined = reshape(concat(slopes, -1), (length, batch, 3, size))
    d_fed_back: dict[int, Any] = {}
    d_outs: dict[int, Any] = {}
    d_hidden = None
    for t in reversed(time_order(length, reverse)):
        d_out = d_outs[t] = step_of(grad, t) if d_hidden is None else d_hidden + step_of(grad, t)
        d_fed_back[t] = reshape(step_of(joined, t) * reshape(d_out, (batch, 1, size)), (batch, 3 * size))
        d_hidden = op_matmul(d_fed_back[t], weight) + d_out * step_of(z, t)
    d_gates = stacked(d_fed_back)
    d_r, d_z, _ = parts(d_gates, 3)
    return concat([d_r, d_z, stacked(d_outs) * to_n], -1), d_gates, d_hidden


def _gru_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (
                _draw(rng, length, batch, size), *(_draw(rng, length, batch, 3 * size) for _ in range(2)),
                _draw(rng, 3 * size, size), _draw(rng, batch, size), _draw(rng, length, batch, size),
            ),
            {"reverse": reverse},
            differentiable=length == 2 and reverse,
        )
        for length, batch, size, reverse in _CASES
    ]  # fmt: skip


gru_steps_grad = declare(
    _gru_steps_grad,
    name="gru_steps_grad",
    family="recurrent",
    infer=_infer_gru,
    outputs=("d_x", "d_fed_back", "d_hidden"),
    lowering=Decompose(_gru_decomposed),
    samples=_gru_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=terms),
    autocast=Autocast.FLOAT32,
)
