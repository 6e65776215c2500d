"""Fused optimizer steps for all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.nn.utils.gradients import CHUNK
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import OPS, F, assign, cast, is_tensor

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Lists = Sequence[Sequence[Any]]


def _any_rate(step: Callable[..., None]) -> Callable[..., None]:
    """Let a step take the learning rate as a device tensor: it scales the update of a step of rate 1, without being read."""

    @wraps(step)
    def run(params: Sequence[Tensor], *lists: Any, **options: Any) -> None:
        rate = options["lr"]
        if not is_tensor(rate):
            step(params, *lists, **options)
            return
        ends = OPS["copies"].call(list(params))
        step(ends, *lists, **{**options, "lr": 1.0})
        for p, end in zip(params, ends, strict=True):
            moved = F["lerp"](p, end, cast(F["reshape"](rate, ()), p.dtype))
            assign(p, F["where"](F["equal"](p, end), p, moved))  # an unchanged infinity has the difference NaN

    return run


def _groups_of_dtypes(*lists: Sequence[Any]) -> Iterator[list[list[Any]]]:
    """Split the lists into groups with equal dtypes that fit in a launch."""
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in zip(*lists, strict=True):
        groups.setdefault(tuple(x.dtype for x in row), []).append(row)
    for rows in groups.values():
        for i in range(0, len(rows), CHUNK):
            yield [list(column) for column in zip(*rows[i : i + CHUNK], strict=True)]


def scaled(xs: Sequence[Tensor], factor: Tensor) -> list[Any]:
    """Return new tensors, multiplied by a 0-d tensor."""
    return list(OPS["scale_all"].call([*xs, factor]))


def _gradients(grads: Sequence[Tensor], options: dict[str, Any]) -> Sequence[Any]:
    """Return the gradients for a step. Scaled ones are first divided by the scale, in place, as in PyTorch."""
    if options.get("grad_scale") is not None:
        inverse = F["reciprocal"](options["grad_scale"])
        dispatch.apply_into(OPS["scale_all"], (*grads, inverse), (), tuple(grads))
    if options["maximize"]:
        return scaled(grads, F["full"]((), -1, dtypes.float32, device=grads[0].device))
    return grads


def _unless_infinite(steps: Sequence[Tensor], options: dict[str, Any]) -> Sequence[Any]:
    """Return the numbers of the steps; 0, which skips the update, if a gradient was infinite or NaN."""
    found = options.get("found_inf")
    return steps if found is None else scaled(steps, 1.0 - F["reshape"](found, ()))


# --- Adam -----------------------------------------------------------------------------------------------------------

_MAXIMA = 4
"""Index of the list of maximum second moments."""


def _adam(decoupled: bool, lists: Lists, options: dict[str, Any]) -> None:
    """Update parameters and moments in place. The caller has incremented the step counts."""
    numbers = [options[n] for n in ("lr", "beta1", "beta2", "eps", "weight_decay")]
    amsgrad = bool(options["amsgrad"])
    for params, grads, *states, steps in _groups_of_dtypes(
        *(x for i, x in enumerate(lists) if amsgrad or i != _MAXIMA)
    ):
        kept = [x for state in states for x in state]
        inputs = (*params, *_gradients(grads, options), *kept, *_unless_infinite(steps, options), *numbers)
        dispatch.apply_into(OPS["adam_step"], inputs, (len(params), decoupled, amsgrad, True), (*params, *kept))


@aten("_fused_adamw_", "_fused_adamw_.tensor_lr")
@_any_rate
def adamw(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    maxima: Sequence[Tensor],
    steps: Sequence[Tensor],
    **options: Any,
) -> None:
    _adam(True, (params, grads, averages, squares, maxima, steps), options)


@aten("_fused_adam_", "_fused_adam_.tensor_lr")
@_any_rate
def adam(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    maxima: Any,
    steps: Sequence[Tensor],
    **options: Any,
) -> None:
    _adam(False, (params, grads, averages, squares, maxima, steps), options)


# --- gradient descent and Adagrad -----------------------------------------------------------------------------------


@aten("_fused_sgd_", "_fused_sgd_.tensor_lr")
@_any_rate
def sgd(params: Sequence[Tensor], grads: Sequence[Tensor], buffers: Sequence[Tensor], **options: Any) -> None:
    """Update in place; in the first step, uninitialized momentum buffers are set to the gradient."""
    momentum = options["momentum"]
    begins = momentum and options["is_first_step"]
    numbers = [options["lr"], momentum, 0.0 if begins else options["dampening"], options["weight_decay"]]
    for ps, gs, *kept in _groups_of_dtypes(params, grads, *([buffers] if momentum else [])):
        moved = kept[0] if kept else []
        for buffer in moved if begins else ():
            assign(buffer, 0)
        # Any step number except 0, which skips the update, and 1, which disables dampening.
        step, counted = 2, options.get("found_inf") is not None
        if counted:
            step = (1.0 - F["reshape"](options["found_inf"], ())) * 2.0
        inputs = (*ps, *_gradients(gs, options), *moved, step, *numbers)
        flags = (bool(momentum), bool(options["nesterov"]), counted)
        dispatch.apply_into(OPS["sgd_step"], inputs, (len(ps), *flags), (*ps, *moved))


@aten("_fused_adagrad_", "_fused_adagrad_.tensor_lr")
@_any_rate
def adagrad(
    params: Sequence[Tensor], grads: Sequence[Tensor], sums: Sequence[Tensor], steps: Sequence[Tensor], **options: Any
) -> None:
    numbers = [options[n] for n in ("lr", "lr_decay", "weight_decay", "eps")]
    for ps, gs, totals, counts in _groups_of_dtypes(params, grads, sums, steps):
        inputs = (*ps, *_gradients(gs, options), *totals, *_unless_infinite(counts, options), *numbers)
        dispatch.apply_into(OPS["adagrad_step"], inputs, (len(ps), True), (*ps, *totals))
