"""What is known of a step while it is recorded: its memory, its live numbers, and what it takes from the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.weak import TensorWeakRef

from polyhal.hal.capture.fake_buffer import FakeBuffer
from polyhal.hal.capture.user_line import user_line
from polyhal.hal.dispatch import Array, ForwardingExecutor
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.recording import Recording
from polyhal.torch import private, tensors
from polyhal.torch.steps.host import HostProgram, NotReplayableError, Slot
from polyhal.torch.steps.numbers import LiveNumber, stand_in

_TORCH = str(Path(torch.__file__).parent)
_FULL = OPS["full"]
_OPTIMIZERS = str(Path(torch.optim.__file__).parent)


def here() -> str:
    """The line of the user's program that is running."""
    return user_line((_TORCH,))


class RefusedError(CaptureError):
    """What a recorded step cannot do, with the line that does it."""


def is_in_optimizer() -> bool:
    """Whether an optimizer of PyTorch is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return True
        frame = frame.f_back
    return False


def refusal(problem: str, *, expected: str = "", fix: str = "") -> CaptureError:
    """The error for what a recorded step cannot do, at the line that does it."""
    return RefusedError(message("jit", f"{problem}, at {here()}", expected=expected, fix=fix))


class Memory(NamedTuple):
    """Memory from outside that a step uses, and the buffer that it was when recorded."""

    storage: Any
    buffer: Any


class Upload(NamedTuple):
    """An argument of the graph that is copied from the CPU before each run."""

    source: Slot | torch.Tensor


class StepWatch:
    """What is known of a step while it is recorded."""

    def __init__(self, recording: Recording, program: HostProgram) -> None:
        self.recording = recording
        self.program = program
        self.inputs: list[int | Upload | Memory] = []
        """The arguments of the graph: those of the call by number, CPU tensors, and memory that may move between runs."""
        self.leaves: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        """Leaves that need gradients, with the gradients they had before."""
        self.memories: dict[int, Memory] = {}
        """Memory from outside by storage."""
        self.written: dict[int, torch.Tensor] = {}
        """Tensors from outside that are written to."""
        self.operands: dict[float, list[LiveNumber]] = {}
        """The live numbers of the present call, by what they look like on the outside."""
        self.found: set[int] = set()
        """Those that became operands."""
        self.sources: list[torch.Tensor] = []
        """CPU tensors among the arguments of the present op, which it may copy to the device."""
        self.calls = 0
        self.is_quiet = False
        self.differentiated: set[Any] = set()
        """Nodes of PyTorch's graph whose gradient was computed."""
        self.arguments: set[int] = set()
        """The storages of the call's tensors."""
        self._made: dict[int, TensorWeakRef] = {}
        """Tensors that ops of the step returned, by identity."""
        self._slots: dict[int, Slot] = {}
        self._kept: list[torch.Tensor] = []
        """Keeps identities taken."""
        self._numbers = 0

    # --- numbers ----------------------------------------------------------------------------------------------------

    def number(self, compute: Callable[[list[Any]], Any], name: str, *what: Any) -> LiveNumber:
        """A number that each run computes at this point."""
        with self.quiet():
            scalar = self.program.add_number(compute, name, *what)
        self._numbers += 1
        return LiveNumber(stand_in(scalar.value, self._numbers), scalar, self.program)

    def read(self, x: torch.Tensor) -> Any:
        """The only element of a CPU tensor: a live number, or one on which the recording depends if it is no float."""
        with self.quiet():
            value = x.item()
        source = self.place(x)
        if type(value) is float:
            return self.number(lambda values: present_value(source, values).item(), "item", source)
        self.settle(x, torch.Tensor.item, value)
        return value

    def settle(self, x: torch.Tensor, function: Callable[[Any], Any], value: Any) -> None:
        """Let the recording depend on what `function` says of a CPU tensor."""
        source, program = self.place(x), self.program
        program.expect(lambda: function(present_value(source, program.values)), value)

    @contextmanager
    def looking_for(self, numbers: Sequence[LiveNumber]) -> Iterator[None]:
        """Find these live numbers among the operands of ops in the block. Raises NotReplayableError if one is not."""
        before, calls = self.operands, self.calls
        self.operands = dict(before)
        for x in numbers:
            outside = float.__pos__(x)
            self.operands[outside] = [*self.operands.get(outside, ()), x]
        self.found -= {id(x) for x in numbers}
        try:
            yield
        finally:
            self.operands = before
        lost = [x for x in numbers if id(x) not in self.found]
        if lost and self.calls > calls:
            problem = f"a number that changes from run to run (now {lost[0]!r}) is no operand of an op, at {here()}"
            raise NotReplayableError(problem, "pass it as a tensor", is_certain=True)

    def live(self, value: Any) -> Any:
        """The live number that an operand is; the operand itself if it is a constant."""
        if type(value) is not float or not self.operands:
            return value
        # Numbers that look the same in spite of different stand-ins do not depend on these, and always are the same.
        for outside in (value, -value):
            numbers = self.operands.get(outside)
            if numbers:
                self.found |= {id(x) for x in numbers}
                return numbers[-1] if outside == value else -numbers[-1]
        return value

    # --- tensors ----------------------------------------------------------------------------------------------------

    def place(self, x: torch.Tensor) -> Slot | torch.Tensor:
        """Where a run finds a CPU tensor: in a slot if the step makes it, else the tensor is used as it is."""
        return self._slots.get(id(x), x)

    def fill(self, slot: Slot, x: torch.Tensor) -> None:
        """Let a slot hold a CPU tensor that the step makes or is passed."""
        self._slots[id(x)] = slot
        self._kept.append(x)
        self.program.values[slot.index] = x

    def note_leaf(self, x: torch.Tensor) -> None:
        """Remember the gradient of a leaf before the step changes it. A leaf that the step makes has none."""
        made = self._made.get(id(x))
        if id(x) not in self.leaves and (made is None or made() is not x):
            with private.without_functions():
                self.leaves[id(x)] = (x, x.grad)

    def note_result(self, x: torch.Tensor) -> None:
        """Note a tensor that an op of the step returned."""
        self._made[id(x)] = TensorWeakRef(x)

    def note_use(self, x: torch.Tensor) -> None:
        """Note a tensor of the device that an op uses."""
        storage = x.untyped_storage()
        root = getattr(storage, "root", None)
        if root is None or isinstance(root.buffer, FakeBuffer):  # made in the step
            return
        if x.requires_grad and x.is_leaf:
            self.note_leaf(x)
        if id(storage) in self.memories or id(storage) in self.arguments:
            return
        memory = self.memories[id(storage)] = Memory(storage, root.buffer)
        if getattr(storage, "moves", False):
            self.recording.argument(root)
            self.inputs.append(memory)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Take no notice of what is called in the block."""
        before, self.is_quiet = self.is_quiet, True
        try:
            with private.without_functions():
                yield
        finally:
            self.is_quiet = before


class LiveOperands(ForwardingExecutor):
    """Records ops with live numbers in place of what they look like, and copies from the CPU as arguments."""

    __slots__ = ("_watch",)

    def __init__(self, base: Any, watch: StepWatch) -> None:
        super().__init__(base)
        self._watch = watch

    def _operand(self, x: Any) -> Any:
        x = self._watch.live(x)
        return x.scalar if isinstance(x, LiveNumber) else x

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        if op is _FULL:
            shape, value, dtype = params
            filling = self._operand(value)
            if filling is not value and dtype.is_floating_point:
                ones = self.base.apply(op, inputs, (shape, 1, dtype), device)
                return self.base.apply(OPS["multiply"], (ones, filling), ())
        return self.base.apply(op, tuple(map(self._operand, inputs)), params, device)

    def apply_into(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Array, ...]) -> None:
        self.base.apply_into(op, tuple(map(self._operand, inputs)), params, outs)

    def overwrite(self, target: Array, value: Any) -> None:
        self.base.overwrite(target, self._operand(value))

    def capture_constant(self, x: Array) -> None:
        watch = self._watch
        for i, source in enumerate(watch.sources):
            if tuple(source.shape) == x.ref.shape and tensors.DTYPES.get(source.dtype) is x.ref.dtype:
                watch.recording.make_argument(x)
                watch.inputs.append(Upload(watch.place(source)))
                del watch.sources[i]
                return
        self.base.capture_constant(x)


def present_value(source: Slot | torch.Tensor, values: list[Any]) -> Any:
    """The CPU tensor at a place in one run."""
    return values[source.index] if isinstance(source, Slot) else source
