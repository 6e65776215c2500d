"""Recurrent layers: by Polyhal's ops where they have the same formula, else step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polyhal as ph
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn import functional
from polyhal.onnx.registration import Value, operator
from polyhal.tensor import Tensor

Activation = Callable[[Any], Any]
_DEFAULTS = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, 0.0),
    "ThresholdedRelu": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, 0.0),
}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    a, b = _DEFAULTS.get(name, (0.0, 0.0))
    a, b = a if alpha is None else alpha, b if beta is None else beta
    made: dict[str, Activation] = {
        "Tanh": ph.tanh,
        "Sigmoid": ph.sigmoid,
        "Relu": ph.relu,
        "Softsign": functional.softsign,
        "Softplus": functional.softplus,
        "Elu": lambda x: ph.elu(x, a),
        "Affine": lambda x: x * a + b,
        "LeakyRelu": lambda x: ph.leaky_relu(x, a),
        "ThresholdedRelu": lambda x: ph.where(x > a, x, 0.0),
        "ScaledTanh": lambda x: ph.tanh(x * b) * a,
        "HardSigmoid": lambda x: ph.clip(x * a + b, 0.0, 1.0),
    }
    if name not in made:
        raise ValueError(f"the activation {name!r}; expected one of {', '.join(sorted(made))}")
    return made[name]


@dataclass(frozen=True)
class _Layer:
    """One direction of a layer: its weights, and the settings that all directions share."""

    weight: Value
    recurrent: Value
    bias: Value
    """Bias of the input (first half) and of the state (second half)."""
    peephole: Value
    activations: tuple[Activation, ...]
    plain: bool
    """True with the default activations, without clipping and peepholes."""
    clip: float | None
    reverse: bool

    def clipped(self, x: Value) -> Any:
        return x if self.clip is None else ph.clip(x, -self.clip, self.clip)


Step = Callable[[_Layer, Any, Any, Sequence[Value]], Sequence[Value]]
"""Computes the next states from the input's contribution to the gates, the input, and the states."""


def _layers(
    gates: int,
    defaults: Sequence[str],
    w: Value,
    r: Value,
    b: Value,
    p: Value,
    direction: str,
    activations: Value,
    alphas: Value,
    betas: Value,
    clip: float | None,
    blocked: bool,
) -> list[_Layer]:
    made = []
    width = len(defaults)
    names = list(activations or [])
    for i in range(w.shape[0]):
        chosen = names[i * width : (i + 1) * width] or list(defaults)
        numbers = []
        for j, name in enumerate(chosen):
            k = i * width + j
            numbers.append(
                _activation(
                    name,
                    alphas[k] if alphas and k < len(alphas) else None,
                    betas[k] if betas and k < len(betas) else None,
                )
            )
        hidden = r.shape[2]
        bias = b[i] if b is not None else ph.zeros((2 * gates * hidden,), dtype=w.dtype, device=w.device)
        plain = chosen == list(defaults) and clip is None and p is None and not blocked
        made.append(
            _Layer(
                w[i],
                r[i],
                bias,
                None if p is None else p[i],
                tuple(numbers),
                plain,
                clip,
                direction == "reverse" or i == 1,
            )
        )
    return made


def _lengths_mask(lengths: Value, steps: int, like: Tensor) -> Any:
    """Return whether each step of each sequence exists: (steps, batch, 1)."""
    return ph.unsqueeze(ph.arange(0, steps, device=like.device).reshape((-1, 1)) < lengths.to(ph.int64), -1)


def _stepped(
    layer: _Layer, step: Step, x: Tensor, states: Sequence[Value], lengths: Value
) -> tuple[Any, Sequence[Value]]:
    """Return the hidden states of all steps, and the last states."""
    steps = x.shape[0]
    mask = None if lengths is None else _lengths_mask(lengths, steps, x)
    outputs: list[Value] = [None] * steps
    half = layer.bias.shape[0] // 2
    joint = ph.matmul(x, ph.transpose(layer.weight, 0, 1)) + layer.bias[:half]
    for t in reversed(range(steps)) if layer.reverse else range(steps):
        new = step(layer, joint[t], layer.bias[half:], states)
        if mask is not None:
            states = [ph.where(mask[t], n, s) for n, s in zip(new, states, strict=True)]
            outputs[t] = ph.where(mask[t], new[0], 0.0)
        else:
            states = new
            outputs[t] = new[0]
    return ph.stack(outputs, 0), states


def _run(
    layers: list[_Layer],
    whole: Value,
    step: Step,
    x: Tensor,
    states: list[Value],
    lengths: Value,
    layout: int,
    width: int,
) -> tuple[Any, ...]:
    """Run all directions. `whole` runs a layer at once, for layers with its formula."""
    x = ph.permute(x, (1, 0, 2)) if layout else x
    batch = x.shape[1]
    starts = []
    for s in states:
        if s is None:
            s = ph.zeros((len(layers), batch, width), dtype=x.dtype, device=x.device)
        elif layout:
            s = ph.permute(s, (1, 0, 2))
        starts.append(s)
    outputs, lasts = [], []
    for i, layer in enumerate(layers):
        begin = [s[i] for s in starts]
        if layer.plain and whole is not None and lengths is None:
            out, last = whole(layer, x, begin)
        else:
            out, last = _stepped(layer, step, x, begin, lengths)
        outputs.append(out)
        lasts.append(last)
    y = ph.stack(outputs, 1)
    finals = [ph.stack([last[j] for last in lasts], 0) for j in range(len(states))]
    if layout:
        y, finals = ph.permute(y, (2, 0, 1, 3)), [ph.permute(f, (1, 0, 2)) for f in finals]
    return (y, *finals)


def _order(matrix: Value, gates: int, order: Sequence[int]) -> Any:
    """Return rows of gates in another order."""
    n = matrix.shape[0] // gates
    return ph.concat([matrix[g * n : (g + 1) * n] for g in order], 0)


# --- LSTM -------------------------------------------------------------------------------------------------------------


def _lstm_whole(layer: _Layer, x: Tensor, states: Sequence[Value]) -> tuple[Any, Sequence[Value]]:
    half = layer.bias.shape[0] // 2
    order = (0, 2, 3, 1)  # from i, o, f, g to i, f, g, o
    weight, recurrent = _order(layer.weight, 4, order), _order(layer.recurrent, 4, order)
    joint = functional.linear(x, weight, _order(layer.bias[:half] + layer.bias[half:], 4, order))
    found = FUNCTIONS["lstm"](joint, recurrent, states[0], states[1], reverse=layer.reverse)
    at = 0 if layer.reverse else -1
    return found[0], (found[0][at], found[1][at])


def _lstm_step(layer: _Layer, joint: Value, bias: Value, states: Sequence[Value]) -> Sequence[Value]:
    hidden, cell = states
    n = hidden.shape[-1]
    f, g, h = layer.activations
    gates = joint + ph.matmul(hidden, ph.transpose(layer.recurrent, 0, 1)) + bias
    i, o, forget, c = (gates[:, k * n : (k + 1) * n] for k in range(4))
    peephole = layer.peephole
    if peephole is not None:
        i, forget = i + peephole[:n] * cell, forget + peephole[2 * n :] * cell
    i, forget = f(layer.clipped(i)), f(layer.clipped(forget))
    new = forget * cell + i * g(layer.clipped(c))
    o = o if peephole is None else o + peephole[n : 2 * n] * new
    return f(layer.clipped(o)) * h(new), new


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Value = None,
    sequence_lens: Value = None,
    initial_h: Value = None,
    initial_c: Value = None,
    p: Value = None,
    *,
    activation_alpha: Value = None,
    activation_beta: Value = None,
    activations: Value = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    if input_forget:
        raise ValueError("coupled gates (input_forget) are not supported")
    layers = _layers(
        4,
        ("Sigmoid", "Tanh", "Tanh"),
        w,
        r,
        b,
        p,
        direction,
        activations,
        activation_alpha,
        activation_beta,
        clip,
        False,
    )
    return _run(layers, _lstm_whole, _lstm_step, x, [initial_h, initial_c], sequence_lens, layout, r.shape[2])


# --- GRU --------------------------------------------------------------------------------------------------------------


def _gru_whole(layer: _Layer, x: Tensor, states: Sequence[Value]) -> tuple[Any, Sequence[Value]]:
    half = layer.bias.shape[0] // 2
    n = half // 3
    order = (1, 0, 2)  # from z, r, h to r, z, h
    first, second = layer.bias[:half], layer.bias[half:]
    joint_bias = ph.concat([first[: 2 * n] + second[: 2 * n], first[2 * n :]], 0)
    joint = functional.linear(x, _order(layer.weight, 3, order), _order(joint_bias, 3, order))
    out = FUNCTIONS["gru"](joint, _order(layer.recurrent, 3, order), states[0], second[2 * n :], reverse=layer.reverse)
    return out, (out[0 if layer.reverse else -1],)


def _gru_step(linear_before_reset: int) -> Step:
    def step(layer: _Layer, joint: Value, bias: Value, states: Sequence[Value]) -> Sequence[Value]:
        hidden = states[0]
        n = hidden.shape[-1]
        f, g = layer.activations
        weights = ph.transpose(layer.recurrent, 0, 1)
        both = joint[:, : 2 * n] + ph.matmul(hidden, weights[:, : 2 * n]) + bias[: 2 * n]
        update, reset = f(layer.clipped(both[:, :n])), f(layer.clipped(both[:, n:]))
        if linear_before_reset:
            new = joint[:, 2 * n :] + reset * (ph.matmul(hidden, weights[:, 2 * n :]) + bias[2 * n :])
        else:
            new = joint[:, 2 * n :] + ph.matmul(reset * hidden, weights[:, 2 * n :]) + bias[2 * n :]
        return [(1 - update) * g(layer.clipped(new)) + update * hidden]

    return step


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Value = None,
    sequence_lens: Value = None,
    initial_h: Value = None,
    *,
    activation_alpha: Value = None,
    activation_beta: Value = None,
    activations: Value = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    layers = _layers(
        3, ("Sigmoid", "Tanh"), w, r, b, None, direction, activations, activation_alpha, activation_beta, clip, False
    )
    whole = _gru_whole if linear_before_reset else None
    return _run(layers, whole, _gru_step(linear_before_reset), x, [initial_h], sequence_lens, layout, r.shape[2])


# --- RNN --------------------------------------------------------------------------------------------------------------


def _rnn_whole(layer: _Layer, x: Tensor, states: Sequence[Value]) -> tuple[Any, Sequence[Value]]:
    half = layer.bias.shape[0] // 2
    joint = functional.linear(x, layer.weight, layer.bias[:half] + layer.bias[half:])
    out = FUNCTIONS["rnn"](joint, layer.recurrent, states[0], reverse=layer.reverse)
    return out, (out[0 if layer.reverse else -1],)


def _rnn_step(layer: _Layer, joint: Value, bias: Value, states: Sequence[Value]) -> Sequence[Value]:
    total = joint + ph.matmul(states[0], ph.transpose(layer.recurrent, 0, 1)) + bias
    return [layer.activations[0](layer.clipped(total))]


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Value = None,
    sequence_lens: Value = None,
    initial_h: Value = None,
    *,
    activation_alpha: Value = None,
    activation_beta: Value = None,
    activations: Value = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> Any:
    layers = _layers(
        1, ("Tanh",), w, r, b, None, direction, activations, activation_alpha, activation_beta, clip, False
    )
    return _run(layers, _rnn_whole, _rnn_step, x, [initial_h], sequence_lens, layout, r.shape[2])
