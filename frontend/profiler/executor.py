"""The executor of a profiled thread: times the calls that it forwards, and locates them in the program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.forwarding import ForwardingExecutor
from polyhal.hal.system.checks.scoped import ScopedExecutor

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.compile.ir.graph import Graph
    from polyhal.hal.compile.scheduler.partitions import Partition
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.hal.ops.tensor_like import Numeric
    from polyhal.profiler.session import ProfileSession

_now = time.perf_counter_ns


class ProfilingExecutor(ScopedExecutor):
    """Times ops, copies, fills, transfers and reads. Captured steps run as they are; `run` is their timer."""

    __slots__ = ("_is_removed", "_session", "_timer")

    def __init__(
        self, base: dispatch.Executor, session: ProfileSession, timer: dispatch.PartitionTimer | None = None
    ) -> None:
        """`timer` is the one that this executor replaces."""
        super().__init__(base)
        self._session = session
        self._timer = timer
        self._is_removed = False

    def remove(self) -> None:
        """Take this executor out of the thread's, outermost or not."""
        self._is_removed = True
        thread = dispatch.thread
        if thread.executor is self:
            thread.executor = self.base
        else:
            above: Any = thread.executor
            while isinstance(above, ForwardingExecutor) and above.base is not self:
                above = above.base
            if isinstance(above, ForwardingExecutor):
                above.base = self.base
        timer: Any = thread.timer
        while isinstance(timer, ProfilingExecutor) and timer._is_removed:
            timer = timer._timer
        thread.timer = timer

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        session = self._session
        before = session.launched(_device_of(inputs) or device)
        begin = _now()
        result = self.base.apply(op, inputs, params, device)
        end = _now()
        outs = result if isinstance(result, tuple) else (result,)
        session.called(op, inputs, params, outs, begin, end, before, self.location())
        return result

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[dispatch.Array, ...]) -> None:
        session = self._session
        before = session.launched(outs[0].device)
        begin = _now()
        self.base.apply_into(op, inputs, params, outs)
        session.called(op, inputs, params, outs, begin, _now(), before, self.location())

    def overwrite(self, target: dispatch.Array, value: Numeric) -> None:
        session = self._session
        before = session.launched(target.device)
        begin = _now()
        self.base.overwrite(target, value)
        copied = hasattr(value, "ref")
        inputs = (value,) if copied else ()
        session.called("copy" if copied else "fill", inputs, (), (target,), begin, _now(), before, self.location())

    def transfer(self, x: dispatch.Array, device: Device, non_blocking: bool = False) -> Any:
        session = self._session
        before = session.launched(device)
        begin = _now()
        result = self.base.transfer(x, device, non_blocking)
        session.called("transfer", (x,), (), (result,), begin, _now(), before, self.location())
        return result

    def read(self, x: dispatch.Array) -> np.ndarray:
        """Read, with the time until earlier work is complete counted separately."""
        begin = _now()
        x.device.synchronize()
        ready = _now()
        result = self.base.read(x)
        self._session.read(x.device, result.nbytes, begin, ready, _now())
        return result

    def read_async(self, x: dispatch.Array) -> Future[np.ndarray]:
        begin = _now()
        result = self.base.read_async(x)
        self._session.read(x.device, x.ref.spec.nbytes, begin, begin, _now())
        return result

    def run(self, partitions: Sequence[Partition], graph: Graph) -> None:
        """Run a captured step as it is, part by part. `dispatch.thread.timer` calls it."""
        session = self._session
        location = self.location()
        for partition in partitions:
            before = session.launched(partition.device)
            begin = _now()
            partition.run()
            session.replayed(partition, graph, begin, _now(), before, location)


def _device_of(inputs: Inputs) -> Device | None:
    """Return the device of the first operand that has one."""
    for x in inputs:
        device = getattr(x, "device", None)
        if device is not None and hasattr(x, "ref"):
            return device  # type: ignore[no-any-return]
    return None


__all__ = ["ProfilingExecutor"]
