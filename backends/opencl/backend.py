"""`ComputeBackend` over OpenCL: core methods, lowering, transfers and profiling of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.elementwise import single
from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, lowering
from polyhal.backends.opencl.lowering import elementwise, indexing, matmul, movement, reduce
from polyhal.backends.opencl.memory import Memory
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Event, Handle, InputSpec, Launch, Number


def create(selector: str) -> OpenCLBackend:
    """Open a device by index or by part of a name (see `discovery.select`). Raises DeviceUnavailableError."""
    return OpenCLBackend(discovery.select(selector or "0"))


class OpenCLBackend:
    """One opened OpenCL device."""

    def __init__(self, found: discovery.Found) -> None:
        self.info = found.info
        self.features = probed.features(found.device, found.info.type)
        self.capabilities = probed.capabilities(found.device, self.features)
        self.runtime = Runtime(found.device, found.info, self.features, self.capabilities)
        self._memory = Memory(self.runtime)
        self._lowerings = lowering.table()
        self._launches: dict[tuple[Any, ...], Launch] = {}

        memory = self._memory
        self.allocate: Callable[[int], Handle] = memory.allocate
        self.deallocate: Callable[[Handle], None] = memory.deallocate
        self.copy_to_device: Callable[[memoryview, Handle, int], None] = memory.write
        self.allocate_pinned: Callable[[int], memoryview] = memory.pinned
        self.copy_to_device_async: Callable[[memoryview, Handle, int], Event] = memory.write_async
        self.map: Callable[[Handle, int, int], memoryview] = memory.map
        self.synchronize: Callable[[], None] = self.runtime.finish
        self.start_profiling: Callable[[], None] = self.runtime.start_profiling
        self.stop_profiling: Callable[[], Sequence[tuple[str, int, int]]] = self.runtime.stop_profiling

    def memory_available(self) -> int:
        return self._memory.available()

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        self._memory.read(src, offset, dst)

    def flush(self) -> None:
        self.runtime.queue.flush()

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """A native kernel for `op`, or why there is none."""
        function = self._lowerings.get(op)
        if function is None:
            return Declined(f"OpenCL has no kernel for {op}")
        if not self.features.fp64 and any(s is not None and s.dtype is dtypes.float64 for s in (*inputs, *outputs)):
            return Declined("the device has no float64")
        return function(self.runtime, inputs, outputs, params)

    def fill(self, value: Number, out: Ref) -> None:
        launch = self._launch(("fill", out.spec), lambda: movement.fill(self.runtime, out.spec))
        launch(_as_number(value, out.dtype), out)

    def copy(self, src: Ref, out: Ref) -> None:
        launch = self._launch(("copy", src.spec, out.spec), lambda: movement.copy(self.runtime, src.spec, out.spec))
        launch(src, out)

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._elementwise(op, x.dtype, (x,), out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._elementwise(op, a.dtype, (a, b), out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._elementwise("where", a.dtype, (cond, a, b), out)

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        axes = (len(x.shape) - 1,)
        launch = self._launch(
            ("reduce", op, x.spec, out.spec), lambda: reduce.build(self.runtime, op, x.spec, out.spec, axes)
        )
        self._run(launch, x, out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        key = ("matmul", a.spec, b.spec, out.spec)
        self._run(self._launch(key, lambda: matmul.batched(self.runtime, a.spec, b.spec, out.spec)), a, b, out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        key = ("gather", index.spec, x.spec, out.spec)
        self._run(self._launch(key, lambda: indexing.gather(self.runtime, index.spec, x.spec, out.spec)), index, x, out)

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        key = ("scatter_add", index.spec, src.spec, out.spec)
        build = lambda: indexing.scatter_add(self.runtime, index.spec, src.spec, out.spec)  # noqa: E731
        self._run(self._launch(key, build), index, src, out)

    def _elementwise(self, op: str, dtype: DType, inputs: tuple[Ref, ...], out: Ref) -> None:
        specs = tuple(r.spec for r in inputs)
        self._launch((op, dtype, specs, out.spec), lambda: self._build(op, dtype, specs, out.spec))(*inputs, out)

    def _build(self, op: str, dtype: DType, inputs: tuple[Spec, ...], out: Spec) -> Launch:
        launch = single(elementwise.group, self.runtime, op, dtype, inputs, (out,))
        if isinstance(launch, Declined):
            error = UnsupportedOpError if "no expression" in launch.reason else UnsupportedDTypeError
            raise error(message(op, launch.reason, device=self.info.name))
        return launch

    def _launch(self, key: tuple[Any, ...], build: Callable[[], Launch]) -> Launch:
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = build()
        return launch

    def _run(self, launch: Launch, *args: Ref) -> None:
        """Run a launch of a core method, which brings no workspace of its own."""
        if not launch.workspace:
            launch(*args)
            return
        temporary = [self._memory.allocate(n) for n in launch.workspace]
        try:
            launch(*args, *temporary)
        finally:
            for handle in temporary:
                self._memory.deallocate(handle)

    def describe(self) -> dict[str, Any]:
        """Facts for `doctor`."""
        return {**self.capabilities.features, **self.runtime.describe()}


def _as_number(value: Number, dtype: DType) -> Number:
    """The value that a cast of a Python number to `dtype` gives."""
    if dtype.kind == "bool":
        return bool(value)
    return float(value) if dtype.kind == "float" else int(value)
