"""Activations that overwrite their input, in PyTorch's spelling with an underscore.

They are for inference, under `no_grad`, and for tensors without gradients: the tape refuses to overwrite a result that a
gradient may need. The form `F.relu(x, inplace=True)` returns a new tensor instead, so that it works in training.
"""

from __future__ import annotations

from polyhal.hal.ops.top_level import top_level
from polyhal.nn.functional import activation, smooth_activation
from polyhal.random import Generator
from polyhal.tensor import Tensor
from polyhal.tensor.inplace import overwrite


def _overwritten(x: Tensor, value: Tensor) -> Tensor:
    overwrite(x, value)
    return x


@top_level
def relu_(input: Tensor) -> Tensor:
    """Replace `x` by `max(x, 0)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, activation.relu(input))


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Replace `x` by `leaky_relu(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, activation.leaky_relu(input, negative_slope))


@top_level
def rrelu_(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Replace `x` by `rrelu(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, activation.rrelu(input, lower, upper, training, generator=generator))


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Replace `x` by `elu(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, activation.elu(input, alpha))


@top_level
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Replace `x` by `celu(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, smooth_activation.celu(input, alpha))


@top_level
def selu_(input: Tensor) -> Tensor:
    """Replace `x` by `selu(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, smooth_activation.selu(input))


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Replace `x` by `hardtanh(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, activation.hardtanh(input, min_val, max_val))


@top_level
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """Replace `x` by `threshold(x)`. Raises AutogradError for a tensor that requires gradients."""
    return _overwritten(input, smooth_activation.threshold(input, threshold, value))
