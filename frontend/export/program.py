"""A captured step as a program for one kind of device: buffers, kernels, launches, and numbers that change from run to run.

It needs neither this library nor Python: docs/exporting.md says how a runtime runs it. `program_file` has its file format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from polyhal.hal.dtypes import as_dtype
from polyhal.hal.launch_descriptions import Access, LocalArgument, ScalarCode

_RESERVED = ("__proto__", "__metadata__")
"""Names with another meaning: of JavaScript's objects, and in files of safetensors."""
_LONGEST_NAME = 1000
Role = Literal["input", "output", "state", "constant", "temporary"]
ROLES: tuple[Role, ...] = ("input", "output", "state", "constant", "temporary")
LANGUAGES = ("wgsl", "opencl-c")
SCALAR_BYTES: dict[ScalarCode, int] = {"int": 4, "uint": 4, "long": 8, "ulong": 8, "float": 4, "double": 8}


def check_name(name: str) -> None:
    """Raise ValueError for a name of a program, tensor or number that not every runtime and checkpoint can have."""
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise ValueError(f"a name of {len(name)} characters; expected 1 to {_LONGEST_NAME}")
    if name in _RESERVED:
        raise ValueError(f"the name {name!r}, which is reserved; choose another one")
    if any("\ud800" <= c <= "\udfff" for c in name):
        raise ValueError(f"the name {name!r}, which UTF-8 cannot hold")


@dataclass(frozen=True, slots=True)
class ProgramBuffer:
    """Memory of the device, which a runtime allocates once."""

    role: Role
    nbytes: int
    content: bytes = b""
    """Initial contents of the first bytes of state and constants; the rest is zero."""


@dataclass(frozen=True, slots=True)
class ProgramTensor:
    """An input, an output or a tensor of the state: its name, and its place in a buffer."""

    name: str
    buffer: int
    offset: int
    """Bytes from the start of the buffer to the first element."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, as the step was recorded."""
    saved_dtype: str = ""
    """Dtype in checkpoints, if another one takes its place on the device."""

    def span(self) -> tuple[int, int]:
        """Return the first byte in the buffer that the tensor uses, and the one after its last."""
        if not prod(self.shape):
            return self.offset, self.offset
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        size = as_dtype(self.dtype).itemsize
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + 1
        return self.offset + low * size, self.offset + high * size


@dataclass(frozen=True, slots=True)
class ProgramKernel:
    """A kernel as its compiler takes it."""

    name: str
    language: str
    entry: str
    source: str
    options: str
    group: tuple[int, ...]
    """Invocations (work-items) of a group along each axis."""


@dataclass(frozen=True, slots=True)
class BufferUse:
    """A buffer as argument of a launch."""

    buffer: int
    offset: int
    """First byte that is bound."""
    nbytes: int
    """Bytes that are bound."""
    access: Access
    binding: int
    """Number of the binding in group 0, in WGSL."""


@dataclass(frozen=True, slots=True)
class ChangingNumber:
    """Bytes of an argument that follow a number of the program."""

    offset: int
    type: ScalarCode
    number: int


@dataclass(frozen=True, slots=True)
class ValueBytes:
    """A scalar or struct as argument, little-endian; in WGSL the uniform buffer of group 1, binding 0."""

    data: bytes
    numbers: tuple[ChangingNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramLaunch:
    """A launch of a kernel."""

    kernel: int
    arguments: tuple[BufferUse | ValueBytes | LocalArgument, ...]
    """In the kernel's order."""
    grid: tuple[int, ...]
    """Groups along each axis."""
    op: str = ""
    """The op that it belongs to, for messages and profiles."""


@dataclass(frozen=True, slots=True)
class ProgramCopy:
    """A copy from one buffer to another."""

    source: int
    source_offset: int
    target: int
    target_offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LiteralNumber:
    """A number that is written in the program: an int, float or bool of Python."""

    value: bool | int | float


@dataclass(frozen=True, slots=True)
class NumberReference:
    """An earlier number of the program."""

    number: int


@dataclass(frozen=True, slots=True)
class NamedNumber:
    """A number that a runtime may set by name. Before each run, it grows by `grows`."""

    name: str
    value: bool | int | float
    grows: int = 0


@dataclass(frozen=True, slots=True)
class NumberOperation:
    """Arithmetic on earlier numbers, computed before each run; `operations.OPERATIONS` lists the names."""

    operation: str
    operands: tuple[NumberReference | LiteralNumber, ...]


@dataclass(frozen=True, slots=True)
class StreamNumber:
    """The seed of a random stream, or the offset of the run in it, in blocks of four words, plus `start`."""

    stream: int
    start: int | None
    """None for the seed."""


ProgramNumber = NamedNumber | NumberOperation | StreamNumber


@dataclass(frozen=True, slots=True)
class ProgramStream:
    """A stream of Philox4x32-10. Each run uses `blocks` blocks from `offset`, and then advances it."""

    seed: int
    offset: int
    blocks: int


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A captured step that runs without this library."""

    name: str
    target: str
    """The kind of device: webgpu or opencl."""
    features: tuple[str, ...] = ()
    """Optional features that the kernels need, by the target's names."""
    buffers: list[ProgramBuffer] = field(default_factory=list)
    inputs: list[ProgramTensor] = field(default_factory=list)
    outputs: list[ProgramTensor] = field(default_factory=list)
    state: list[ProgramTensor] = field(default_factory=list)
    kernels: list[ProgramKernel] = field(default_factory=list)
    commands: list[ProgramLaunch | ProgramCopy] = field(default_factory=list)
    """Launches and copies of one run, in order. Each sees the results of those before it."""
    numbers: list[ProgramNumber] = field(default_factory=list)
    streams: list[ProgramStream] = field(default_factory=list)

    @property
    def launches(self) -> Iterator[ProgramLaunch]:
        """The launches of one run, in order."""
        return (c for c in self.commands if isinstance(c, ProgramLaunch))

    def bytes_of(self, *roles: Role) -> int:
        """Return the bytes of all buffers of some roles."""
        return sum(b.nbytes for b in self.buffers if b.role in roles)

    def __repr__(self) -> str:
        memory = sum(b.nbytes for b in self.buffers) / 2**20
        return (
            f"StepProgram({self.name} for {self.target}: {len(self.kernels)} kernels, {len(self.commands)} commands, "
            f"{memory:.1f} MiB)"
        )
