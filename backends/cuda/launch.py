"""Launches: kernels whose arguments are bound to constants and to positions in an op's argument list.

Everything that does not change from call to call is prepared once, in the form that the driver takes. In a kernel, a `Tensor`
is `__global T *x, ulong x_offset`, other memory `__global T *x`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.cuda_driver import NULL, ffi
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, Struct
from polyhal.backends.common.launching.launch import ScalarType, Table, Tensor, Workspace
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS
from polyhal.backends.cuda import grids
from polyhal.backends.cuda.arguments import ADDRESS, FORMATS, WORD, ArgumentBlock, BlockLayout, Variable, writer
from polyhal.backends.cuda.constants import ConstantMemory
from polyhal.backends.cuda.dependencies import MemoryAccess, access_of
from polyhal.backends.cuda.errors import RETUNE
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.backends.cuda.programs import CudaKernel
    from polyhal.backends.cuda.runtime import CudaRuntime
    from polyhal.backends.cuda.streams import CudaStream


SMALL_LAUNCH = 1.0
"""Maximum groups, per compute unit, of a launch that runs at the same time as others in a graph."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
_STARTS_EARLY = ffi.new("CUlaunchAttribute[]", [{"id": _PROGRAMMATIC_STREAM_SERIALIZATION, "value": {"flag": 1}}])


class PreparedLaunch:
    """A kernel, its launch configuration and an argument block of its own, as the driver takes them."""

    __slots__ = ("block", "config", "dependent", "function", "name", "pointers", "stream")

    def __init__(
        self, kernel: CudaKernel, geometry: Sequence[int], block: ArgumentBlock, *, starts_early: bool = False
    ) -> None:
        """`geometry` has the blocks of the grid and the threads of a block, each on three axes.

        In a stream the kernel starts before the one in front of it ends if `starts_early` is set.
        """
        self.name = kernel.name
        self.function = kernel.function
        self.dependent = kernel.dependent
        self.block = block
        self.pointers = block.pointers
        self.stream: CudaStream | None = None
        """The stream in `config`."""
        attributes = (_STARTS_EARLY, len(_STARTS_EARLY)) if starts_early else (NULL, 0)
        self.config = ffi.new("CUlaunchConfig *", [*geometry, kernel.shared, NULL, *attributes])

    def __str__(self) -> str:
        c = self.config
        grid, threads = (c.grid_x, c.grid_y, c.grid_z), (c.block_x, c.block_y, c.block_z)
        return f"{self.name} over {grid} blocks of {threads} threads"


class CudaLaunch:
    """One launch of one kernel. Satisfies `polyhal.hal.protocol.Launch`."""

    __slots__ = (
        "_geometry",
        "_kept",
        "_kernel",
        "_layout",
        "_runtime",
        "_starts_early",
        "_template",
        "_unused",
        "_variable",
        "_waits",
        "_write",
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
        *,
        waits: bool = False,
    ) -> None:
        """`items` must be a multiple of `group`; `workspace` is in bytes.

        With `waits`, groups of the kernel may wait for all others, or for other devices: two such launches that run at the same
        time could wait for each other's room on the device forever.

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
        self._waits = waits
        grid = grids.blocks(items, group)
        threads = (*group, *(1,) * (3 - len(group)))
        if kernel.folded:
            parameters = [*parameters, Struct(grids.numbers(grid))]
            grid = (math.prod(grid), 1, 1)
        self._geometry = (*grid, *threads)
        self._template: list[Any] = []
        """Values of all arguments in the kernel's order, 0 for variable ones."""
        self._variable: list[tuple[int, Variable]] = []
        """Variable arguments by the position of their first value in the template."""
        formats: list[str] = []
        self._kept: list[ConstantMemory] = []
        """Constant memory, released with the launch."""

        def add(value: Any, form: str) -> None:
            self._template.append(value)
            formats.append(form)

        changing: list[int] = []
        for p in parameters:
            position = len(self._template)
            if isinstance(p, (Tensor, Workspace, Number)):
                self._variable.append((position, p))
                for form in _formats(p):
                    changing.append(len(formats))
                    add(0, form)
            elif isinstance(p, Constant):
                add(CONVERTERS[p.type](p.value), FORMATS[p.type])
            elif isinstance(p, Struct):
                add(p.data, f"{round_up(len(p.data), WORD)}s")
            elif isinstance(p, Table):
                table = p.words()
                with runtime.calling(f"allocating a table of {table.nbytes} bytes"):
                    self._kept.append(ConstantMemory(runtime.context, runtime.streams, table))
                add(self._kept[-1].address, ADDRESS)
            else:
                problem = "the kernel has a `__local` parameter, which the CUDA driver does not support"
                fix = "declare a `__local` array of constant size in the kernel"
                raise KernelBuildError(message(kernel.name, problem, fix=fix, device=runtime.info.name))
        # Kernels in front of it in a stream are unknown: they may write operands that a kernel reads early.
        self._starts_early = kernel.dependent and not any(isinstance(p, Tensor) and p.early for p in parameters)
        self._layout = BlockLayout(formats, changing)
        self._write = writer([p for _, p in self._variable])
        self._unused: list[PreparedLaunch] = []
        """Prepared launches that no call uses at the moment: one for each thread that has called at the same time."""

    def __call__(self, *args: Any) -> None:
        runtime = self._runtime
        if runtime.recorder is not None and runtime.recorder.accepts():
            runtime.recorder.add(self.bound(args, runtime.recorder.workspace_bytes))
            return
        try:
            prepared = self._unused.pop()
        except IndexError:
            prepared = self._prepared(self._template)
        self._write(prepared.block.write, args)
        runtime.start(prepared, runtime.streams.only or runtime.streams.current())
        self._unused.append(prepared)

    def _prepared(self, values: Sequence[Any]) -> PreparedLaunch:
        block = ArgumentBlock(self._layout, values)
        return PreparedLaunch(self._kernel, self._geometry, block, starts_early=self._starts_early)

    def bound(self, args: Sequence[Any], workspace_bytes: Mapping[int, int]) -> CudaBoundLaunch:
        """Return this launch with its own argument block, whose values stay set.

        `workspace_bytes` has the size of workspaces by the `id` of their memory, which may be larger.
        """
        values = self._template.copy()
        kept: list[object] = [self._kernel, self]
        slots: list[tuple[int, BindingSlot, int]] = []
        numbers: list[tuple[int, RuntimeScalar, ScalarType]] = []
        early: list[Any] = []
        accesses: list[MemoryAccess] = []
        for position, p in self._variable:
            given = args[p.index]
            if isinstance(p, Tensor):
                early += [given.handle] * p.early
                accesses.append(access_of(given, writes=not p.read_only))
                offset = given.offset + p.start
                if isinstance(given.handle, BindingSlot):
                    slots.append((position, given.handle, offset))
                else:
                    kept.append(given.handle)
                    values[position : position + 2] = given.handle.address, offset
            elif isinstance(p, Workspace):
                accesses.append(MemoryAccess(given, 0, workspace_bytes.get(id(given), given.nbytes), writes=True))
                kept.append(given)
                values[position] = given.address
            elif isinstance(given, RuntimeScalar):
                numbers.append((position, given, p.type))
            else:
                values[position] = CONVERTERS[p.type](given)
        groups, units = math.prod(self._geometry[:3]), self._runtime.features.compute_units
        is_small = groups <= SMALL_LAUNCH * units and not self._waits
        return CudaBoundLaunch(self.name, self._prepared(values), slots, numbers, kept, early, accesses, is_small)


def _formats(parameter: Variable) -> Sequence[str]:
    """Return the formats of the arguments of a variable parameter."""
    if isinstance(parameter, Number):
        return (FORMATS[parameter.type],)
    return (ADDRESS, ADDRESS) if isinstance(parameter, Tensor) else (ADDRESS,)


@dataclass(slots=True, eq=False)
class CudaBoundLaunch:
    """A prepared launch with its arguments set, and the arguments that follow memory and numbers."""

    name: str
    prepared: PreparedLaunch
    slots: list[tuple[int, BindingSlot, int]]
    """Argument index, binding slot of the memory, and offset from its start."""
    numbers: list[tuple[int, RuntimeScalar, ScalarType]]
    kept: list[object]
    """Objects that must live as long as the launch."""
    early: list[Any]
    """Memory and binding slots that the kernel may read before its inputs are complete."""
    accesses: list[MemoryAccess]
    """Memory that the kernel may read or write."""
    is_small: bool
    """True if the launch leaves room for others on the device, and ends without them."""
