"""Recurrent layers as Polyhal's ops over whole sequences instead of PyTorch's loops over time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.torch import tensors
from polyhal.torch.device import NAME
from polyhal.torch.private import decomposed

_aten: Any = torch.ops.aten
Tensors = tuple[torch.Tensor, ...]


def _unwrapped(values: Sequence[Any]) -> list[Any]:
    return [None if x is None else tensors.unwrap(x) for x in values]


def _lstm_steps(
    order: Sequence[int],
    gates: torch.Tensor,
    weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    projection: torch.Tensor | None,
) -> Tensors:
    outs, cells = {}, {}
    for t in order:
        i, f, g, o = (gates[t] + functional.linear(hidden, weight)).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        hidden = hidden if projection is None else functional.linear(hidden, projection)
        outs[t], cells[t] = hidden, cell
    return tuple(torch.stack([states[t] for t in sorted(order)]) for states in (outs, cells))


def _gru_steps(
    order: Sequence[int], gates: torch.Tensor, weight: torch.Tensor, hidden: torch.Tensor, bias: torch.Tensor
) -> Tensors:
    outs = {}
    for t in order:
        (a_r, a_z, a_n), (b_r, b_z, b_n) = (x.chunk(3, -1) for x in (gates[t], functional.linear(hidden, weight, bias)))
        n = (a_n + (a_r + b_r).sigmoid() * b_n).tanh()
        hidden = outs[t] = n + (a_z + b_z).sigmoid() * (hidden - n)
    return (torch.stack([outs[t] for t in sorted(order)]),)


def _rnn_steps(
    order: Sequence[int], nonlinearity: str, gates: torch.Tensor, weight: torch.Tensor, hidden: torch.Tensor
) -> Tensors:
    outs = {}
    for t in order:
        hidden = outs[t] = getattr(torch, nonlinearity)(gates[t] + functional.linear(hidden, weight))
    return (torch.stack([outs[t] for t in sorted(order)]),)


class _Layer(torch.autograd.Function):
    """One layer in one direction: `run(mode, reverse, keep, gates, weight, *others)`; `gates` and later are tensors or None.

    With `keep`, an LSTM returns its gates as a third result for the gradient. With `create_graph`, gradients are computed by
    the loop over time steps.
    """

    @staticmethod
    def forward(mode: str, reverse: bool, keep: bool, *inputs: Any) -> Tensors:
        gates, weight, hidden, *others = _unwrapped(inputs)
        if mode == "lstm":
            found = FUNCTIONS["lstm"](gates, weight, hidden, others[0], others[1], None, reverse, keep)
            found = found if keep else found[:2]
        elif mode == "gru":
            found = (FUNCTIONS["gru"](gates, weight, hidden, others[0], None, reverse),)
        else:
            found = (FUNCTIONS["rnn"](gates, weight, hidden, None, mode, reverse),)
        return tuple(map(tensors.wrap, found))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Sequence[torch.Tensor]) -> None:
        ctx.mode, ctx.reverse = inputs[:2]
        ctx.save_for_backward(*inputs[3:], *output)
        if len(output) == 3:
            ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)  # else PyTorch would allocate a zero gradient for the gates

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        count = 5 if ctx.mode == "lstm" else 4 if ctx.mode == "gru" else 3
        saved = ctx.saved_tensors  # read once: a checkpoint recomputes it at each read
        inputs, outputs = saved[:count], saved[count:]
        grads = tuple(torch.zeros_like(o) if g is None else g for o, g in zip(outputs[:2], grads[:2], strict=True))
        if torch.is_grad_enabled():
            return None, None, None, *_differentiable(ctx.mode, ctx.reverse, inputs, grads)
        gates, weight, hidden, *others = _unwrapped(inputs)
        found: Any
        if ctx.mode == "lstm":
            out, cells, *kept = _unwrapped(outputs)
            found = FUNCTIONS["lstm_grad"](
                *_unwrapped(grads), kept[0], weight, hidden, others[0], out, cells, others[1], None, None, ctx.reverse
            )
        elif ctx.mode == "gru":
            found = FUNCTIONS["gru_grad"](
                *_unwrapped(grads), gates, weight, hidden, *_unwrapped(outputs), others[0], None, ctx.reverse
            )
        else:
            found = FUNCTIONS["rnn_grad"](
                *_unwrapped(grads), weight, hidden, *_unwrapped(outputs), None, ctx.mode, ctx.reverse
            )
        return None, None, None, *(None if x is None else tensors.wrap(g) for x, g in zip(inputs, found, strict=True))


_run_layer: Callable[..., Tensors] = _Layer.apply


def _differentiable(mode: str, reverse: bool, inputs: Sequence[Any], grads: Sequence[torch.Tensor]) -> list[Any]:
    """Return gradients of a layer's inputs by PyTorch's differentiable ops."""
    order = list(range(inputs[0].shape[0]))[:: -1 if reverse else 1]
    with torch.enable_grad():
        if mode == "lstm":
            outs = _lstm_steps(order, *inputs)
        else:
            outs = _gru_steps(order, *inputs) if mode == "gru" else _rnn_steps(order, mode, *inputs)
        wanted = [x for x in inputs if x is not None and x.requires_grad]
        found = iter(torch.autograd.grad(outs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


def _layers(
    mode: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, list[Any]]:
    """Return the output, and the final states of all layers and directions."""
    directions = 1 + bidirectional
    each = len(params) // (num_layers * directions)
    for state in states:
        if state.dtype is not x.dtype and not torch.is_autocast_enabled(NAME):
            found = f"expected the input and the states to have the same dtype, but got {x.dtype} and {state.dtype}"
            raise RuntimeError(message(mode, found, fix="cast the states with .to(input.dtype)"))
    x = x.transpose(0, 1) if batch_first else x
    finals: list[Tensors] = []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = list(params[number * each : (number + 1) * each])
            sequences = _direction(mode, x, [s[number] for s in states], weights, has_biases, bool(direction))
            outs.append(sequences[0])
            finals.append(tuple(s[0 if direction else -1] for s in sequences))
        x = torch.cat(outs, -1) if len(outs) > 1 else outs[0]
        if dropout and layer < num_layers - 1:
            x = torch.dropout(x, dropout, train)
    return x.transpose(0, 1) if batch_first else x, [torch.stack(several) for several in zip(*finals, strict=True)]


def _direction(
    mode: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: list[torch.Tensor],
    has_biases: bool,
    reverse: bool,
) -> Tensors:
    """Return the states after each time step."""
    projection = weights.pop() if mode == "lstm" and len(weights) == (5 if has_biases else 3) else None
    weight_in, weight_hh, *biases = weights
    bias = None if not has_biases else biases[0] if mode == "gru" else biases[0] + biases[1]
    gates = functional.linear(x, weight_in, bias)
    others: list[Any] = {"lstm": [*states[1:], projection], "gru": [biases[1] if has_biases else None]}.get(mode, [])
    inputs = [gates, *(t if t is None else t.to(gates.dtype) for t in (weight_hh, states[0], *others))]
    keep = mode == "lstm" and torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    return _run_layer(mode, reverse, keep, *inputs)[: 2 if mode == "lstm" else 1]


def lstm(x: Any, states: Sequence[Any], params: Sequence[Any], *options: Any) -> Any:
    """Return the output, and the final hidden and cell states."""
    if not tensors.have_memory(x, *states, *params) or not x.numel():
        return decomposed(_aten.lstm.input, x, states, params, *options)
    out, (hidden, cell) = _layers("lstm", x, states, params, *options)
    return out, hidden, cell


def _single(name: str, mode: str) -> Callable[..., Any]:
    """Return the kernel of a network with one state."""

    def compute(x: torch.Tensor, state: torch.Tensor, params: Sequence[torch.Tensor], *options: Any) -> Any:
        if not tensors.have_memory(x, state, *params) or not x.numel():
            return decomposed(getattr(_aten, name).input, x, state, params, *options)
        out, (final,) = _layers(mode, x, [state], params, *options)
        return out, final

    return compute


KERNELS: dict[str, Callable[..., Any]] = {
    "lstm.input": lstm,
    "gru.input": _single("gru", "gru"),
    "rnn_tanh.input": _single("rnn_tanh", "tanh"),
    "rnn_relu.input": _single("rnn_relu", "relu"),
}
"""Kernels registered above autograd, because PyTorch decomposes these ops."""
