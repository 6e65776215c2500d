"""The executor of `vmap`: applies ops to whole batches by their batching rules, or by their decomposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from polyhal.func.batched import Level, batched, is_batched
from polyhal.hal.compile.planning.decompose import composed
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import ForwardingExecutor, executing
from polyhal.hal.core.memory.readback import finished
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.batching import BatchedCall

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.core.dispatch import Array, Executor, RandomSource
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.tensor import Tensor

Randomness = Literal["error", "same", "different"]
_DROPOUT = OPS["dropout"]


class BatchingExecutor(ForwardingExecutor):
    """Executor that wraps another one while `vmap` calls a function."""

    def __init__(self, base: Executor, level: Level, randomness: Randomness) -> None:
        super().__init__(base)
        self.level = level
        self._randomness = randomness

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        if op.family == "random":
            return self._draw(op, inputs, params, device)
        if dispatch.is_complex_call(inputs, params):
            return dispatch.apply_complex(self, op, dispatch.admitted(op, inputs, device)[0], params, device)
        flags = tuple(is_batched(x, self.level) for x in inputs)
        if not any(flags):
            return self.base.apply(op, inputs, params, device)
        inputs, _ = dispatch.admitted(op, inputs, device)
        physical = tuple(x.physical if flag else x for x, flag in zip(inputs, flags, strict=True))
        call = BatchedCall(op, physical, flags, self.level.size, op.bind(params))
        result: Any = NotImplemented
        if op.batching is not None:
            with executing(self.base):
                result = op.batching(call)
        if result is NotImplemented:
            # The decomposition of a view is the same view of a copy.
            decomposes = op.decompose is not None and op.view is None
            return composed(op, inputs, params) if decomposes else self._one_by_one(call)
        return self._wrapped(result)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(batched(r, self.level) for r in result)
        return batched(result, self.level)

    def _one_by_one(self, call: BatchedCall) -> Any:
        """Apply the op to each element of the batch."""
        with executing(self.base):
            results = [
                call.apply(*(x[i] if flag else x for x, flag in zip(call.inputs, call.batched, strict=True)))
                for i in range(call.size)
            ]
            if not isinstance(results[0], tuple):
                return self._wrapped(FUNCTIONS["stack"](results))
            return self._wrapped(tuple(FUNCTIONS["stack"](list(column)) for column in zip(*results, strict=True)))

    # --- random numbers ---------------------------------------------------------------------------------------------

    def _draw(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None) -> Any:
        self._check_randomness(op.name)
        bound = op.bind(params)
        flags = tuple(is_batched(x, self.level) for x in inputs)
        if self._randomness == "same":
            return composed(op, inputs, params) if any(flags) else self.base.apply(op, inputs, params, device)
        with executing(self.base):
            physical = tuple(x.physical if flag else x for x, flag in zip(inputs, flags, strict=True))
            if op is _DROPOUT:
                call = BatchedCall(op, physical, flags, self.level.size, bound)
                return self._wrapped(call.apply(call.expanded(0), *physical[1:]))
            drawn = {**bound, "shape": (self.level.size, *bound["shape"])}
            return self._wrapped(self.base.apply(op, physical, tuple(drawn.values()), device))

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        self._check_randomness("random")
        return self.base.random(source, count * self.level.size if self._randomness == "different" else count)

    def _check_randomness(self, op: str) -> None:
        if self._randomness == "error":
            fix = 'pass randomness="different", or "same" for equal numbers in the whole batch'
            raise AutogradError(message(op, "random numbers inside vmap", fix=fix))

    # --- memory -----------------------------------------------------------------------------------------------------

    def apply_into(self, op: OpDef, inputs: tuple[Tensor, ...], params: ParamValues, outs: tuple[Array, ...]) -> None:
        results = self.apply(op, inputs, params)
        for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
            self.overwrite(out, result)

    def overwrite(self, target: Any, value: Any) -> None:
        if is_batched(target, self.level):
            if is_batched(value, self.level):
                value = value.physical
            elif hasattr(value, "ref"):
                with executing(self.base):
                    value = FUNCTIONS["broadcast_to"](value, target.physical.shape)
            self.base.overwrite(target.physical, value)
            return
        if is_batched(value, self.level):
            problem = "a whole batch would be written to a tensor that is not batched"
            raise AutogradError(message("vmap", problem, fix="write to a tensor made from the function's arguments"))
        self.base.overwrite(target, value)

    def transfer(self, x: Any, device: Device, non_blocking: bool = False) -> Any:
        return (
            self._wrapped(self.base.transfer(x.physical, device, non_blocking))
            if is_batched(x, self.level)
            else self.base.transfer(x, device, non_blocking)
        )

    def alias(self, x: Any) -> Any:
        return self._wrapped(self.base.alias(x.physical)) if is_batched(x, self.level) else self.base.alias(x)

    def read(self, x: Any) -> np.ndarray:
        if is_batched(x, self.level):
            problem = "the value of a tensor was asked for inside vmap, where it stands for a whole batch"
            raise AutogradError(message("vmap", problem, fix="use where() in place of a Python condition"))
        return self.base.read(x)

    def read_async(self, x: Any) -> Future[np.ndarray]:
        return finished(self.read(x)) if is_batched(x, self.level) else self.base.read_async(x)
