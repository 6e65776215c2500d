"""Normalisation layers."""

from __future__ import annotations

from polyhal.creation import ones, zeros
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class _BatchNorm(Module):
    """Batch norm over the axes listed in `_ndims`; see BatchNorm1d and BatchNorm2d."""

    _ndims: tuple[int, ...] = ()
    _expected = ""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.weight = Parameter(ones((num_features,), dtype, device)) if affine else None
        self.bias = Parameter(zeros((num_features,), dtype, device)) if affine else None
        target = Device(device)
        # Not every device stores 64-bit integers.
        counter = dtypes.int64 if dtypes.int64 in target.capabilities.storage else dtypes.int32
        self.register_buffer("running_mean", zeros((num_features,), dtype, target) if track_running_stats else None)
        self.register_buffer("running_var", ones((num_features,), dtype, target) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", zeros((), counter, target) if track_running_stats else None)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in self._ndims or x.shape[1] != self.num_features:
            raise ShapeError(
                message(
                    type(self).__name__, f"got shape {x.shape}", expected=self._expected.format(c=self.num_features)
                )
            )
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average of all batches so far
                momentum = self.num_batches_tracked.to(dtypes.float32).reciprocal()
        batch = self.training or self.running_mean is None
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Zero mean and unit variance per feature over the batch: (N, C) or (N, C, L), then scale and shift.

    Training uses the batch's statistics and moves the running ones towards them by `momentum` (None: plain average);
    evaluation uses the running ones. Source: Ioffe and Szegedy, arXiv:1502.03167.
    """

    _ndims = (2, 3)
    _expected = "(N, {c}) or (N, {c}, L)"


class BatchNorm2d(_BatchNorm):
    """Zero mean and unit variance per channel over batch and image: (N, C, H, W), then scale and shift.

    See BatchNorm1d.
    """

    _ndims = (4,)
    _expected = "(N, {c}, H, W)"


def _trailing(shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class LayerNorm(Module):
    """Zero mean and unit variance over the last axes, of `normalized_shape`, then scale and shift.

    Source: arXiv:1607.06450.
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

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


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

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Zero mean and unit variance over groups of channels (N, C, ...), then scale and shift.

    Source: arXiv:1803.08494.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_groups} groups do not divide {num_channels} channels")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight = Parameter(ones((num_channels,), dtype, device)) if affine else None
        self.bias = Parameter(zeros((num_channels,), dtype, device)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
