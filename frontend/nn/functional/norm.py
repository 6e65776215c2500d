"""Normalisation."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.autograd import no_grad
from polyhal.hal.dtypes import finfo
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_layer_norm, _rms_norm, _batch_norm = FUNCTIONS["layer_norm"], FUNCTIONS["rms_norm"], FUNCTIONS["batch_norm"]
_group_norm, _vector_norm = FUNCTIONS["group_norm"], FUNCTIONS["vector_norm"]


def _check_trailing(op: str, x: Tensor, normalized_shape: tuple[int, ...]) -> int:
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


def layer_norm(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance over the last axes, of `normalized_shape`, then scale and shift.

    Source: arXiv:1607.06450.
    """
    out: Tensor = _layer_norm(x, weight, bias, _check_trailing("layer_norm", x, normalized_shape), eps)[0]
    return out


def rms_norm(
    x: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Unit root mean square over the last axes, then scale; `eps` defaults to the dtype's. Source: arXiv:1910.07467."""
    epsilon = finfo(x.dtype).eps if eps is None else eps
    out: Tensor = _rms_norm(x, weight, _check_trailing("rms_norm", x, normalized_shape), epsilon)[0]
    return out


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Zero mean and unit variance over each of `num_groups` groups of channels (N, C, ...).

    Source: arXiv:1803.08494.
    """
    if x.ndim < 2 or x.shape[1] % num_groups:
        raise ShapeError(
            message(
                "group_norm",
                f"{num_groups} groups of shape {x.shape}",
                expected="(N, C, ...) with C a multiple of the groups",
            )
        )
    out: Tensor = _group_norm(x, weight, bias, num_groups, eps)[0]
    return out


def batch_norm(
    x: Tensor,
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
    variance unbiased). Evaluation uses the running ones. Raises ShapeError.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError(
                message("batch_norm", "there are no running statistics to use", expected="both, or training=True")
            )
        scale = ops.rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale
        shift = shift if bias is None else shift + bias
        # Statistics are in float32; the result is rounded once to the input's dtype.
        out: Tensor = x * _per_channel(scale, x) + _per_channel(shift, x)
        return out if out.dtype is x.dtype else out.to(x.dtype)
    count = x.size // x.shape[1] if x.ndim >= 2 and x.shape[1] else 0
    if count <= 1:
        raise ShapeError(
            message("batch_norm", f"shape {x.shape} has {count} values per channel", expected="more than 1 in training")
        )
    out, mean, var = _batch_norm(x, weight, bias, eps)
    with no_grad():
        if running_mean is not None:
            _move(running_mean, mean.detach(), momentum)
        if running_var is not None:
            _move(running_var, var.detach() * (count / (count - 1)), momentum)
    return out


def _move(running: Tensor, observed: Tensor, momentum: float | Tensor) -> None:
    """Update an exponential average in place: `running += momentum * (observed - running)`."""
    running.add_(((observed - running) * momentum).to(running.dtype))


def _per_channel(x: Tensor, like: Tensor) -> Tensor:
    return ops.reshape(x, (1, -1, *(1,) * (like.ndim - 2)))


def normalize(x: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Divide `x` by its p-norm along `dim` (one axis or several), or by `eps` if that is larger."""
    result: Tensor = x / ops.maximum(_vector_norm(x, dim, True, float(p)), eps)
    return result
