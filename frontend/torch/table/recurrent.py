"""Cells of recurrent networks, which PyTorch calls for each time step where `recurrent.py` does not run whole layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def _gates(inputs: Tensor, hidden: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None) -> tuple[Any, Any]:
    """Return the contributions of the input and of the hidden state to the gates, with biases."""
    inputs = inputs if input_bias is None else inputs + input_bias
    return inputs, hidden if hidden_bias is None else hidden + hidden_bias


@aten("_thnn_fused_lstm_cell")
def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> Any:
    """Return the new states, and the gates i, f, g, o for the gradient."""
    a, b = _gates(inputs, hidden, input_bias, hidden_bias)
    i, f, g, o = F["chunk"](a + b, 4, -1)
    i, f, g, o = F["sigmoid"](i), F["sigmoid"](f), F["tanh"](g), F["sigmoid"](o)
    new = f * cell + i * g
    return o * F["tanh"](new), new, F["concat"]([i, f, g, o], -1)


@aten("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, new: Tensor, gates: Tensor, has_bias: bool
) -> Any:
    """Return gradients of the gates, the cell state and the biases, if any."""
    i, f, g, o = F["chunk"](gates, 4, -1)
    bent = F["tanh"](new)
    total = grad_cell
    if grad is not None:
        total = F["tanh_grad"](grad * o, bent) if total is None else total + F["tanh_grad"](grad * o, bent)
    at_output = F["sigmoid_grad"](bent if grad is None else grad * bent, o)
    parts = [
        F["sigmoid_grad"](total * g, i),
        F["sigmoid_grad"](total * cell, f),
        F["tanh_grad"](total * i, g),
        at_output * 0.0 if grad is None else at_output,
    ]
    joined = F["concat"](parts, -1)
    return joined, total * f, F["sum"](joined, 0) if has_bias else None


@aten("_thnn_fused_gru_cell")
def gru_cell(
    inputs: Tensor, hidden: Tensor, state: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> Any:
    """Return the new state, and for the gradient the gates r, z, n, the state and its contribution to n."""
    a, b = _gates(inputs, hidden, input_bias, hidden_bias)
    (a_r, a_z, a_n), (b_r, b_z, b_n) = F["chunk"](a, 3, -1), F["chunk"](b, 3, -1)
    r, z = F["sigmoid"](a_r + b_r), F["sigmoid"](a_z + b_z)
    n = F["tanh"](a_n + r * b_n)
    return n + z * (state - n), F["concat"]([r, z, n, state, b_n], -1)


@aten("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad: Tensor, kept: Tensor, has_bias: bool) -> Any:
    """Return gradients of both contributions to the gates, the state and both biases."""
    r, z, n, state, b_n = F["chunk"](kept, 5, -1)
    at_n = F["tanh_grad"](grad * (1.0 - z), n)
    at_z = F["sigmoid_grad"](grad * (state - n), z)
    at_r = F["sigmoid_grad"](at_n * b_n, r)
    d_inputs, d_hidden = F["concat"]([at_r, at_z, at_n], -1), F["concat"]([at_r, at_z, at_n * r], -1)
    biases = (F["sum"](d_inputs, 0), F["sum"](d_hidden, 0)) if has_bias else (None, None)
    return d_inputs, d_hidden, grad * z, *biases
