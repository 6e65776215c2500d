"""Affine and bilinear layers, and a linear classifier with its loss."""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.creation import empty
from polyhal.hal.device import Device
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.functional import Reduction
from polyhal.nn.loss import WeightedLoss
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class Linear(Module):
    """`input @ weight.T + bias`: (..., in_features) to (..., out_features).

    `weight` (out, in) and `bias` (out,) start uniform in +-1/sqrt(in_features).

    >>> polyhal.nn.Linear(3, 2)(polyhal.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), dtype, device))
        self.bias = Parameter(empty((out_features,), dtype, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, activation: str | None = None) -> Tensor:
        """`activation` names a function to apply afterwards, in the same kernel if possible (see `nn.functional.linear`)."""
        return F.linear(input, self.weight, self.bias, activation)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """`sum_ij x1[i] * weight[k, i, j] * x2[j] + bias[k]`: (..., in1) and (..., in2) to (..., out).

    `weight` (out, in1, in2) and `bias` (out,) start uniform in +-1/sqrt(in1_features). Raises ValueError unless
    `in1_features` is positive.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features is {in1_features}; expected a positive number")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), dtype, device))
        self.bias = Parameter(empty((out_features,), dtype, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class LinearCrossEntropyLoss(WeightedLoss):
    """A linear layer to class logits, and cross entropy: (N, in_features) or (in_features,).

    With `out_features` (d1, ...) the logits are (N, C, d1, ...). `options` has no effect.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
        reduction: Reduction = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: object = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.in_features = in_features
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias, device, dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        rows = (self.num_classes, *self.out_features)
        return F.linear_cross_entropy(
            input,
            ops.reshape(self.linear.weight, (*rows, self.in_features)),
            target,
            linear_bias=None if self.linear.bias is None else ops.reshape(self.linear.bias, rows),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
