"""Launches: kernels whose arguments are bound to constants and to positions in an op's argument list.

The arguments of a launch are packed into one block of C memory, eight bytes or more each, and an array of pointers to them is
passed to the driver, which copies them during the call. In a kernel, a `Tensor` is `__global T *x, ulong x_offset`, other
memory `__global T *x`.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.cuda_driver import NULL, ffi
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, Struct
from polyhal.backends.common.launching.launch import ScalarType, Table, Tensor, Workspace
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS
from polyhal.backends.cuda.constants import ConstantMemory
from polyhal.backends.cuda.errors import RETUNE
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.backends.cuda.programs import CudaKernel
    from polyhal.backends.cuda.runtime import CudaRuntime

_FORMATS: dict[ScalarType, str] = {
    "int": "i4x",
    "uint": "I4x",
    "long": "q",
    "ulong": "Q",
    "float": "f4x",
    "double": "d",
}
_WORD = 8


class BlockLayout:
    """The places of a kernel's arguments in a block."""

    __slots__ = ("fields", "packer", "starts")

    def __init__(self, formats: Sequence[str]) -> None:
        """`formats` has the format of each argument, in the terms of the module `struct`."""
        self.packer = struct.Struct("<" + "".join(formats))
        self.fields = tuple(struct.Struct("<" + f) for f in formats)
        """Each argument alone."""
        self.starts = tuple(accumulate((f.size for f in self.fields), initial=0))[:-1]
        """First byte of each argument."""


class ArgumentBlock:
    """C memory with the arguments of one launch, and the pointers to them that the driver takes."""

    __slots__ = ("_buffer", "_layout", "_memory", "pointers")

    def __init__(self, layout: BlockLayout) -> None:
        self._layout = layout
        self._memory = ffi.new("char[]", max(layout.packer.size, 1))
        self._buffer = ffi.buffer(self._memory)
        self.pointers = ffi.new("void *[]", [self._memory + start for start in layout.starts] or [NULL])

    def write(self, values: Sequence[Any]) -> None:
        """Set all arguments. Raises struct.error for a number that does not fit its type."""
        self._layout.packer.pack_into(self._buffer, 0, *values)

    def set(self, place: int, value: Any) -> None:
        """Set one argument. Raises struct.error for a number that does not fit its type."""
        self._layout.fields[place].pack_into(self._buffer, self._layout.starts[place], value)


class CudaLaunch:
    """One launch of one kernel. Satisfies `polyhal.hal.protocol.Launch`."""

    __slots__ = (
        "_block",
        "_geometry",
        "_kept",
        "_kernel",
        "_layout",
        "_lock",
        "_numbers",
        "_parts",
        "_runtime",
        "_template",
        "_tensors",
        "_workspace",
        "name",
        "workspace",
    )

    def __init__(
        self,
        runtime: CudaRuntime,
        kernel: CudaKernel,
        parameters: Sequence[Bound],
        items: tuple[int, ...],
        group: tuple[int, ...],
        workspace: tuple[int, ...] = (),
    ) -> None:
        """`items` must be a multiple of `group`; `workspace` is in bytes.

        Raises KernelBuildError if the compiled kernel only runs in smaller groups, or has `__local` parameters.
        """
        if math.prod(group) > kernel.largest_group:
            problem = (
                f"the driver compiled the kernel for groups of at most {kernel.largest_group} work-items, "
                f"and this launch has {math.prod(group)}"
            )
            raise KernelBuildError(message(kernel.name, problem, fix=RETUNE, device=runtime.info.name))
        self._runtime = runtime
        self.name = kernel.name
        self.workspace = workspace
        self._kernel = kernel
        padding = (1,) * (3 - len(group))
        grid = tuple(n // g for n, g in zip(items, group, strict=True))
        self._geometry = (*grid, *padding, *group, *padding, kernel.shared)
        template: list[Any] = []
        formats: list[str] = []
        tensors: list[tuple[int, int]] = []
        parts: list[tuple[int, int]] = []
        handles: list[tuple[int, int]] = []
        numbers: list[tuple[int, int, ScalarType]] = []
        self._kept: list[ConstantMemory] = []
        """Constant memory, released with the launch."""

        def add(value: Any, form: str) -> None:
            template.append(value)
            formats.append(form)

        for p in parameters:
            place = len(template)
            if isinstance(p, Tensor):
                tensors.append((place, p.index))
                add(0, "Q")
                add(0, "Q")
                if p.start:
                    parts.append((place + 1, p.start))
            elif isinstance(p, Workspace):
                handles.append((place, p.index))
                add(0, "Q")
            elif isinstance(p, Number):
                numbers.append((place, p.index, p.type))
                add(0, _FORMATS[p.type])
            elif isinstance(p, Constant):
                add(CONVERTERS[p.type](p.value), _FORMATS[p.type])
            elif isinstance(p, Struct):
                add(p.data, f"{round_up(len(p.data), _WORD)}s")
            elif isinstance(p, Table):
                table = p.words()
                with runtime.calling(f"allocating a table of {table.nbytes} bytes"):
                    self._kept.append(ConstantMemory(runtime.context, runtime.streams, table))
                add(self._kept[-1].address, "Q")
            else:
                problem = "the kernel has a `__local` parameter, which the CUDA driver does not support"
                fix = "declare a `__local` array of constant size in the kernel"
                raise KernelBuildError(message(kernel.name, problem, fix=fix, device=runtime.info.name))
        self._template = template
        self._layout = BlockLayout(formats)
        self._tensors = tuple(tensors)
        self._parts = tuple(parts)
        """Argument index and constant addition to the Ref's offset."""
        self._workspace = tuple(handles)
        self._numbers = tuple(numbers)
        self._block = ArgumentBlock(self._layout)
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> None:
        runtime = self._runtime
        recorder = runtime.recorder
        if recorder is not None and recorder.accepts():
            recorder.add(self.bound(args))
            return
        values = self._template.copy()
        for place, index in self._tensors:
            ref = args[index]
            values[place] = ref.handle.address
            values[place + 1] = ref.offset
        for place, start in self._parts:
            values[place] += start
        for place, index in self._workspace:
            values[place] = args[index].address
        for place, index, kind in self._numbers:
            values[place] = CONVERTERS[kind](args[index])
        stream = runtime.streams.current()
        with self._lock:
            self._block.write(values)
            if runtime.profile is None:
                status = runtime.start(self._kernel.function, self._geometry, self._block.pointers, stream.handle)
            else:
                with runtime.calling(f"launching {self.name}"), runtime.profiled(self.name, stream):
                    status = runtime.start(self._kernel.function, self._geometry, self._block.pointers, stream.handle)
        if status:
            raise runtime.launch_failed(status, self.name, self._geometry)

    def bound(self, args: Sequence[Any]) -> CudaBoundLaunch:
        """Return this launch with its own argument block, whose values stay set."""
        values = self._template.copy()
        kept: list[object] = [self._kernel, self]
        slots: list[tuple[int, BindingSlot, int]] = []
        numbers: list[tuple[int, RuntimeScalar, ScalarType]] = []
        starts = dict(self._parts)
        for place, index in self._tensors:
            ref = args[index]
            offset = ref.offset + starts.get(place + 1, 0)
            if isinstance(ref.handle, BindingSlot):
                slots.append((place, ref.handle, offset))
            else:
                kept.append(ref.handle)
                values[place], values[place + 1] = ref.handle.address, offset
        for place, index in self._workspace:
            kept.append(args[index])
            values[place] = args[index].address
        for place, index, kind in self._numbers:
            given = args[index]
            if isinstance(given, RuntimeScalar):
                numbers.append((place, given, kind))
            else:
                values[place] = CONVERTERS[kind](given)
        block = ArgumentBlock(self._layout)
        block.write(values)
        return CudaBoundLaunch(self.name, self._kernel.function, self._geometry, block, slots, numbers, kept)


@dataclass(slots=True, eq=False)
class CudaBoundLaunch:
    """A kernel with its arguments set, and the arguments that follow memory and numbers."""

    name: str
    function: Any
    geometry: tuple[int, ...]
    """Blocks of the grid on three axes, threads of a block on three axes, and bytes of dynamic shared memory."""
    block: ArgumentBlock
    slots: list[tuple[int, BindingSlot, int]]
    """Argument index, binding slot of the memory, and offset from its start."""
    numbers: list[tuple[int, RuntimeScalar, ScalarType]]
    kept: list[object]
    """Objects that must live as long as the launch."""
