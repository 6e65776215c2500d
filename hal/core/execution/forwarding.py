"""An executor that forwards every call to another one; subclasses override some methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.execution.executor import Array, Executor, RandomSource

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.core.execution.recorder import Recorder
    from polyhal.hal.core.execution.tape_hooks import TapeHooks
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.hal.ops.tensor_like import Numeric


class ForwardingExecutor:
    """Passes every call to `base`. `Executor` describes the methods."""

    __slots__ = ("base",)

    def __init__(self, base: Executor) -> None:
        self.base = base

    @property
    def recorder(self) -> Recorder | None:
        return self.base.recorder

    @property
    def tape_hooks(self) -> TapeHooks | None:
        return self.base.tape_hooks

    @property
    def fuses_later(self) -> bool:
        return self.base.fuses_later

    @property
    def replays_graphs(self) -> bool:
        return self.base.replays_graphs

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        return self.base.apply(op, inputs, params, device)

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Array, ...]) -> None:
        self.base.apply_into(op, inputs, params, outs)

    def overwrite(self, target: Array, value: Numeric) -> None:
        self.base.overwrite(target, value)

    def transfer(self, x: Array, device: Device, non_blocking: bool = False) -> Any:
        return self.base.transfer(x, device, non_blocking)

    def communicate(
        self, collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        return self.base.communicate(collective, communicator, dtype, sources)

    def alias(self, x: Array) -> Any:
        return self.base.alias(x)

    def read(self, x: Array) -> np.ndarray:
        return self.base.read(x)

    def read_async(self, x: Array) -> Future[np.ndarray]:
        return self.base.read_async(x)

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        return self.base.random(source, count)

    def on_replay(self, action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        self.base.on_replay(action, undo)

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.base.call_module(module, function, args, kwargs)
