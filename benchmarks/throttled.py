"""A throttled device: every launch is carried out several times, with unchanged results.

Pairs of unequal devices are made of it, such as a processor's half and another that takes three times as long:

    fast, slow = Device("opencl:pocl/2:0"), throttled("opencl:pocl/2:1", 3)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from polyhal.backends.common.launching.geometry import round_up
from polyhal.hal.device import Device
from polyhal.hal.layout import ALIGNMENT, Ref, Spec
from polyhal.hal.protocol import PROTOCOLS, ComputeBackend, Declined, InputSpec, Launch, SimpleLaunch, UserKernel

_OUTPUT_LAST = ("fill", "copy", "unary", "binary", "where", "reduce", "matmul", "gather", "scatter_add")


@functools.cache
def throttled(name: str, times: int) -> Device:
    """Open the device called `name` as one that computes at 1/`times` of its speed. Copies to and from the host are as fast
    as before. Raises DeviceUnavailableError.

    The device shares the memory and the kernels of `Device(name)`, which remains usable.
    """
    inner = Device(name)
    backend: Any = ThrottledBackend(inner.backend, times)
    return Device.opened(f"{inner.name} at 1/{times}", backend)


class ThrottledBackend:
    """A backend that carries out every launch several times.

    The last run writes to the outputs, the runs before write to scratch memory of the same layout. So work in place,
    and sums into memory, are done once.
    """

    def __init__(self, inner: Any, times: int) -> None:
        self.inner = inner
        self.times = times
        self.info = replace(
            inner.info,
            name=f"{inner.info.name}, {times} times slower",
            id=f"{inner.info.id}/{times}",
            selector=f"{inner.info.selector} at 1/{times}",
        )
        self.capabilities = inner.capabilities
        self._scratch: dict[int, tuple[int, Any]] = {}
        """Size and handle of the memory in place of each output."""
        ours = {"lower": self._lower, "compile_kernel": self._compile_kernel, "can_copy_from": self._can_copy_from}
        ours |= {"copy_from_peer": self._copy_from_peer}
        ours |= {name: self._slowly(getattr(inner, name), outputs=1) for name in _OUTPUT_LAST}
        for protocol in (ComputeBackend, *(p for p in PROTOCOLS.values() if isinstance(inner, p))):
            for name, _ in inspect.getmembers(protocol, inspect.isfunction):
                if not name.startswith("_"):
                    setattr(self, name, ours.get(name, getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        """Return members of the backend that are not in the contract."""
        return getattr(self.inner, name)

    def _lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        return self._slow_launch(self.inner.lower(op, inputs, outputs, params), len(inputs), len(outputs))

    def _compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Mapping[str, Any],
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        launch = self.inner.compile_kernel(kernel, inputs, outputs, params, grid, group)
        return self._slow_launch(launch, len(inputs), len(outputs))

    def _can_copy_from(self, peer: Any) -> bool:
        return bool(self.inner.can_copy_from(_inner(peer)))

    def _copy_from_peer(self, peer: Any, *rest: Any) -> Any:
        return self.inner.copy_from_peer(_inner(peer), *rest)

    def _slow_launch(self, launch: Launch | Declined, inputs: int, outputs: int) -> Launch | Declined:
        if isinstance(launch, Declined):
            return launch
        return SimpleLaunch(launch.name, self._slowly(launch, outputs, inputs), launch.workspace)

    def _slowly(self, run: Callable[..., None], outputs: int, inputs: int | None = None) -> Callable[..., None]:
        """Return a launch that runs `run` several times. Its outputs follow `inputs` arguments; they are the last ones
        if that is None."""

        def several(*args: Any) -> None:
            # The extra runs come first: they read operands that the last run may overwrite.
            first = len(args) - outputs if inputs is None else inputs
            outs = [self._in_scratch(i, ref) for i, ref in enumerate(args[first : first + outputs])]
            for _ in range(self.times - 1):
                run(*args[:first], *outs, *args[first + outputs :])
            run(*args)

        return several

    def _in_scratch(self, place: int, ref: Ref) -> Ref:
        """Return scratch memory of the same layout. Command buffers may write to it: it is never released."""
        reach = [(length - 1) * stride for length, stride in zip(ref.shape, ref.strides, strict=True)]
        before = round_up(-sum(r for r in reach if r < 0), ALIGNMENT)
        nbytes = (before + sum(r for r in reach if r > 0) + 1) * ref.dtype.itemsize
        size, handle = self._scratch.get(place, (0, None))
        if size < nbytes:
            size = max(nbytes, 2 * size)
            handle = self.inner.allocate(size)
            self._scratch[place] = size, handle
        return Ref(handle, ref.spec, before)


def _inner(backend: Any) -> Any:
    return backend.inner if isinstance(backend, ThrottledBackend) else backend
