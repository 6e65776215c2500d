"""Loss scaling for float16: small gradients underflow to zero unless the loss is scaled up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops import OPS
from polyhal.nn.utils import chunks
from polyhal.optim import Optimizer
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_FUSED = OPS["fused_elementwise"]
_ADJUSTMENT = (
    # Values 0 to 8: scale, good steps, flag, growth and backoff factor, growth interval, and the numbers 0.0, 1, 0.
    ("greater", (2, 6), ()),  # 9: a gradient is not finite
    ("add", (1, 7), ()),  # 10: good steps so far
    ("greater_equal", (10, 5), ()),  # 11: the scale grows
    ("multiply", (0, 3), ()),
    ("isfinite", (12,), ()),
    ("logical_and", (11, 13), ()),
    ("where", (14, 12, 0), ()),  # 15: a scale that would overflow does not grow
    ("multiply", (0, 4), ()),
    ("where", (9, 16, 15), ()),  # 17: the new scale
    ("logical_or", (9, 11), ()),
    ("where", (18, 8, 10), ()),  # 19: the new number of good steps
)
"""Steps of the fused op that updates the scale and the number of good steps; see `fused_elementwise`."""


class GradScalerError(PolyhalError, RuntimeError):
    """Methods of a `GradScaler` called in the wrong order."""


class _DeviceState(NamedTuple):
    """State that the device updates: scalar tensors of float32 and int32."""

    scale: Tensor
    good_steps: Tensor
    """Steps since the scale changed last."""


class GradScaler:
    """Multiplies losses by a scale and gradients by its inverse, like PyTorch's.

    A step with an infinite or NaN gradient is skipped, and the scale multiplied by `backoff_factor`; after
    `growth_interval` good steps in a row it is multiplied by `growth_factor`. The scale is kept and updated on the device,
    which also decides whether a step of one of this library's optimizers is skipped, so that the host does not wait. With
    other optimizers `step` waits. Source: Micikevicius et al., arXiv:1710.03740.

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    A device or its name may come first, as in PyTorch: a no-op, because gradients have a device. Raises ValueError for invalid
    factors and intervals, and TypeError for too many arguments by position.
    """

    def __init__(
        self,
        *settings: Any,
        device: Device | str | None = None,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        given: list[Any] = [init_scale, growth_factor, backoff_factor, growth_interval, enabled]
        numbers = settings[1:] if settings and isinstance(settings[0], (Device, str)) else settings
        if len(numbers) > len(given):
            raise TypeError(message("GradScaler", f"got {len(settings)} arguments by position", expected="at most 6"))
        given[: len(numbers)] = numbers
        init_scale, growth_factor, backoff_factor, growth_interval, enabled = given
        if growth_factor <= 1 or not 0 < backoff_factor < 1 or growth_interval < 1 or init_scale <= 0:
            problem = (
                f"init_scale {init_scale}, factors {growth_factor} and {backoff_factor}, interval {growth_interval}"
            )
            raise ValueError(
                message("GradScaler", problem, expected="growth above 1, backoff in (0, 1), the rest above 0")
            )
        self._enabled = enabled
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._start = (float(init_scale), 0)
        self._state: _DeviceState | None = None
        self._flags: dict[Optimizer, list[Tensor]] = {}
        self._stepped: set[Optimizer] = set()

    def is_enabled(self) -> bool:
        """Return whether the scaler does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """Return the scale. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._start[0] if self._state is None else float(self._state.scale.item())

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or an iterable of tensors, by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            # Cast, because a tensor would promote the outputs where a Python number would not.
            return outputs * self._on(outputs).cast(dtype=outputs.dtype)
        if isinstance(outputs, Iterable):
            scaled = (self.scale(x) for x in outputs)
            return type(outputs)(*scaled) if hasattr(outputs, "_fields") else type(outputs)(scaled)  # type: ignore[call-arg]
        raise TypeError(message("GradScaler.scale", f"got a {type(outputs).__name__}", expected="tensors"))

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, so that they can be clipped before `step`.

        Raises GradScalerError if `unscale_` or `step` was called for the optimizer since the last `update`.
        """
        if not self._enabled:
            return
        if optimizer in self._flags or optimizer in self._stepped:
            problem = "the gradients are unscaled already"
            raise GradScalerError(message("GradScaler.unscale_", problem, fix="call update() after each step"))
        scale = self._existing_state("unscale_").scale
        self._flags[optimizer] = []
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.on_rollback(lambda: self._forget)
        gradients: dict[Any, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    gradients.setdefault(p.grad.device, []).append(p.grad.detach())
        with no_grad():
            for device, grads in gradients.items():
                inverse = ops.reciprocal(scale).to(device)
                for chunk in chunks(grads):
                    flag = ops.full((), 0.0, device=device)
                    dispatch.apply_into(OPS["unscale_all"], (*chunk, inverse), (), (*chunk, flag))
                    self._flags[optimizer].append(flag)

    def step(self, optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        """Call `optimizer.step()` unless a gradient is infinite or NaN. Unscales the gradients first if need be.

        Raises GradScalerError if called twice without `update`, and for a closure, which would compute new gradients.
        """
        if not self._enabled:
            return optimizer.step(closure)
        if closure is not None:
            raise GradScalerError(message("GradScaler.step", "got a closure", expected="gradients that exist"))
        if optimizer in self._stepped:
            raise GradScalerError(message("GradScaler.step", "called twice", fix="call update() after each step"))
        if optimizer not in self._flags:
            self.unscale_(optimizer)
        self._stepped.add(optimizer)
        if not self._flags[optimizer]:
            problem = "no parameter of the optimizer has a gradient"
            raise GradScalerError(message("GradScaler.step", problem, fix="call backward() on a scaled loss first"))
        flags = self._flags[optimizer]
        if getattr(optimizer, "skippable", False):
            return optimizer.step(skip=_any(flags))
        return None if any(float(flag.item()) for flag in flags) else optimizer.step()

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adjust the scale after the steps of an iteration, or set it. Does not wait for the device.

        Raises GradScalerError if nothing was unscaled since the last update and no scale is given.
        """
        if not self._enabled:
            return
        state = self._existing_state("update")
        with no_grad():
            if new_scale is not None:
                state.scale.fill_(float(new_scale))
            else:
                self._adjust(state)
        self._forget()

    def _forget(self) -> None:
        self._flags.clear()
        self._stepped.clear()

    def _adjust(self, state: _DeviceState) -> None:
        flags = [flag for of_optimizer in self._flags.values() for flag in of_optimizer]
        if not flags:
            problem = "no gradients were unscaled since the last update"
            raise GradScalerError(message("GradScaler.update", problem, fix="call step(optimizer) first"))
        settings = (self._growth_factor, self._backoff_factor, self._growth_interval)
        inputs = (*state, _any(flags).to(state.scale.device), *settings, 0.0, 1, 0)
        # In place, so that the replays of a captured step update it too.
        dispatch.apply_into(_FUSED, inputs, (_ADJUSTMENT, (17, 19), None), state)

    def _on(self, outputs: Tensor) -> Tensor:
        """Return the scale on the device of `outputs`; the first call decides where it is stored."""
        if self._state is None:
            scale, steps = self._start
            with dispatch.executing(dispatch.EAGER):  # it outlives a captured step
                self._state = _DeviceState(
                    ops.full((), scale, device=outputs.device), ops.full((), steps, "int32", device=outputs.device)
                )
        return self._state.scale.to(outputs.device)

    def _existing_state(self, method: str) -> _DeviceState:
        if self._state is None:
            problem = "nothing was scaled before"
            raise GradScalerError(message(f"GradScaler.{method}", problem, fix="call scale(loss).backward() first"))
        return self._state

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the settings and the number of good steps, under PyTorch's names; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._start[1] if self._state is None else int(self._state.good_steps.item()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a saved state. Raises GradScalerError for an empty one, which a disabled scaler saves."""
        if not self._enabled:
            return
        if not state_dict:
            raise GradScalerError(
                message("GradScaler.load_state_dict", "the state is empty", expected="a scaler's state")
            )
        self._growth_factor = float(state_dict["growth_factor"])
        self._backoff_factor = float(state_dict["backoff_factor"])
        self._growth_interval = int(state_dict["growth_interval"])
        self._start = (float(state_dict["scale"]), int(state_dict["_growth_tracker"]))
        self._state = None


def _any(flags: Sequence[Tensor]) -> Tensor:
    """1 if any flag is 1, else 0."""
    device = flags[0].device
    return flags[0] if len(flags) == 1 else ops.max(ops.stack([flag.to(device) for flag in flags]))
