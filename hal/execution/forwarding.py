"""An executor that stands in front of another one and passes everything on; subclasses override what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polyhal.hal.execution.executor import Array, Executor, RandomSource, TapeNode

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.opdef import OpDef


class ForwardingExecutor:
    """Passes every call to `base`. See `Executor` for what the methods do."""

    __slots__ = ("base",)

    def __init__(self, base: Executor) -> None:
        self.base = base

    @property
    def fuses_later(self) -> bool:
        return self.base.fuses_later

    @property
    def replays_graphs(self) -> bool:
        return self.base.replays_graphs

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        return self.base.apply(op, inputs, params, device)

    def apply_into(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Array, ...]) -> None:
        self.base.apply_into(op, inputs, params, outs)

    def overwrite(self, target: Array, value: Any) -> None:
        self.base.overwrite(target, value)

    def transfer(self, x: Array, device: Device, non_blocking: bool = False) -> Any:
        return self.base.transfer(x, device, non_blocking)

    def communicate(
        self, collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        return self.base.communicate(collective, communicator, dtype, sources)

    def alias(self, x: Array) -> Any:
        return self.base.alias(x)

    def capture_constant(self, x: Array) -> None:
        self.base.capture_constant(x)

    def track(self, x: Array, base: Array | None = None) -> None:
        self.base.track(x, base)

    def read(self, x: Array) -> np.ndarray:
        return self.base.read(x)

    def read_async(self, x: Array) -> Future[np.ndarray]:
        return self.base.read_async(x)

    def require_execution(self, op: str, problem: str, fix: str = "") -> None:
        self.base.require_execution(op, problem, fix)

    def require_success(self, info: Array) -> bool:
        return self.base.require_success(info)

    def runtime_scalar(self, compute: Callable[[], Any], name: str = "", increment: int = 0) -> Any:
        return self.base.runtime_scalar(compute, name, increment)

    def static_bound(self, value: int, bound: int) -> int:
        return self.base.static_bound(value, bound)

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        return self.base.random(source, count)

    def random_state(self, source: RandomSource) -> dict[str, int]:
        return self.base.random_state(source)

    def set_random_state(self, source: RandomSource, state: Mapping[str, int]) -> None:
        self.base.set_random_state(source, state)

    def on_replay(self, action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        self.base.on_replay(action, undo)

    def on_rollback(self, snapshot: Callable[[], Callable[[], object]]) -> None:
        self.base.on_rollback(snapshot)

    def before_rebase(self, x: Array, place: Callable[[Any], Any]) -> None:
        self.base.before_rebase(x, place)

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.base.call_module(module, function, args, kwargs)

    def name_state(self, state: Mapping[Any, Mapping[str, Any]]) -> None:
        self.base.name_state(state)

    def before_gradient_read(self, leaf: Any) -> None:
        self.base.before_gradient_read(leaf)

    def before_gradient_write(self, leaf: Any) -> None:
        self.base.before_gradient_write(leaf)

    def add_to_tape(self, node: TapeNode) -> None:
        self.base.add_to_tape(node)

    def differentiating(self) -> AbstractContextManager[object]:
        return self.base.differentiating()

    def differentiate(self, node: TapeNode) -> None:
        self.base.differentiate(node)

    def recomputing(self) -> AbstractContextManager[object]:
        return self.base.recomputing()
