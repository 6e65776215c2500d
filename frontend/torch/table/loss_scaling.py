"""Ops of `torch.amp.GradScaler` on gradients and the scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.nn.utils import chunks
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import OPS, F, cast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("_amp_foreach_non_finite_check_and_unscale_")
def unscale(grads: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients in place, and set `found_inf` to 1 if one of them is infinite or NaN."""
    found, inverse = F["reshape"](found_inf, ()), F["reshape"](inv_scale, ())
    for chunk in chunks(grads):
        flag = F["full"]((), 0.0, dtypes.float32, device=inverse.device)
        dispatch.apply_into(OPS["unscale_all"], (*chunk, inverse), (), (*chunk, flag))
        found = F["maximum"](found, flag)
    dispatch.thread.executor.overwrite(found_inf, F["reshape"](found, found_inf.shape))


@aten("_amp_update_scale_")
def update_scale(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth: float, backoff: float, interval: int
) -> Any:
    """Return the new scale. `tracker` counts the steps since its last change."""
    overflowed, good = found_inf > 0, tracker + 1
    grows = good >= interval
    larger = scale * growth
    larger = F["where"](F["isfinite"](larger), larger, scale)
    kept = F["where"](F["logical_or"](overflowed, grows), 0, good)
    dispatch.thread.executor.overwrite(tracker, cast(kept, tracker.dtype))
    return F["where"](overflowed, scale * backoff, F["where"](grows, larger, scale))
