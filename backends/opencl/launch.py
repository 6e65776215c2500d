"""Launches: kernels whose arguments are bound to constants and to positions in an op's argument list.

In a kernel, a `Tensor` is `__global T *x, ulong x_offset`, other memory `__global T *x`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, Struct
from polyhal.backends.common.launching.kernel_signature import NUMPY_TYPES, KernelSignature
from polyhal.backends.common.launching.launch import ScalarType, Table, Tensor, Workspace
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS
from polyhal.backends.opencl.driver import create_kernel
from polyhal.backends.opencl.error_mapping import RETUNE
from polyhal.backends.opencl.profile import TimedEnqueue
from polyhal.backends.opencl.program import CompiledKernel
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.backends.opencl.device_runtime import DeviceRuntime

_QUICK: dict[ScalarType, Callable[[Any], Any]] = {
    "int": int,
    "uint": int,
    "long": int,
    "ulong": int,
    "float": float,
    "double": float,
}
"""Conversions without the checks of `CONVERTERS`: the driver refuses an integer that does not fit."""


def argument_types(signature: KernelSignature) -> tuple[Any, ...]:
    """Return the NumPy type of each scalar or struct parameter of a kernel, and None for each memory parameter."""
    layouts = signature.structs
    return tuple(layouts.get(p.name) if p.type is None else NUMPY_TYPES[p.type] for p in signature.parameters)


class KernelLaunch:
    """One enqueue of one kernel. Satisfies `polyhal.hal.protocol.Launch`."""

    __slots__ = (
        "_global",
        "_kernel",
        "_local",
        "_numbers",
        "_parts",
        "_runtime",
        "_tables",
        "_template",
        "_tensors",
        "_workspace",
        "name",
        "workspace",
    )

    def __init__(
        self,
        runtime: DeviceRuntime,
        kernel: CompiledKernel,
        parameters: Sequence[Bound],
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        workspace: tuple[int, ...] = (),
    ) -> None:
        """`global_size` counts work-items and must be a multiple of `local_size`; `workspace` is in bytes.

        Raises KernelBuildError if the compiled kernel only runs in smaller groups.
        """
        items = math.prod(local_size)
        if not runtime.features.quirks.group_limit_is_advice and items > (most := kernel.largest_group(runtime.device)):
            problem = (
                f"the driver compiled the kernel for groups of at most {most} work-items, and this launch has {items}"
            )
            raise KernelBuildError(message(kernel.name, problem, fix=RETUNE, device=runtime.info.name))
        self._runtime = runtime
        self.name = kernel.name
        self.workspace = workspace
        self._kernel = kernel
        self._global = global_size
        self._local = local_size
        template: list[Any] = []
        tensors: list[tuple[int, int]] = []
        parts: list[tuple[int, int]] = []
        handles: list[tuple[int, int]] = []
        numbers: list[tuple[int, int, ScalarType]] = []
        tables: dict[int, Table] = {}
        for p in parameters:
            place = len(template)
            if isinstance(p, Tensor):
                tensors.append((place, p.index))
                template += [None, 0]
                if p.start:
                    parts.append((place + 1, p.start))
            elif isinstance(p, Workspace):
                handles.append((place, p.index))
                template.append(None)
            elif isinstance(p, Number):
                numbers.append((place, p.index, p.type))
                template.append(0)
            elif isinstance(p, Constant):
                template.append(p.value)
            elif isinstance(p, Struct):
                template.append(p.data[: kernel.types[place].itemsize])
            elif isinstance(p, Table):
                tables[place] = p
                flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
                template.append(cl.Buffer(runtime.context, flags, hostbuf=p.words()))
            else:
                template.append(cl.LocalMemory(p.nbytes))
        self._template = template
        self._tables = tables
        self._tensors = tuple(tensors)
        self._parts = tuple(parts)
        """Argument index and constant addition to the Ref's offset."""
        self._workspace = tuple(handles)
        self._numbers = tuple(numbers)

    def __call__(self, *args: Any) -> None:
        recorder = self._runtime.recorder
        if recorder is not None and recorder.accepts():
            recorder.add(self.bound(args))
            return
        values = self._template.copy()
        for place, index in self._tensors:
            ref = args[index]
            values[place] = ref.handle
            values[place + 1] = ref.offset
        for place, start in self._parts:
            values[place] += start
        for place, index in self._workspace:
            values[place] = args[index]
        for place, index, kind in self._numbers:
            values[place] = _QUICK[kind](args[index])
        kernel = self._kernel
        runtime = self._runtime
        queue = runtime.queues.current()
        try:
            with kernel.lock:
                try:
                    kernel.cl.set_args(*values)
                except RuntimeError:  # an integer beyond the range of the C type
                    kernel.cl.set_args(*self._wrapped(values))
                event = cl.enqueue_nd_range_kernel(queue.native, kernel.cl, self._global, self._local)
            queue.launched(1)
        except cl.Error as error:
            action = f"launching {self.name} over {self._global} in groups of {self._local}"
            raise runtime.errors.translate(error, action) from error
        if runtime.profile is not None:
            runtime.profile.append(TimedEnqueue(self.name, event, get_ident(), kernel.cl, self._global, self._local))

    def _wrapped(self, values: list[Any]) -> list[Any]:
        """Return the arguments with 64-bit integers wrapped to signed ones. Raises NumberRangeError for larger ones."""
        for place, _, kind in self._numbers:
            values[place] = CONVERTERS[kind](values[place])
        return values

    def bound(self, args: Sequence[Any]) -> BoundLaunch:
        """Return this launch with its own kernel object, whose arguments stay set."""
        shared = self._kernel
        program: Any = shared.cl.get_info(cl.kernel_info.PROGRAM)
        try:
            kernel = create_kernel(program, shared.name)
        except cl.Error as error:
            raise self._runtime.errors.translate(error, f"recording {self.name}") from error
        values = self._template.copy()
        movables: list[tuple[int, BindingSlot, int]] = []
        numbers: list[tuple[int, RuntimeScalar, ScalarType]] = []
        starts = dict(self._parts)
        for place, index in self._tensors:
            ref = args[index]
            offset = ref.offset + starts.get(place + 1, 0)
            if isinstance(ref.handle, BindingSlot):
                movables.append((place, ref.handle, offset))
            else:
                values[place], values[place + 1] = ref.handle, offset
        for place, index in self._workspace:
            values[place] = args[index]
        for place, index, kind in self._numbers:
            given = args[index]
            if isinstance(given, RuntimeScalar):
                numbers.append((place, given, kind))
            else:
                values[place] = CONVERTERS[kind](given)
        for place, (value, kind) in enumerate(zip(values, shared.types, strict=True)):
            # Rebindable memory is set before each replay and unbound until then.
            kernel.set_arg(place, kind(value) if isinstance(kind, type) else value)
        return BoundLaunch(
            self.name, kernel, self._global, self._local, values, movables, numbers, shared, self._tables
        )


@dataclass(slots=True)
class BoundLaunch:
    """A kernel with its arguments set, and the arguments that follow memory and numbers.

    `values` keeps all others alive.
    """

    name: str
    kernel: cl.Kernel
    items: tuple[int, ...]
    group: tuple[int, ...]
    values: list[Any]
    movables: list[tuple[int, BindingSlot, int]]
    """Argument index, binding slot of the memory, and offset from its start."""
    numbers: list[tuple[int, RuntimeScalar, ScalarType]]
    compiled: CompiledKernel
    """The kernel that the program's other launches share."""
    tables: Mapping[int, Table]
    """Constants of the launch by argument index."""
