"""Recurrent layers over whole sequences: `RNN`, `GRU` and `LSTM`.

The input meets its weights in one product over all time steps of a layer; an op per layer and direction does the rest
(`hal/ops/recurrent`).
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from polyhal import functions as ops
from polyhal.creation import empty, zeros
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn import init
from polyhal.nn.functional.dropout import dropout as drop
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.nn.recurrent_cell import lstm_steps
from polyhal.nn.utils.rnn import PackedSequence, packed, padded, sequence_lengths
from polyhal.tensor import Tensor

_gru, _rnn = FUNCTIONS["gru"], FUNCTIONS["rnn"]
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class _Weights(NamedTuple):
    """The parameters of one layer and direction."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    weight_hr: Tensor | None = None

    def project(self, x: Tensor, joint_bias: bool) -> Tensor:
        """Return the contribution of the input to the gates at all time steps; with `joint_bias`, include both biases."""
        bias = self.bias_ih
        if joint_bias and bias is not None and self.bias_hh is not None:
            bias = bias + self.bias_hh
        return ops.linear(x, self.weight_ih, bias)


class RNNBase(Module):
    """Base of `RNN`, `GRU` and `LSTM`: their parameters, layers, directions and forms of input."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(message(None, f"mode {mode!r}", expected=" or ".join(_GATES)))
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if value <= 0:
                raise ValueError(message(None, f"{name} is {value}", expected="a positive number"))
        if not 0 <= proj_size < hidden_size:
            raise ValueError(message(None, f"proj_size is {proj_size}", expected=f"0 to {hidden_size - 1}"))
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(message(None, f"dropout is {dropout}", expected="a probability from 0 to 1"))
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"dropout {dropout} has no effect: it follows each layer but the last, and there is one", stacklevel=3
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates, width = _GATES[mode] * hidden_size, self._state_width
        self._names: list[dict[str, str]] = []
        """For each layer and direction the names of its parameters by their fields in `_Weights`."""
        for number in range(num_layers * self._directions):
            layer = number // self._directions
            inputs = width * self._directions if layer else input_size
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, inputs), "weight_hh": (gates, width)}
            if bias:
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            suffix = f"_l{layer}{'_reverse' * (number % self._directions)}"
            self._names.append({field: field + suffix for field in shapes})
            for field, shape in shapes.items():
                self.register_parameter(field + suffix, Parameter(empty(shape, dtype, device)))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _state_width(self) -> int:
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names.values()] for names in self._names]

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: the memory of the parameters needs no arrangement here."""

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        plain = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        for name, default in plain.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    # --- running ----------------------------------------------------------------------------------------------------

    def _layer(
        self, x: Tensor, weights: _Weights, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        """Return all states (T, B, width) of one layer and direction, the hidden state first; defined by subclasses."""
        raise NotImplementedError

    def _run(self, input: Tensor | PackedSequence, states: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        """Return the output in the form of the input, and the final states: two for an LSTM, else one."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, states)
        if input.ndim not in (2, 3):
            raise self._fail(f"input {input.shape}", "two axes, or three with a batch")
        batched, axis = input.ndim == 3, 0 if self.batch_first else 1
        x = input if batched else input[:, None]
        if states is not None:
            for state in states:
                if state.ndim != input.ndim:
                    raise self._fail(f"input {input.shape} and state {state.shape}", "a batch in both or in none")
            states = states if batched else tuple(s[:, None] for s in states)
        if batched and self.batch_first:
            x = x.transpose(0, 1).contiguous()  # one copy; every product with the input would otherwise be one per step
        out, finals = self._run_layers(x, states, None)
        if not batched:
            return out[:, 0], tuple(s[:, 0] for s in finals)
        return out.transpose(0, 1) if axis == 0 else out, finals

    def _run_packed(self, input: PackedSequence, states: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        """Pad, run with the states held behind the end of each sequence, and pack."""
        sizes = input.batch_sizes.numpy()
        if input.data.ndim != 2:
            raise self._fail(f"packed input {input.data.shape}", "two axes")
        if states is not None and input.sorted_indices is not None:
            states = tuple(ops.take(s, input.sorted_indices, 1) for s in states)
        lengths = Tensor(sequence_lengths(sizes).astype(np.int32), device=input.data.device)
        out, finals = self._run_layers(padded(input.data, sizes), states, lengths)
        if input.unsorted_indices is not None:
            finals = tuple(ops.take(s, input.unsorted_indices, 1) for s in finals)
        return input._replace(data=packed(out, sizes)), finals

    def _run_layers(
        self, x: Tensor, states: tuple[Tensor, ...] | None, lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Output (T, B, width) and final states (layers * directions, B, width) from (T, B, input_size)."""
        if x.shape[-1] != self.input_size:
            raise self._fail(f"the input has width {x.shape[-1]}", str(self.input_size))
        if not x.shape[0]:
            raise self._fail("the sequence is empty", "at least one time step")
        starts = self._starts(x, states)
        finals: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = drop(x, self.dropout, self.training)
            outs = []
            for direction in range(self._directions):
                number = layer * self._directions + direction
                weights = _Weights(**{field: getattr(self, name) for field, name in self._names[number].items()})
                sequences = self._layer(x, weights, starts[number], lengths, bool(direction))
                outs.append(sequences[0])
                finals.append(tuple(s[0 if direction else -1] for s in sequences))
            x = ops.concat(outs, -1) if len(outs) > 1 else outs[0]
        return x, tuple(ops.stack(several, 0) for several in zip(*finals, strict=True))

    def _starts(self, x: Tensor, states: tuple[Tensor, ...] | None) -> list[tuple[Tensor, ...]]:
        """Return the initial states of each layer and direction; zeros unless given. Raises ShapeError."""
        count, batch = self.num_layers * self._directions, x.shape[1]
        widths = (self._state_width, self.hidden_size)[: 2 if self.mode == "LSTM" else 1]
        if states is None:
            return [tuple(zeros((batch, width), x.dtype, x.device) for width in widths)] * count
        for state, width in zip(states, widths, strict=True):
            if state.shape != (count, batch, width):
                raise self._fail(f"an initial state of shape {state.shape}", str((count, batch, width)))
        return [tuple(state[i] for state in states) for i in range(count)]

    def _fail(self, problem: str, expected: str) -> ShapeError:
        return ShapeError(message(type(self).__name__, problem, expected=expected))


class RNN(RNNBase):
    """`h = nonlinearity(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)` in each time step, with tanh or relu.

    Input (T, B, input_size), or (B, T, input_size) with `batch_first`, or (T, input_size), or a `PackedSequence`;
    states (num_layers * directions, B, hidden_size). With `bidirectional` the output has twice the width; `dropout`
    follows each layer but the last. Raises ValueError for another nonlinearity.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(message("RNN", f"nonlinearity {nonlinearity!r}", expected="tanh or relu"))
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity

    def _layer(
        self, x: Tensor, weights: _Weights, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        return (_rnn(weights.project(x, True), weights.weight_hh, *states, lengths, self.nonlinearity, reverse),)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return the hidden states of the last layer after each time step, and the final ones of all layers."""
        out, (hidden,) = self._run(input, None if hx is None else (hx,))
        return out, hidden


class GRU(RNNBase):
    """Gated recurrent units; arguments as for `RNN`. Source: Cho et al., arXiv:1406.1078.

    Gates are stored in the order r, z, n in `weight_ih` (3 * hidden_size, input). The reset gate r is applied after the product
    with the hidden state, as in PyTorch.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _layer(
        self, x: Tensor, weights: _Weights, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        return (_gru(weights.project(x, False), weights.weight_hh, *states, weights.bias_hh, lengths, reverse),)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return the hidden states of the last layer after each time step, and the final ones of all layers."""
        out, (hidden,) = self._run(input, None if hx is None else (hx,))
        return out, hidden


class LSTM(RNNBase):
    """Long short-term memory; arguments as for `RNN`. Source: Hochreiter and Schmidhuber, Neural Computation 9 (1997).

    Gates are stored in the order i, f, g, o in `weight_ih` (4 * hidden_size, input). With `proj_size` the hidden state is
    projected to that width by `weight_hr` (Sak et al., arXiv:1402.1128).

    >>> outputs, (h, c) = polyhal.nn.LSTM(8, 16, batch_first=True)(polyhal.ones(2, 5, 8))
    >>> outputs.shape, h.shape, c.shape
    ((2, 5, 16), (1, 2, 16), (1, 2, 16))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    def _layer(
        self, x: Tensor, weights: _Weights, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        gates = weights.project(x, True)
        return lstm_steps(gates, weights.weight_hh, states, weights.weight_hr, lengths, reverse)

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """The hidden states of the last layer after each time step, and the final hidden and cell states of all layers."""
        out, (hidden, cell) = self._run(input, None if hx is None else tuple(hx))
        return out, (hidden, cell)
