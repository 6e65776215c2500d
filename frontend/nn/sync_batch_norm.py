"""Batch norm over the batch of all devices."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.creation import tensor, zeros
from polyhal.hal.device import Device
from polyhal.hal.dtypes import accumulator
from polyhal.hal.errors import ShapeError, message
from polyhal.nn.batch_norm import BatchNorm
from polyhal.nn.functional.norm import move_average, per_channel
from polyhal.nn.module import Module
from polyhal.nn.replica import Replica, current_replica
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class SyncBatchNorm(BatchNorm):
    """Batch norm (N, C, ...) over the rows of all devices of a `DataParallel` model; elsewhere as BatchNorm1d to 3d.

    The statistics in training are exactly those of the whole batch, however it is divided, and so are gradients and running
    statistics. Raises ShapeError, and ValueError for a `process_group`: the devices are those of the model.
    """

    exchanges_with_replicas = True

    _ndims = range(2, 65)
    _expected = "(N, {c}, ...)"

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        device: Device | str | None = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        _refuse(process_group)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        replica = current_replica()
        if replica is None or not (self.training or self.running_mean is None):
            return super().forward(input)
        self._check(input)
        momentum = self._next_momentum()
        count, centred, mean, var = _statistics(input, replica)
        with no_grad():
            if self.running_mean is not None:
                move_average(self.running_mean, mean.detach(), momentum)
            if self.running_var is not None:
                move_average(self.running_var, var.detach(), momentum, count / (count - 1))
        scale = ops.rsqrt(var + self.eps)
        out = centred * per_channel(scale if self.weight is None else scale * self.weight, input)
        out = out if self.bias is None else out + per_channel(self.bias, input)
        return out.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Module:
        """Put a SyncBatchNorm in place of every batch norm of a model, with its parameters, buffers and mode.

        Returns the model, or the new layer if `module` itself is a batch norm. Raises ValueError for a `process_group`.
        """
        _refuse(process_group)
        if isinstance(module, BatchNorm):
            return _converted(module)
        for name, child in list(module.named_children()):
            setattr(module, name, cls.convert_sync_batchnorm(child))
        return module


def _statistics(x: Tensor, replica: Replica) -> tuple[int, Tensor, Tensor, Tensor]:
    """Values per channel over all replicas; the centred input; mean and biased variance (C,), in the accumulator's dtype.

    The replicas' means and variances are combined as by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
    for computing sample variances" (1979): the mean of their squares would lose all digits of data far from zero.
    """
    wide = x.to(accumulator(x.dtype))
    channels = x.shape[1]
    if x.size:
        over = (0, *range(2, x.ndim))
        mean = ops.mean(wide, over)
        own = ops.stack([mean, ops.mean(ops.square(wide - per_channel(mean, x)), over)], 0)
    else:
        own = zeros((2, channels), wide.dtype, x.device)
    counts = replica.all_counts(x.size // channels)
    total = sum(counts)
    if total < 2:
        problem = f"all devices together have {total} values per channel"
        raise ShapeError(message("SyncBatchNorm", problem, expected="more than 1 in training"))
    means, variances = ops.moveaxis(replica.all_gather(own[None]), 1, 0)
    weights = tensor([[n / total] for n in counts], dtype=wide.dtype, device=x.device)
    mean = ops.sum(weights * means, 0)
    var = ops.sum(weights * (variances + ops.square(means - mean)), 0)
    return total, wide - per_channel(mean, x), mean, var


def _converted(norm: BatchNorm) -> SyncBatchNorm:
    """Return a SyncBatchNorm with the parameters, buffers and mode of another batch norm."""
    place = next((x.device for x in (*norm.parameters(), *norm.buffers())), None)
    new = SyncBatchNorm(
        norm.num_features,
        norm.eps,
        norm.momentum,
        norm.affine,
        norm.track_running_stats,
        device=place,
        bias=norm.bias is not None,
    )
    new.weight, new.bias = norm.weight, norm.bias
    new.running_mean, new.running_var = norm.running_mean, norm.running_var
    new.num_batches_tracked = norm.num_batches_tracked
    new.training = norm.training
    return new


def _refuse(process_group: object) -> None:
    if process_group is not None:
        problem = f"process_group is {process_group!r}"
        raise ValueError(
            message("SyncBatchNorm", problem, expected="None: the devices are those of the DataParallel model")
        )
