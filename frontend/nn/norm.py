"""Layer norm, group norm, RMS norm and local response norm as modules."""

from __future__ import annotations

from polyhal.creation import ones, zeros
from polyhal.hal.device import Device
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


def _trailing(shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class LayerNorm(Module):
    """Zero mean and unit variance over the last axes, of `normalized_shape`, then scale and shift.

    Source: arXiv:1607.06450.

    >>> y = polyhal.nn.LayerNorm(2, eps=0.0)(polyhal.tensor([1.0, 3.0]))
    >>> y.tolist()
    [-1.0, 1.0]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape, dtype, device)) if elementwise_affine else None
        self.bias = Parameter(zeros(self.normalized_shape, dtype, device)) if elementwise_affine and bias else None

    def reset_parameters(self) -> None:
        """Set weights to 1 and biases to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Unit root mean square over the last axes, then scale; `eps` defaults to the dtype's. Source: arXiv:1910.07467."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape, dtype, device)) if elementwise_affine else None

    def reset_parameters(self) -> None:
        """Set weights to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Zero mean and unit variance over groups of channels (N, C, ...), then scale and shift.

    Source: arXiv:1803.08494. Raises ValueError if `num_groups` does not divide the channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_groups} groups do not divide {num_channels} channels")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight = Parameter(ones((num_channels,), dtype, device)) if affine else None
        self.bias = Parameter(zeros((num_channels,), dtype, device)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Set weights to 1 and biases to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Division by a power of the mean square over `size` neighbouring channels. Source: Krizhevsky et al., NIPS 2012."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
