"""Gradient clipping, and parameters as one vector."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from polyhal import functions as ops
from polyhal.hal.collectives.collective import Collective, Kind, Reduction, divided
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import NonFiniteError, ShapeError, message
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.system.communicators.open import shared_communicator
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor
from polyhal.tensor.complex_tensor import real_parts_of

_sum_of_squares = FUNCTIONS["sum_of_squares"]


class NonFiniteNormError(NonFiniteError, RuntimeError):
    """The norm of gradients is NaN or infinite; also a RuntimeError, as in PyTorch."""


CHUNK = 24
"""How many tensors one launch of a multi-tensor op takes."""


def chunks(tensors: Sequence[Tensor]) -> Iterable[Sequence[Tensor]]:
    """Split `tensors` into groups for one launch of a multi-tensor op each."""
    return (tensors[i : i + CHUNK] for i in range(0, len(tensors), CHUNK))


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    several = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [grad.detach() for grad in (p.grad for p in several) if grad is not None]


def _by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors of each device, the first tensor's device first."""
    groups: dict[Device, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault(t.device, []).append(t)
    return list(groups.values())


def total_norm(tensors: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """Return the total norm over all elements of all tensors, as a float32 tensor on the first one's device."""
    return _norms(tensors, norm_type)[tensors[0].device]


def _norms(tensors: Sequence[Tensor], norm_type: float) -> dict[Device, Tensor]:
    """Return the total norm over all elements of all tensors, on each of their devices."""
    several = _by_device(tensors)
    parts = [_part_of_norm(group, norm_type) for group in several]
    if len(several) > 1:
        parts = _combined(parts, Reduction.MAX if norm_type == math.inf else Reduction.SUM)
    if norm_type == 2:
        parts = [ops.sqrt(x) for x in parts]
    elif norm_type != math.inf:
        parts = [ops.pow(x, 1 / norm_type) for x in parts]
    return {group[0].device: x for group, x in zip(several, parts, strict=True)}


def _part_of_norm(tensors: Sequence[Tensor], norm_type: float) -> Tensor:
    """Return the largest element of some tensors, or the sum of powers that is a part of a norm."""
    if norm_type == 2:
        return _sum_of_squares(real_parts_of(tensors))  # type: ignore[no-any-return]
    if norm_type == math.inf:
        return ops.max(ops.stack([ops.max(ops.abs(t)).float() for t in tensors]))
    return ops.sum(ops.stack([ops.sum(ops.pow(ops.abs(t).float(), norm_type)) for t in tensors]))


def _combined(xs: Sequence[Tensor], reduction: Reduction) -> list[Tensor]:
    """Return numbers of several devices, reduced, on each of the devices."""
    communicator = shared_communicator([x.device for x in xs])
    collective = Collective(Kind.ALL_REDUCE, divided(1, len(xs)), reduction)
    vectors = tuple(ops.reshape(x, (1,)).detach() for x in xs)
    results = dispatch.thread.executor.communicate(collective, communicator, xs[0].dtype, vectors)
    return [ops.reshape(x, ()) for x in results]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the total norm over all elements of all tensors. `foreach` is accepted: launches are always few.

    `error_if_nonfinite` waits for the device, and raises NonFiniteNormError for an infinite or NaN norm, and CaptureError
    in a captured step.
    """
    several = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norms = _checked_norms("get_total_norm", several, norm_type, error_if_nonfinite)
    return norms[several[0].device] if several else ops.full((), 0.0)


def _checked_norms(
    name: str, tensors: Sequence[Tensor], norm_type: float, error_if_nonfinite: bool
) -> dict[Device, Tensor]:
    if error_if_nonfinite:
        dispatch.require_execution(
            name,
            "error_if_nonfinite waits for the norm, which is only being recorded",
            fix="return the norm from the step and look at it there, or leave bad steps out with amp.GradScaler",
        )
    with no_grad():
        norms = _norms(tensors, norm_type)
    for norm in norms.values() if error_if_nonfinite else ():
        if not math.isfinite(value := float(norm.item())):
            raise NonFiniteNormError(message(name, f"the norm of the gradients is {value}", expected="a finite number"))
    return norms


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their joint norm is at most `max_norm`.

    Returns the norm before, as a tensor, and does not wait for the device. `error_if_nonfinite` does wait, and raises
    NonFiniteNormError for a norm that is infinite or NaN, and CaptureError in a captured step. `foreach` is accepted.
    Source: Pascanu et al., arXiv:1211.5063.

    >>> p = polyhal.tensor([0.0, 0.0], requires_grad=True)
    >>> (p * polyhal.tensor([3.0, 4.0])).sum().backward()
    >>> polyhal.nn.utils.clip_grad_norm_([p], 1.0).item()
    5.0
    """
    grads = _gradients(parameters)
    norms = _checked_norms("clip_grad_norm_", grads, norm_type, error_if_nonfinite)
    _scale_to(grads, max_norm, norms)
    return norms[grads[0].device] if grads else ops.full((), 0.0)


clip_grad_norm = clip_grad_norm_  # PyTorch's older name


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients in place by `max_norm / total_norm` if that is below 1, with a norm of `get_total_norm`."""
    grads = _gradients(parameters)
    norms = {several[0].device: total_norm.to(several[0].device) for several in _by_device(grads)}
    _scale_to(grads, max_norm, norms)


def _scale_to(grads: Sequence[Tensor], max_norm: float, norms: Mapping[Device, Tensor]) -> None:
    """`norms` has the norm on each device of the gradients."""
    with no_grad():
        for several in _by_device(grads):
            factor = ops.minimum(max_norm / (norms[several[0].device] + 1e-6), 1.0)
            for group in chunks(real_parts_of(several)):
                dispatch.apply_into(OPS["scale_all"], (*group, factor), (), tuple(group))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of every gradient to [-clip_value, clip_value] in place. `foreach` is accepted."""
    bound = float(clip_value)
    for grad in real_parts_of(_gradients(parameters)):
        dispatch.apply_into(OPS["clip"], (grad, -bound, bound), (), (grad,))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all elements of all parameters, on the device of the first; gradients flow back through the result."""
    vectors = [ops.reshape(p, (-1,)) for p in parameters]
    return ops.concat([x.to(vectors[0].device) for x in vectors], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy a vector of `parameters_to_vector` back to the parameters. Raises ShapeError if the lengths differ."""
    targets = list(parameters)
    size = sum(p.size for p in targets)
    if vec.shape != (size,):
        raise ShapeError(message("vector_to_parameters", f"a vector of shape {vec.shape}", expected=f"({size},)"))
    start = 0
    with no_grad():
        for p in targets:
            p.copy_(ops.reshape(vec[start : start + p.size], p.shape).to(p.device))
            start += p.size
