"""Log-softmax over many, mostly rare classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polyhal import functions as ops
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn.container import ModuleList, Sequential
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.tensor import Tensor


class AdaptiveOutput(NamedTuple):
    """The log-probability of each target, and their negative mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes in clusters by frequency; a rare cluster has one entry in the head and a narrower layer of its own.

    `cutoffs` are the first classes of the clusters; the layer of cluster i has in_features / div_value**(i + 1) features.
    Every cluster is computed for every row. Source: Grave et al., arXiv:1609.04309. Raises ValueError unless the
    cutoffs are increasing classes.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        limits = list(cutoffs)
        if not limits or limits != sorted(set(limits)) or limits[0] <= 0 or limits[-1] > n_classes - 1:
            raise ValueError(f"cutoffs {limits}; expected increasing classes from 1 to {n_classes - 1}")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*limits, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = limits[0]
        self.n_clusters = len(limits)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(Linear(in_features, width, False, device, dtype), Linear(width, size, False, device, dtype))
            )

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> AdaptiveOutput:
        """Return rows (N, in_features) and classes (N,), or one row and its class. Raises ShapeError."""
        if input.ndim != target.ndim + 1 or input.ndim not in (1, 2):
            problem = f"input {input.shape} and target {target.shape}"
            raise ShapeError(
                message("AdaptiveLogSoftmaxWithLoss", problem, expected="(N, in) and (N,), or (in,) and ()")
            )
        rows = ops.reshape(input, (-1, self.in_features))
        chosen = ops.take_along_axis(self.log_prob(rows), ops.reshape(target, (-1, 1)), 1)
        output = ops.reshape(chosen, target.shape)
        return AdaptiveOutput(output, -ops.mean(output))

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (N, in_features) to (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, layer in enumerate(self.tail):
            entry = head[:, self.shortlist_size + i : self.shortlist_size + i + 1]
            parts.append(F.log_softmax(layer(input), 1) + entry)
        return ops.concat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each row."""
        return ops.argmax(self.log_prob(input), 1)
