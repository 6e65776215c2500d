"""Work of the host in the middle of a step: calls on CPU tensors that were copied from the device.

Each run repeats them after the copy. A result that goes back to the device becomes the result of a node of the graph, which
downloads the copied values, makes the calls that the result depends on and uploads it. So nothing runs twice, and in any order
of the nodes: values of a run are kept in slots, and a call whose results are there is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from polyhal.hal import dtypes
from polyhal.hal.compile.capture.replay_log import PathChangedError
from polyhal.torch import tensors
from polyhal.torch.steps.host import Slot, resolved, same

if TYPE_CHECKING:
    from polyhal.hal.compile.capture.recorder import StepRecorder
    from polyhal.hal.core.dispatch import Array
    from polyhal.hal.device import Device


class _Copy(NamedTuple):
    """A copy from the device to the CPU."""

    value: int
    """Value of the graph."""
    device: Device
    source: torch.dtype
    """Dtype of the elements on the device."""
    target: torch.dtype
    strides: tuple[int, ...]

    def restored(self, array: np.ndarray) -> torch.Tensor:
        """Return the CPU tensor of downloaded elements."""
        x = tensors.from_elements(array, self.source)
        if (x.dtype, x.stride()) == (self.target, self.strides):
            return x
        return torch.empty_strided(x.shape, self.strides, dtype=self.target).copy_(x)


class _Call(NamedTuple):
    """A call that stores its results in slots."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    outputs: tuple[Slot | None, ...]
    kinds: tuple[Any, ...]
    """Shapes and dtypes of the results, on which Python may have branched."""

    @property
    def what(self) -> tuple[Any, ...]:
        """Description that is equal for the same call in another recording."""
        return self.function, self.args, tuple(sorted(self.kwargs.items())), self.outputs, self.kinds

    def run(self, values: list[Any]) -> None:
        """Make the call unless its results are stored. Raises PathChangedError for results of other shapes."""
        if all(slot is None or values[slot.index] is not None for slot in self.outputs):
            return
        made = listed(self.function(*resolved(self.args, values), **resolved(self.kwargs, values)))
        if tuple(map(_kind, made)) != self.kinds:
            raise PathChangedError
        for slot, x in zip(self.outputs, made, strict=True):
            if slot is not None:
                values[slot.index] = x


class _Body:
    """Function of a node: it takes the copies that `outputs` depend on, and returns the elements of these values."""

    def __init__(self, work: AfterReads, copies: Sequence[int], calls: Sequence[int], outputs: Sequence[int]) -> None:
        self._work = work
        self._copies = tuple(copies)
        self._calls = tuple(calls)
        self._outputs = tuple(outputs)
        names = dict.fromkeys(getattr(work.calls[k].function, "__name__", "call") for k in calls)
        self.__qualname__ = ", ".join(names) or "copy"

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        work, values = self._work, self._work.values
        with torch.no_grad():
            for index, array in zip(self._copies, arrays, strict=True):
                if values[index] is None:
                    values[index] = work.copies[index].restored(array)
            for k in self._calls:
                work.calls[k].run(values)
        return [tensors.elements(values[i]) for i in self._outputs] or [np.array(True)]

    def __eq__(self, other: object) -> bool:
        return type(other) is _Body and (self._calls, self._outputs) == (other._calls, other._outputs)

    def __hash__(self) -> int:
        return hash((self._calls, self._outputs))


class AfterReads:
    """Calls of a step that depend on copies from the device. They have no side effects, and run in their order."""

    def __init__(self, values: list[Any]) -> None:
        """Store results in `values`, the slots of the step."""
        self.values = values
        self.copies: dict[int, _Copy] = {}
        """Copies from the device by slot."""
        self.calls: list[_Call] = []
        self.storages: set[int] = set()
        """Addresses of the memory of other CPU tensors that the calls read."""
        self._made_by: dict[int, int] = {}
        """Position of the call that makes the value of a slot."""
        self._in_nodes: set[int] = set()
        """Positions of the calls that nodes make."""

    def includes(self, x: Any) -> bool:
        """Return whether a template of arguments contains a value that depends on a copy."""
        return any(
            type(leaf) is Slot and (leaf.index in self.copies or leaf.index in self._made_by) for leaf in _leaves(x)
        )

    def add_copy(self, slot: Slot, value: int, source: Array, made: torch.Tensor) -> None:
        """Note that a slot holds `made`, a copy of an array, which has a value of the graph."""
        dtype = tensors.TORCH_DTYPES[source.ref.dtype]
        self.copies[slot.index] = _Copy(value, source.device, dtype, made.dtype, made.stride())

    def add_call(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        outputs: Sequence[Slot | None],
        made: Sequence[Any],
    ) -> None:
        """Append a call; slots and live numbers among its arguments are resolved in each run."""
        for leaf in _leaves((args, kwargs)):
            x = self.values[leaf.index] if type(leaf) is Slot and not self.includes(leaf) else leaf
            if isinstance(x, torch.Tensor):
                self.storages.add(x.untyped_storage().data_ptr())
        for slot in outputs:
            if slot is not None:
                self._made_by[slot.index] = len(self.calls)
        self.calls.append(_Call(function, args, kwargs, tuple(outputs), tuple(map(_kind, made))))

    def upload(self, recorder: StepRecorder, device: Device, slot: Slot) -> Any:
        """Return an array that each run copies from the value of a slot; None if it depends on another device."""
        copies, calls = self._needs([slot.index])
        if any(self.copies[i].device is not device for i in copies):
            return None
        self._in_nodes.update(calls)
        x = self.values[slot.index]
        return self._node(recorder, device, copies, calls, [slot.index], (tensors.DTYPES[x.dtype], tuple(x.shape)))

    def completion(self, recorder: StepRecorder, kept: Iterable[Slot]) -> Any:
        """Return an array that is True in runs in which the calls that no node makes have the recorded shapes.

        Afterwards the slots `kept` are filled. None if nothing is left to do, or if several devices are read.
        """
        rest = [s.index for k, call in enumerate(self.calls) if k not in self._in_nodes for s in call.outputs if s]
        copies, calls = self._needs([*rest, *(s.index for s in kept)])
        devices = {self.copies[i].device for i in copies}
        if len(devices) != 1:
            return None
        return self._node(recorder, devices.pop(), copies, calls, [], (dtypes.bool_, ()))

    def clear(self) -> None:
        """Drop the values of an earlier run."""
        for index in (*self.copies, *self._made_by):
            self.values[index] = None

    def same_as(self, other: AfterReads) -> bool:
        """Return whether another recording has equal calls."""
        return (
            list(self.copies) == list(other.copies)
            and len(self.calls) == len(other.calls)
            and all(same(a.what, b.what) for a, b in zip(self.calls, other.calls, strict=True))
        )

    def _needs(self, slots: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the slots of the copies, and the positions of the calls, that values depend on, in order."""
        copies, calls, pending = set[int](), set[int](), list(slots)
        while pending:
            index = pending.pop()
            if index in self.copies:
                copies.add(index)
            k = self._made_by.get(index)
            if k is not None and k not in calls:
                calls.add(k)
                call = self.calls[k]
                pending += [x.index for x in _leaves((call.args, call.kwargs)) if type(x) is Slot]
        return sorted(copies), sorted(calls)

    def _node(
        self,
        recorder: StepRecorder,
        device: Device,
        copies: Sequence[int],
        calls: Sequence[int],
        outputs: Sequence[int],
        result: tuple[Any, tuple[int, ...]],
    ) -> Any:
        values = [self.copies[i].value for i in copies]
        return recorder.host_call(_Body(self, copies, calls, outputs), values, result, device)


def listed(result: Any) -> list[Any]:
    """Return the results of a call as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _leaves(x: Any) -> Iterator[Any]:
    """Yield the slots, numbers and objects in a template of arguments (see `resolved`)."""
    if type(x) in (list, tuple, dict):
        for value in x.values() if type(x) is dict else x:
            yield from _leaves(value)
    else:
        yield x


def _kind(x: Any) -> Any:
    """Return the facts about a result that Python sees without reading elements."""
    return (tuple(x.shape), x.dtype) if isinstance(x, (torch.Tensor, np.ndarray)) else type(x)
