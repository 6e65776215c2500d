"""The eager executor: from an op call to a launch, with one dictionary lookup in between.

Whatever is costly (promotion, shape rules, choosing and building kernels) happens when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.backend_failures import note_backend_failure
from polyhal.hal.core.dispatch.collectives import run_collective
from polyhal.hal.core.dispatch.complex_calls import apply_complex, is_complex_call
from polyhal.hal.core.dispatch.inplace import write_into
from polyhal.hal.core.dispatch.operands import NUMBERS, admitted, arg, freeze, mismatch
from polyhal.hal.core.dispatch.plans import make_plan
from polyhal.hal.core.execution.executor import Array, RandomSource, set_default_executor, thread
from polyhal.hal.core.execution.frontend import frontend
from polyhal.hal.core.memory.overlap import share_elements
from polyhal.hal.core.settings.state import settings
from polyhal.hal.core.transfers.copied import copied
from polyhal.hal.errors import OutOfMemoryError, out_of_memory_in
from polyhal.hal.layout import Ref, contiguous

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues


class EagerExecutor:
    """Runs every op when it is called. `Executor` describes the methods."""

    __slots__ = ()

    recorder = None
    tape_hooks = None
    fuses_later = False
    replays_graphs = True

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        key: list[Any] = [op, params, settings.key]
        track = False
        for x in inputs:
            kind = type(x)
            if kind in NUMBERS or x is None:
                key.append(kind)
                continue
            try:
                key.append(x.ref.spec)
            except AttributeError:
                return self._convert(op, inputs, params, device)
            if device is None:
                device = x.device
            elif x.device is not device:
                raise mismatch(op, inputs)
            if x.requires_grad:
                track = True
        try:
            plan = device.plans.get(tuple(key))
        except (TypeError, AttributeError):  # a list among the parameters; no device, or its name
            plan = None
        if plan is None:
            if not hasattr(device, "plans"):
                return self._convert(op, inputs, params, device)
            if is_complex_call(inputs, params):
                return apply_complex(self, op, inputs, params, device)
            params = freeze(params)
            plan = make_plan(device, op, inputs, params)
        delta = plan.view
        if delta is not None:
            x = inputs[0]
            ref = x.ref
            outs: Any = frontend.wrap(device, x.buffer, Ref(ref.handle, plan.spec, ref.offset + delta))
            if thread.grad_enabled:
                if track:
                    frontend.record(op, inputs, params, (outs,))
                else:
                    frontend.note_view(x, outs)
            return outs
        single = plan.single
        if single is not None:
            try:
                buffer = device.pool.take(plan.bucket)
            except OutOfMemoryError as error:
                raise out_of_memory_in(op.name, error) from error
            out = Ref(buffer.handle, plan.spec, 0)
            try:
                if len(inputs) == 2:
                    a, b = inputs
                    single(a if type(a) in NUMBERS else a.ref, b if type(b) in NUMBERS else b.ref, out)
                elif len(inputs) == 1:
                    single(inputs[0].ref, out)
                else:
                    single(*[arg(x) for x in inputs], out)
            except MemoryError as error:
                raise out_of_memory_in(op.name, error) from error
            except Exception as error:
                note_backend_failure(error, op.name, device)
                raise
            outs = frontend.wrap(device, buffer, out)
            if track and thread.grad_enabled:
                frontend.record(op, inputs, params, (outs,))
            return outs
        try:
            buffers = [device.pool.take(size) for size in plan.buckets]
            refs = [Ref(b.handle, s, 0) for b, s in zip(buffers, plan.outputs, strict=True)]
            plan.run([arg(x) for x in inputs], refs)
        except MemoryError as error:
            raise out_of_memory_in(op.name, error) from error
        except Exception as error:
            note_backend_failure(error, op.name, device)
            raise
        results = tuple(frontend.wrap(device, b, r) for b, r in zip(buffers, refs, strict=True))
        if track and thread.grad_enabled:
            frontend.record(op, inputs, params, results)
        return results if plan.tuple_result else results[0]

    def _convert(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None) -> Any:
        """The slow way in: NumPy arrays, NumPy numbers and nested lists become arrays, too."""
        converted, target = admitted(op, inputs, device)
        if is_complex_call(converted, params):
            return apply_complex(self, op, converted, params, target)
        return self.apply(op, converted, params, target)

    apply_into = staticmethod(write_into)

    def overwrite(self, target: Array, value: Any) -> None:
        if target.ref.size:
            if hasattr(value, "ref"):
                _write(value, target)
            else:
                target.device.backend.fill(value, target.ref)
        target.buffer.version += 1

    def transfer(self, x: Array, device: Device, non_blocking: bool = False) -> Any:
        return frontend.wrap(device, *copied(x.device, x.ref, device, non_blocking))

    def communicate(
        self, collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        return run_collective(collective, communicator, dtype, sources)

    def alias(self, x: Array) -> Any:
        return frontend.wrap(x.device, x.buffer, x.ref)

    def read(self, x: Array) -> np.ndarray:
        return x.device.download(x.ref)

    def read_async(self, x: Array) -> Future[np.ndarray]:
        return x.device.download_async(x.ref)

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        return source.advance(count)

    def on_replay(self, action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        action()

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return function(*args, **kwargs)


def _write(source: Array, target: Array) -> None:
    """Copy the elements of `source` to the memory of `target`; all are read before the first is written."""
    device, ref, out = target.device, source.ref, target.ref
    if source.buffer is not target.buffer or not share_elements(ref, out):
        device.backend.copy(ref, out)
    elif ref.offset != out.offset or ref.spec != out.spec:
        buffer, copied = device.reserve(contiguous(ref.dtype, ref.shape))
        device.backend.copy(ref, copied)
        device.backend.copy(copied, out)
        del buffer


EAGER = EagerExecutor()
set_default_executor(EAGER)
