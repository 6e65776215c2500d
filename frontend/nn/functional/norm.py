"""Normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.hal.dtypes import finfo
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level, top_level_as
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_layer_norm, _rms_norm, _batch_norm = FUNCTIONS["layer_norm"], FUNCTIONS["rms_norm"], FUNCTIONS["batch_norm"]
_group_norm, _vector_norm = FUNCTIONS["group_norm"], FUNCTIONS["vector_norm"]


def _check_trailing(op: str, x: Tensor, shape: Sequence[int]) -> int:
    normalized_shape = tuple(shape)
    n = len(normalized_shape)
    if not n or x.shape[x.ndim - n :] != normalized_shape:
        raise ShapeError(
            message(
                op,
                f"the last axes of shape {x.shape} are normalised",
                expected=f"(..., {', '.join(map(str, normalized_shape))})",
            )
        )
    return n


@top_level_as(
    lambda f: (
        lambda input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True: f(
            input, normalized_shape, weight, bias, eps
        )
    )
)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance over the last axes, of `normalized_shape`, then scale and shift.

    Source: arXiv:1607.06450.

    >>> polyhal.nn.functional.layer_norm(polyhal.ones(2, 3), (3,)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    out: Tensor = _layer_norm(input, weight, bias, _check_trailing("layer_norm", input, normalized_shape), eps)[0]
    return out


@top_level
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Unit root mean square over the last axes, then scale; `eps` defaults to the dtype's. Source: arXiv:1910.07467."""
    epsilon = finfo(input.dtype).eps if eps is None else eps
    out: Tensor = _rms_norm(input, weight, _check_trailing("rms_norm", input, normalized_shape), epsilon)[0]
    return out


@top_level_as(
    lambda f: (
        lambda input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True: f(
            input, num_groups, weight, bias, eps
        )
    )
)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Zero mean and unit variance over each of `num_groups` groups of channels (N, C, ...).

    Source: arXiv:1803.08494. Raises ShapeError if the groups do not divide the channels.
    """
    if input.ndim < 2 or input.shape[1] % num_groups:
        raise ShapeError(
            message(
                "group_norm",
                f"{num_groups} groups of shape {input.shape}",
                expected="(N, C, ...) with C a multiple of the groups",
            )
        )
    out: Tensor = _group_norm(input, weight, bias, num_groups, eps)[0]
    return out


@top_level_as(
    lambda f: (
        lambda input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True: f(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    )
)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance per channel (axis 1), then scale and shift. Source: arXiv:1502.03167.

    Training uses the batch's statistics, and moves the running ones, if any, towards them in place by `momentum` (the
    variance unbiased). Evaluation uses the running ones. Raises ShapeError, and ValueError if there are no running
    statistics to use.
    """
    if input.ndim < 2:
        raise ShapeError(message("batch_norm", f"got shape {input.shape}", expected="(N, C, ...)"))
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError(
                message("batch_norm", "there are no running statistics to use", expected="both, or training=True")
            )
        return _normalized_by(input, running_mean, running_var, weight, bias, eps)
    if not input.size:
        return _normalized_by(
            input, *(ops.full((input.shape[1],), 1.0, input.dtype, device=input.device),) * 2, weight, bias, eps
        )
    count = input.size // input.shape[1]
    if count == 1:
        raise ShapeError(
            message("batch_norm", f"shape {input.shape} has 1 values per channel", expected="more than 1 in training")
        )
    out: Tensor
    out, mean, var = _batch_norm(input, weight, bias, eps)
    with no_grad():
        if running_mean is not None:
            move_average(running_mean, mean.detach(), momentum)
        if running_var is not None:
            move_average(running_var, var.detach(), momentum, count / (count - 1))
    return out


@top_level_as(
    lambda f: (
        lambda input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True: f(
            input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
        )
    )
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance over each channel of each sample (N, C, ...), then scale and shift per channel.

    With `use_input_stats` the running statistics, if any, move towards the means over the samples by `momentum`; without,
    they are used instead. Source: Ulyanov et al., arXiv:1607.08022. Raises ShapeError, and ValueError if there are
    no running statistics to use.
    """
    if input.ndim < 3:
        raise ShapeError(message("instance_norm", f"got shape {input.shape}", expected="(N, C, ...)"))
    if not use_input_stats:
        if running_mean is None or running_var is None:
            problem = "there are no running statistics to use"
            raise ValueError(message("instance_norm", problem, expected="both, or use_input_stats=True"))
        return _normalized_by(input, running_mean, running_var, weight, bias, eps)
    count = math.prod(input.shape[2:])
    if count <= 1:
        problem = f"shape {input.shape} has {count} values per channel"
        raise ShapeError(message("instance_norm", problem, expected="more than 1"))
    out, mean, reciprocal = _group_norm(input, weight, bias, input.shape[1], eps)
    with no_grad():
        if running_mean is not None:
            move_average(running_mean, ops.mean(mean.detach(), 0), momentum)
        if running_var is not None:
            var = 1.0 / ops.square(reciprocal.detach()) - eps
            move_average(running_var, ops.mean(var, 0), momentum, count / (count - 1))
    result: Tensor = out
    return result


def _normalized_by(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Normalise channels by given statistics."""
    scale = ops.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    shift = shift if bias is None else shift + bias
    # Statistics are in float32; the result is rounded once to the input's dtype.
    out: Tensor = x * per_channel(scale, x) + per_channel(shift, x)
    return out if out.dtype is x.dtype else out.to(x.dtype)


def move_average(running: Tensor, observed: Tensor, momentum: float | Tensor, factor: float = 1.0) -> None:
    """Update an exponential average in place: `running = (1 - momentum) * running + momentum * factor * observed`.

    The difference of both is not used: it is NaN for an infinite average and an infinite value. Averages with different
    factors have the same formula, so that captured steps update them in one launch.
    """
    running.mul_(1 - momentum).add_((observed * (momentum * factor)).to(running.dtype))


def per_channel(x: Tensor, like: Tensor) -> Tensor:
    """Return a value per channel (C,), reshaped to broadcast against `like` (N, C, ...)."""
    return ops.reshape(x, (1, -1, *(1,) * (like.ndim - 2)))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divide by `(k + alpha * m)**beta`, where m is the mean square over `size` neighbouring channels (N, C, ...).

    Source: Krizhevsky et al., NIPS 2012, 3.3. Raises ShapeError for fewer than three axes, and UnsupportedDTypeError
    for integers.
    """
    if input.ndim < 3:
        raise ShapeError(message("local_response_norm", f"got shape {input.shape}", expected="(N, C, ...)"))
    if not input.dtype.is_floating_point:
        raise UnsupportedDTypeError(message("local_response_norm", f"got {input.dtype}", expected="floats"))
    channels = input.shape[1]
    around = ((0, 0), (size // 2, (size - 1) // 2), *((0, 0),) * (input.ndim - 2))
    squares = ops.pad(ops.square(input), around)
    total = squares[:, :channels]
    for i in range(1, size):
        total = total + squares[:, i : i + channels]
    out: Tensor = input / ops.pow(total * (alpha / size) + k, beta)
    return out


def normalize(x: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Divide `x` by its p-norm along `dim` (one axis or several), or by `eps` if that is larger."""
    result: Tensor = x / ops.maximum(_vector_norm(x, dim, True, float(p)), eps)
    return result
