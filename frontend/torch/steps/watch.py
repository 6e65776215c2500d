"""State of a recording: memory, live numbers and CPU tensors that the step uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.weak import TensorWeakRef

from polyhal.hal import dtypes
from polyhal.hal.compile.capture.difference import Difference
from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
from polyhal.hal.compile.capture.replay_cache import NotReplayableError
from polyhal.hal.compile.capture.replay_log import RECORDED_SEED
from polyhal.hal.compile.recording import Recording
from polyhal.hal.core.dispatch import Array, RandomSource
from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.errors import CaptureError
from polyhal.hal.ops.opdef import OPS
from polyhal.torch import private
from polyhal.torch.reads import Reads
from polyhal.torch.steps.host import HostProgram, Slot, raise_reason, same
from polyhal.torch.steps.host_arrays import HostArray
from polyhal.torch.steps.mid_step import MidStep
from polyhal.torch.steps.numbers import LiveNumber, stand_in
from polyhal.torch.steps.refusals import as_reason
from polyhal.torch.steps.remedies import remedy

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_FULL = OPS["full"]
_OPTIMIZERS = str(Path(torch.optim.__file__).parent)


def is_in_optimizer() -> bool:
    """Return whether an optimizer of PyTorch is on the call stack."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return True
        frame = frame.f_back
    return False


class Memory(NamedTuple):
    """A storage from outside that a step uses, and its buffer when the step was recorded."""

    storage: Any
    buffer: Any


class Upload(NamedTuple):
    """An input of the graph that is copied from the CPU before each run."""

    source: Slot | torch.Tensor


class Read(NamedTuple):
    """A number that Python reads from a tensor of the device, and that each run checks."""

    number: Any
    line: str
    fix: str

    def difference(self, later: Read) -> Difference:
        """Return the reason for which calls run eagerly if two of them read different numbers."""
        problem = f"the step reads a number that differs from call to call ({self.number}, then {later.number}), at {self.line}"
        return Difference(problem, expected="numbers that stay the same", fix=self.fix)


class StepWatch:
    """State of a step while it is recorded."""

    def __init__(self, recording: Recording, program: HostProgram, numbers: Reads, is_strict: bool) -> None:
        """Begin without calls. A strict step raises an error for an operation that cannot be recorded."""
        self.recording = recording
        self.program = program
        self.is_strict = is_strict
        self.is_left = False
        """True after the recording ended early: the rest of the call runs eagerly."""
        self.leave: Callable[[NotReplayableError], None] = raise_reason
        """Function that ends the recording early: it runs what was recorded, and lets the rest of the call run eagerly."""
        self.renew_settings: Callable[[], None] = lambda: None
        """Function that makes new live numbers of all settings, after a scheduler."""
        self.uploads: list[Array] = []
        """The copies of CPU tensors that are inputs of the graph, in order, as they were recorded."""
        self.inputs: list[int | Upload | Memory] = []
        """Inputs of the graph: indices of arguments of the call, CPU tensors, and memory that may be replaced between runs."""
        self.leaves: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        """Leaves that require gradients, with their gradients before the step."""
        self.memories: dict[int, Memory] = {}
        """Memory from outside by storage."""
        self.written: dict[int, torch.Tensor] = {}
        """Tensors from outside that the step writes to."""
        self.operands: dict[float, list[LiveNumber]] = {}
        """Live numbers of the current call, by their stand-in values."""
        self.saved: dict[float, list[LiveNumber]] = {}
        """Live numbers of all calls so far, which gradient functions may have saved."""
        self.found: set[int] = set()
        """Identities of the live numbers that became operands."""
        self.sources: list[torch.Tensor] = []
        """CPU tensors among the arguments of the current op, which it may copy to the device."""
        self.reads: list[Read] = []
        """Numbers that Python read from tensors of the device."""
        self.numbers = numbers
        """Numbers that Python reads in this call, and has read in the last call that it ran."""
        self.may_repeat = False
        """True if a number differs from the last call, but may stay the same from now on."""
        self.graph_inputs: Callable[[], list[Array]] = list
        """Function that returns the inputs of the graph in this call, as far as they are known."""
        self.calls = 0
        self.is_quiet = False
        self.is_copying = False
        """True while an op copies tensors to the CPU, whose elements later work of the host may read."""
        self.mid_step = MidStep(self)
        self.function: Any = None
        """Function of PyTorch that Python has called last."""
        self.differentiated: set[Any] = set()
        """Nodes of PyTorch's autograd graph whose gradient was computed."""
        self.arguments: set[int] = set()
        """Identities of the storages of the call's tensors."""
        self._made: dict[int, TensorWeakRef] = {}
        """Tensors that ops of the step returned, by identity."""
        self._slots: dict[int, Slot] = {}
        self._kept: list[torch.Tensor] = []
        """Tensors kept alive so that their identities are not reused."""
        self._numbers = 0

    def refuse(self, error: CaptureError) -> None:
        """Raise the error in a strict step; else end the recording, so that the caller can go on eagerly."""
        if self.is_strict:
            raise error
        reason = as_reason(error)
        reason.is_certain = not self.may_repeat
        self.leave(reason)

    def random_state(self, source: RandomSource, state: dict[str, int]) -> dict[str, int]:
        """Return a state of random numbers that the step may have read before it was left."""
        if self.is_left and state["seed"] == RECORDED_SEED:
            return self.recording.recorder.random_state_after(source, state)
        return state

    # --- numbers ----------------------------------------------------------------------------------------------------

    def number(self, compute: Callable[[list[Any]], Any], name: str, *what: Any) -> LiveNumber:
        """Return a number that each run computes at this point."""
        with self.quiet():
            scalar = self.program.add_number(compute, name, *what)
        self._numbers += 1
        return LiveNumber(stand_in(scalar.value, self._numbers), scalar, self.program)

    def read(self, x: torch.Tensor) -> Any:
        """Return the only element of a CPU tensor: a live number if it is a float, else a constant that each run checks."""
        with self.quiet():
            value = x.item()
        saved = self.live(value)
        if saved is not value:  # a number that a gradient function has saved as a tensor
            return saved
        source = self.place(x)
        if self.mid_step.work.includes(source):
            self.mid_step.refuse()
            return value
        if type(value) is float:
            return self.number(lambda values: present_value(source, values).item(), "item", source)
        self.settle(x, torch.Tensor.item, value)
        return value

    def settle(self, x: torch.Tensor, function: Callable[[Any], Any], value: Any) -> None:
        """Check in each run that `function` of a CPU tensor still returns `value`."""
        source, program = self.place(x), self.program
        if self.mid_step.work.includes(source):
            self.mid_step.refuse()
            return
        program.expect(lambda: function(present_value(source, program.values)), value)

    def take_read(self, x: Array) -> np.ndarray | None:
        """Return the element of a tensor of the device that Python reads, if each run can check it.

        Numbers change from call to call more often than answers: they are only checked if the last call read the same one.
        """
        self.program.before_decision()
        if self.is_left:
            return x.device.download(x.ref)
        if self.is_copying:
            return self.mid_step.copied(x)
        is_answer, earlier = x.ref.dtype is dtypes.bool_, self.numbers.next
        if not (is_answer or earlier) or not self.recording.recorder.may_check(x):
            return None
        element = self.recording.known(x, self.graph_inputs())
        if element is None:
            return None
        number = element.reshape(()).item()
        if not (is_answer or same(earlier, [number])):
            self.may_repeat = self.numbers.note_other()
            return None
        self.recording.expect(x, element)
        self.program.decides_late = True
        self.reads.append(Read(number, user_line(), remedy(self.function)))
        return element

    @contextmanager
    def looking_for(self, numbers: Sequence[LiveNumber]) -> Iterator[None]:
        """Find these live numbers among the operands of ops in the block. Raises NotReplayableError if one is not."""
        before, calls = self.operands, self.calls
        self.operands = dict(before)
        for x in numbers:
            outside = float.__pos__(x)
            self.operands[outside] = [*self.operands.get(outside, ()), x]
            self.saved.setdefault(outside, []).append(x)
        self.found -= {id(x) for x in numbers}
        try:
            yield
        finally:
            self.operands = before
        lost = [x for x in numbers if id(x) not in self.found]
        if lost and self.calls > calls and not self.is_left:
            problem = (
                f"a number that changes from run to run (now {lost[0]!r}) is not an operand of an op, at {user_line()}"
            )
            raise NotReplayableError(problem, "pass it as a tensor", is_certain=True)

    def live(self, value: Tensor | complex | float) -> Any:
        """Return the live number that an operand represents, or the operand itself if it is a constant."""
        operands = self.saved if self.saved and private.current_node() is not None else self.operands
        if type(value) is not float or not operands:
            return value
        # Live numbers with equal stand-ins do not depend on their operands' stand-ins, so that their values are always equal.
        for outside in (value, -value):
            numbers = operands.get(outside)
            if numbers:
                self.found |= {id(x) for x in numbers}
                return numbers[-1] if outside == value else -numbers[-1]
        return value

    # --- tensors ----------------------------------------------------------------------------------------------------

    def place(self, x: torch.Tensor) -> Slot | torch.Tensor:
        """Return the source of a CPU tensor in a run: a slot if the step makes it or is passed it, else the tensor itself."""
        return self._slots.get(id(x), x)

    def template(self, x: Any) -> Any:
        """Return arguments with values that differ from run to run replaced by slots and live numbers."""
        if isinstance(x, torch.Tensor):
            return self.place(x)
        if type(x) in (list, tuple):
            return type(x)([self.template(v) for v in x])
        if type(x) is HostArray:
            return x.slot
        return {k: self.template(v) for k, v in x.items()} if type(x) is dict else self.live(x)

    def fill(self, slot: Slot, x: torch.Tensor) -> None:
        """Store a CPU tensor that the step makes or is passed in a slot."""
        self._slots[id(x)] = slot
        self._kept.append(x)
        self.program.values[slot.index] = x

    def before_host_write(self, x: torch.Tensor) -> None:
        """Let each run copy to the device the elements that a CPU tensor has now, before the step changes them."""
        for i, made in enumerate(self.inputs):
            if not isinstance(made, Upload):
                continue
            now = present_value(made.source, self.program.values)
            if now.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
                slot = self.program.new_slot()
                self.program.add_call(torch.clone, (made.source,), {}, [slot])
                self.inputs[i] = Upload(slot)
                self.program.values[slot.index] = now.clone()

    def note_leaf(self, x: torch.Tensor) -> None:
        """Save the gradient of a leaf before the step changes it. Leaves that the step creates are skipped."""
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
        """Ignore calls in the block."""
        before, self.is_quiet = self.is_quiet, True
        try:
            with private.without_functions():
                yield
        finally:
            self.is_quiet = before


def present_value(source: Slot | torch.Tensor, values: list[Any]) -> Any:
    """Return the CPU tensor of a source in one run."""
    return values[source.index] if isinstance(source, Slot) else source
