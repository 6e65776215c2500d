"""Whole steps of optimizers, in one launch for all parameters."""

from __future__ import annotations

from typing import Any

from polyhal.hal import dispatch
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import OPS, UnsupportedArgumentsError


def _adam(
    decoupled: bool, params: Any, grads: Any, averages: Any, squares: Any, steps: Any, options: dict[str, Any]
) -> None:
    """Write new parameters and moments over the old ones. The steps have been counted already."""
    if options["amsgrad"] or options["maximize"] or options.get("grad_scale") is not None:
        raise UnsupportedArgumentsError
    if options.get("found_inf") is not None:
        raise UnsupportedArgumentsError
    numbers = [options[n] for n in ("lr", "beta1", "beta2", "eps", "weight_decay")]
    inputs = (*params, *grads, *averages, *squares, *numbers, steps[0])
    dispatch.apply_into(OPS["adam_step"], inputs, (len(params), decoupled, True), (*params, *averages, *squares))


@aten("_fused_adamw_", "_fused_adamw_.tensor_lr")
def adamw(params: Any, grads: Any, averages: Any, squares: Any, maxima: Any, steps: Any, **options: Any) -> None:
    _adam(True, params, grads, averages, squares, steps, options)


@aten("_fused_adam_", "_fused_adam_.tensor_lr")
def adam(params: Any, grads: Any, averages: Any, squares: Any, maxima: Any, steps: Any, **options: Any) -> None:
    _adam(False, params, grads, averages, squares, steps, options)
