"""Observers: called around every launch of a device, with the op, its operands and its results.

While an observer is enabled, plans of eager calls wrap their run in `run_observed`, and captured steps run call by
call. Without observers, neither happens: disabled checks cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from polyhal.hal.core.settings.state import settings
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.resolution import Resolution
    from polyhal.hal.core.execution.location import SourceLocation
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef


class ObservedCall(NamedTuple):
    """One op that is about to run."""

    device: Device
    op: OpDef
    params: Mapping[str, Any]
    """All parameters by name."""
    inputs: Sequence[Any]
    """References, numbers, and None for absent inputs."""
    outputs: Sequence[Ref]
    """References to outputs. An output may alias an input."""
    resolution: Resolution
    locate: Callable[[], SourceLocation]

    def values(self) -> tuple[Any, ...]:
        """Return the inputs, with tensors as NumPy arrays. Waits for the device."""
        return tuple(self.device.download(x) if isinstance(x, Ref) else x for x in self.inputs)

    def results(self) -> tuple[np.ndarray, ...]:
        """Return the outputs as NumPy arrays, once the op has run. Waits for the device."""
        return tuple(self.device.download(x) for x in self.outputs)


class Observer(Protocol):
    """Interface of an observer of running ops."""

    def observe(self, call: ObservedCall) -> AbstractContextManager[None]:
        """Return a context that encloses the launch of `call`. An error that it raises becomes the error of the op."""
        ...


@runtime_checkable
class CopyObserver(Protocol):
    """Interface of an observer that also observes copies of results at the end of a captured step, which are not ops."""

    def observe_copy(self, device: Device, source: Ref, target: Ref) -> AbstractContextManager[None]:
        """Return a context that encloses the copy of `source` to `target`."""
        ...


def run_observed(call: ObservedCall, run: Callable[[], None]) -> None:
    """Run a call within the contexts of all enabled observers."""
    with ExitStack() as stack:
        for observer in settings.observers:
            stack.enter_context(observer.observe(call))
        run()


def run_observed_copy(device: Device, source: Ref, target: Ref) -> None:
    """Copy the result of a captured step within the contexts of all enabled observers of copies."""
    with ExitStack() as stack:
        for observer in settings.observers:
            if isinstance(observer, CopyObserver):
                stack.enter_context(observer.observe_copy(device, source, target))
        device.backend.copy(source, target)
