"""Batch norm and instance norm: layers that may keep running statistics."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.creation import ones, zeros
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class ChannelNorm(Module):
    """Base of norms per channel (axis 1), with scales and shifts if `affine`, and running statistics if those are tracked."""

    _ndims: Sequence[int] = ()
    """How many axes an input may have."""
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
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.weight = Parameter(ones((num_features,), dtype, device)) if affine else None
        self.bias = Parameter(zeros((num_features,), dtype, device)) if affine and bias else None
        target = dispatch.target_device(device)
        # Not every device stores 64-bit integers.
        counter = dtypes.int64 if dtypes.int64 in target.capabilities.storage else dtypes.int32
        self.register_buffer("running_mean", zeros((num_features,), dtype, target) if track_running_stats else None)
        self.register_buffer("running_var", ones((num_features,), dtype, target) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", zeros((), counter, target) if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Forget the batches seen so far."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)

    def reset_parameters(self) -> None:
        """Set scales to 1 and shifts to 0, and forget the batches seen so far."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check(self, x: Tensor, channel_axis: int = 1) -> None:
        if x.ndim not in self._ndims or x.shape[channel_axis] != self.num_features:
            raise ShapeError(
                message(
                    type(self).__name__, f"got shape {x.shape}", expected=self._expected.format(c=self.num_features)
                )
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm(ChannelNorm):
    """Base of BatchNorm1d, BatchNorm2d and BatchNorm3d."""

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        momentum = self._next_momentum()
        batch = self.training or self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps
        )

    def _next_momentum(self) -> float | Tensor:
        """Count the batch, in training. Returns by how much the running statistics move towards it."""
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average of all batches so far
                return self.num_batches_tracked.to(dtypes.float32).reciprocal()
        return 0.0 if self.momentum is None else self.momentum


class BatchNorm1d(BatchNorm):
    """Zero mean and unit variance per feature over the batch: (N, C) or (N, C, L), then scale and shift.

    Training uses the batch's statistics and moves the running ones towards them by `momentum` (None: plain average);
    evaluation uses the running ones. Source: Ioffe and Szegedy, arXiv:1502.03167.
    """

    _ndims = (2, 3)
    _expected = "(N, {c}) or (N, {c}, L)"


class BatchNorm2d(BatchNorm):
    """Zero mean and unit variance per channel over batch and image: (N, C, H, W), then scale and shift.

    See BatchNorm1d.

    >>> polyhal.nn.BatchNorm2d(3)(polyhal.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    _ndims = (4,)
    _expected = "(N, {c}, H, W)"


class BatchNorm3d(BatchNorm):
    """Zero mean and unit variance per channel over batch and volume: (N, C, D, H, W), then scale and shift.

    See BatchNorm1d.
    """

    _ndims = (5,)
    _expected = "(N, {c}, D, H, W)"


class InstanceNorm(ChannelNorm):
    """Base of InstanceNorm1d, InstanceNorm2d and InstanceNorm3d, which take inputs without a batch, too."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        batched = input.ndim == self._ndims[-1]
        self._check(input, 1 if batched else 0)
        own = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        x = input if batched else input[None]
        out = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, momentum, self.eps)
        return out if batched else out[0]


class InstanceNorm1d(InstanceNorm):
    """Zero mean and unit variance over each channel of each sample: (N, C, L) or (C, L), then scale and shift if `affine`.

    Source: Ulyanov et al., arXiv:1607.08022.
    """

    _ndims = (2, 3)
    _expected = "(N, {c}, L) or ({c}, L)"


class InstanceNorm2d(InstanceNorm):
    """Instance norm of images (N, C, H, W) or (C, H, W). See InstanceNorm1d."""

    _ndims = (3, 4)
    _expected = "(N, {c}, H, W) or ({c}, H, W)"


class InstanceNorm3d(InstanceNorm):
    """Instance norm of volumes (N, C, D, H, W) or (C, D, H, W). See InstanceNorm1d."""

    _ndims = (4, 5)
    _expected = "(N, {c}, D, H, W) or ({c}, D, H, W)"
