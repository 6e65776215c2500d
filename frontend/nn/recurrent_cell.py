"""One time step of a recurrent layer: `RNNCell`, `GRUCell` and `LSTMCell`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.creation import empty, zeros
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn import init
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor

_lstm, _gru, _rnn = (FUNCTIONS[name] for name in ("lstm", "gru", "rnn"))


def lstm_steps(
    gates: Tensor,
    weight: Tensor,
    states: Sequence[Tensor],
    projection: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the hidden and cell states after each time step. On the tape the gates are kept for the gradient."""
    needed = (gates, weight, *states, projection)
    taped = dispatch.thread.grad_enabled and any(t is not None and t.requires_grad for t in needed)
    out, cells, _ = _lstm(gates, weight, *states, projection, lengths, reverse, taped)
    return out, cells


class RNNCellBase(Module):
    """Base of the cells: `weight_ih` (gates * hidden_size, input_size), `weight_hh`, and both biases.

    Parameters start uniform in +-1/sqrt(hidden_size).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        width = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((width, input_size), dtype, device))
        self.weight_hh = Parameter(empty((width, hidden_size), dtype, device))
        self.bias_ih = Parameter(empty((width,), dtype, device)) if bias else None
        self.bias_hh = Parameter(empty((width,), dtype, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias={self.bias}"

    def _start(self, input: Tensor, *states: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Return the input's part of the gates as a sequence of one step, (1, B, gates), and states (B, hidden_size)."""
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise self._fail(f"input {input.shape}", f"(B, {self.input_size}) or ({self.input_size},)")
        batch = (1, *input.shape)[-2] if input.ndim == 2 else 1
        x = ops.reshape(input, (1, batch, self.input_size))
        starts = []
        for state in states:
            if state is not None and state.shape != (*input.shape[:-1], self.hidden_size):
                raise self._fail(f"input {input.shape} and state {state.shape}", f"width {self.hidden_size}, one batch")
            shape = (batch, self.hidden_size)
            starts.append(zeros(shape, x.dtype, x.device) if state is None else ops.reshape(state, shape))
        return x, starts

    def _joint_bias(self) -> Tensor | None:
        return None if self.bias_ih is None or self.bias_hh is None else self.bias_ih + self.bias_hh

    def _fail(self, problem: str, expected: str) -> ShapeError:
        return ShapeError(message(type(self).__name__, problem, expected=expected))


def _result(out: Tensor, input: Tensor) -> Tensor:
    """Return a state (1, B, H) with the batch that the input has: (B, H) or (H,)."""
    return ops.reshape(out, (*input.shape[:-1], out.shape[-1]))


class RNNCell(RNNCellBase):
    """`nonlinearity(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)`: one step of `RNN`, with tanh or relu.

    Raises ValueError for another nonlinearity.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(message("RNNCell", f"nonlinearity {nonlinearity!r}", expected="tanh or relu"))
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next hidden state, (B, hidden_size) or (hidden_size,)."""
        x, states = self._start(input, hx)
        gates = ops.linear(x, self.weight_ih, self._joint_bias())
        return _result(_rnn(gates, self.weight_hh, *states, nonlinearity=self.nonlinearity), input)


class GRUCell(RNNCellBase):
    """One step of `GRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next hidden state, (B, hidden_size) or (hidden_size,)."""
        x, states = self._start(input, hx)
        return _result(_gru(ops.linear(x, self.weight_ih, self.bias_ih), self.weight_hh, *states, self.bias_hh), input)


class LSTMCell(RNNCellBase):
    """One step of `LSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell states, each (B, hidden_size) or (hidden_size,)."""
        x, states = self._start(input, *((None, None) if hx is None else hx))
        out, cells = lstm_steps(ops.linear(x, self.weight_ih, self._joint_bias()), self.weight_hh, states)
        return _result(out, input), _result(cells, input)
