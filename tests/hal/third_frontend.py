"""A third frontend over the replay core: functions of arrays without Polyhal tensors or tape."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from polyhal.hal.compile.capture.flat_call import TENSOR, FlatCall
from polyhal.hal.compile.capture.replay_cache import Pending, ReplayStep
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.capture.tree import Tree
from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.replayed_function import ReplayedFunction
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.core.dispatch import Array

TREE = Tree()
MODES: dict[str, Any] = {}
"""Python state that functions may read: the guards of their steps."""


class ArrayCall(FlatCall):
    __slots__ = ()
    tensor_types = Array

    def add_tensor(self, value: Any) -> bool:
        if not isinstance(value, Array):
            return False
        first = self.memories.setdefault(id(value.buffer), len(self.tensors))
        self.parts.append((TENSOR, value.ref.spec, value.device, first))
        self.tensors.append(value)
        return True

    def add_value(self, value: Any) -> None:
        self.parts.append((type(value), value))


@dataclass(frozen=True)
class Made:
    number: int


class ArrayStep(ReplayStep[ArrayCall]):
    def __init__(self, captured: CapturedGraph, structure: Any) -> None:
        super().__init__(captured)
        self._structure = structure
        self._modes = dict(MODES)

    @cached_property
    def _executable(self) -> Executable:
        return Executable(self.captured)

    def holds(self, call: ArrayCall) -> bool:
        return self._modes == MODES

    def adopt(self, later: ArrayStep) -> None:
        self.captured.live_outs = later.captured.live_outs

    def run(self, call: ArrayCall) -> Any:
        made = self._executable.run(call.tensors, len(self.captured.results))
        return TREE.map(self._structure, lambda x: made[x.number] if type(x) is Made else x)


class ArrayFunction(ReplayedFunction[..., Any, ArrayCall, ArrayStep]):
    def __init__(self, function: Callable[..., Any], max_graphs: int = 4, warm_up: bool = False) -> None:
        super().__init__(function, max_graphs, warm_up, "arrays")
        self._floats: list[float] = []

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArrayCall:
        call = ArrayCall(args, kwargs)
        self._floats[:] = call.host
        return call

    def _record(self, call: ArrayCall) -> Pending[ArrayStep]:
        recording = Recording()
        floats, results = iter(range(len(call.host))), itertools.count()

        def number(x: float) -> Any:
            return recording.recorder.runtime_scalar(partial(self._floats.__getitem__, next(floats)))

        def result(x: Any) -> Any:
            if not hasattr(x, "ref"):
                return x
            recording.results([x])
            return Made(next(results))

        with recording:
            for x in call.tensors:
                recording.argument(x)
            args, kwargs = call.mapped(lambda x: x, number)
            structure = TREE.map(self._function(*args, **kwargs), result)
        return Pending(ArrayStep(recording.finish(), structure), recording.abandon)
