"""Operands of the ops of a step: live numbers, and copies from the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.recorder import StepRecorder
from polyhal.hal.compile.planning.decompose import composed
from polyhal.hal.core.dispatch import Array, ForwardingExecutor
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.tensor import wrap
from polyhal.torch import tensors
from polyhal.torch.steps.host import Slot
from polyhal.torch.steps.numbers import LiveNumber, true_value
from polyhal.torch.steps.refusals import refusal
from polyhal.torch.steps.watch import StepWatch, Upload

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import Inputs, ParamValues

_FULL = OPS["full"]


class LiveOperands(ForwardingExecutor):
    """Records live numbers in place of their stand-ins, and copies from the CPU as inputs of the graph."""

    __slots__ = ("_watch",)

    def __init__(self, base: StepRecorder, watch: StepWatch) -> None:
        super().__init__(base)
        self._watch = watch
        base.take_constant = self._take_upload
        base.take_read = watch.take_read

    def _operand(self, x: Any) -> Any:
        x = self._watch.live(x)
        if self._watch.is_left:
            return true_value(x)
        if isinstance(x, LiveNumber):
            self._require_early()
            return x.scalar
        return x

    def _require_early(self) -> None:
        """Raise RefusedError for a use of something that the host computes after the work of the device."""
        if self._watch.program.is_waiting:
            problem = "values of tensors are read, and a scheduler is advanced in the middle of the step"
            raise refusal(problem, fix="call scheduler.step() last")

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        if op is _FULL and not self._watch.is_left:
            shape, value, dtype = params
            filling = self._operand(value)
            if filling is not value and dtype.is_floating_point:
                ones = self.base.apply(op, inputs, (shape, 1, dtype), device)
                return self.base.apply(OPS["multiply"], (ones, filling), ())
        numbers = self._live_params(op, params)
        if numbers:
            return composed(op, inputs, params, numbers)
        return self.base.apply(op, tuple(map(self._operand, inputs)), params, device)

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Array, ...]) -> None:
        numbers = self._live_params(op, params)
        if numbers:
            results = composed(op, inputs, params, numbers)
            for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
                self.base.overwrite(out, result)
            return
        self.base.apply_into(op, tuple(map(self._operand, inputs)), params, outs)

    def _live_params(self, op: OpDef, params: ParamValues) -> dict[str, LiveNumber]:
        """Return parameters that are live numbers, which are operands in the decomposition of the op, if it has one."""
        if op.decompose is None or not self._watch.operands:
            return {}
        found = {name: self._watch.live(x) for name, x in op.bind(params).items() if isinstance(x, float)}
        return {name: x for name, x in found.items() if isinstance(x, LiveNumber)}

    def overwrite(self, target: Array, value: Any) -> None:
        self.base.overwrite(target, self._operand(value))

    def _take_upload(self, x: Array) -> bool:
        """Make an argument of an array that is a copy of a tensor on the CPU, in place of a constant."""
        watch = self._watch
        for i, source in enumerate(watch.sources):
            if tuple(source.shape) == x.ref.shape and tensors.DTYPES.get(source.dtype) is x.ref.dtype:
                self._require_early()
                place = watch.place(source)
                del watch.sources[i]
                if isinstance(place, Slot) and watch.mid_step.work.includes(place):
                    watch.mid_step.upload(x, place)
                    return True
                watch.uploads.append(wrap(x.device, x.buffer, x.ref))
                watch.recording.make_argument(x)
                watch.inputs.append(Upload(place))
                return True
        return False
