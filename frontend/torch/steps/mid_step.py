"""Recorder of the work that the host does in the middle of a step, on tensors that were copied from the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polyhal.torch.steps.after_reads import AfterReads, listed
from polyhal.torch.steps.host import Slot
from polyhal.torch.steps.host_arrays import HostArray, plain
from polyhal.torch.steps.refusals import refusal
from polyhal.torch.steps.tree import TREE

if TYPE_CHECKING:
    from polyhal.hal.core.dispatch import Array
    from polyhal.torch.steps.watch import StepWatch

DOWNLOADS = frozenset({torch.Tensor.cpu, torch.Tensor.to})
"""Functions of PyTorch whose copies on the CPU may be used by work of the host in the middle of a step."""


class MidStep:
    """Work of one recording. `work` has its calls."""

    def __init__(self, watch: StepWatch) -> None:
        self._watch = watch
        self.work = AfterReads(watch.program.values)
        watch.program.on_run = self.work.clear
        self._is_downloading = False
        self._copied: list[Array] = []
        """Arrays whose elements the current op has copied to the CPU."""
        self._kept: list[Slot] = []
        """Slots of results of the step."""

    def depends(self, x: Any) -> bool:
        """Return whether arguments depend on a copy."""
        return self.work.includes(self._watch.template(x))

    def refuse(self) -> None:
        """End the recording: Python uses elements, or changes them, in a way that is not recorded."""
        self._watch.refuse(
            refusal(
                "elements that were copied from the device are used in a way that a replay would not repeat",
                expected="functions of PyTorch and NumPy that return other tensors or arrays, or a declared function",
                fix="declare a function of the host with polyhal.torch.host_function, or return the tensor and read it outside",
            )
        )

    # --- from the device --------------------------------------------------------------------------------------------

    @contextmanager
    def downloading(self) -> Iterator[None]:
        """Let ops in the block copy elements to new tensors of the CPU."""
        self._is_downloading = True
        try:
            yield
        finally:
            self._is_downloading = False

    def copied(self, x: Array) -> np.ndarray | None:
        """Return elements that an op copies to the CPU; None if they are not known while the step is recorded."""
        watch = self._watch
        elements = watch.recording.known(x, watch.graph_inputs()) if self._is_downloading else None
        if elements is not None:
            self._copied.append(x)
        return elements

    def note_copies(self, out: Any, used: Sequence[torch.Tensor]) -> None:
        """Note the tensor of the CPU that an op has returned, if it has copied elements there."""
        copied, self._copied = self._copied, []
        if not copied or self._watch.is_left:
            return
        x = copied[0]
        is_new = isinstance(out, torch.Tensor) and out.device.type == "cpu" and all(out is not u for u in used)
        if len(copied) > 1 or not is_new or tuple(out.shape) != x.ref.shape:
            self.refuse()
            return
        program, recorder = self._watch.program, self._watch.recording.recorder
        slot = program.new_slot()
        self.work.add_copy(slot, recorder.value_of(x), x, out)
        self._watch.fill(slot, out)
        program.decides_late = True

    # --- on the host ------------------------------------------------------------------------------------------------

    def reads(self, args: Any, kwargs: Any, written: Sequence[torch.Tensor]) -> bool:
        """Return whether a call with these templates depends on a copy, or writes to memory that such a call reads."""
        return self.work.includes((args, kwargs)) or any(
            x.untyped_storage().data_ptr() in self.work.storages for x in written
        )

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function of the host, and record it if its results are tensors of the CPU or arrays."""
        watch = self._watch
        template, named = watch.template(args), watch.template(kwargs)
        values, keywords = TREE.replaced(args, plain), TREE.replaced(kwargs, plain)
        if watch.is_left or any(isinstance(x, torch.Tensor) and x.device.type != "cpu" for x in TREE.leaves(values)):
            return function(*values, **keywords)
        with watch.quiet():
            result = function(*values, **keywords)
        return self.record(function, template, named, result)

    def record(self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> Any:
        """Record a call with templates of its arguments. Returns its result, in which arrays are recorded ones."""
        watch, made = self._watch, listed(result)
        if not made or not all(map(_is_on_host, made)):
            self.refuse()
            return result
        slots = [watch.program.new_slot() for _ in made]
        self.work.add_call(function, args, kwargs, slots, made)
        watch.calls += 1
        remaining = iter(slots)

        def stored(x: Any) -> Any:
            slot = next(remaining)
            if isinstance(x, torch.Tensor):
                watch.fill(slot, x)
                return x
            watch.program.values[slot.index] = x
            return HostArray(x, slot, self)

        if not isinstance(result, (tuple, list)):
            return stored(result)
        results = [stored(x) for x in made]
        return type(result)(*results) if hasattr(result, "_fields") else type(result)(results)

    def tensor(self, x: Any) -> Any:
        """Return a tensor of the CPU in the memory of a recorded array; anything else as it is."""
        return self.call(torch.from_numpy, (x,), {}) if type(x) is HostArray else x

    # --- to the device ----------------------------------------------------------------------------------------------

    def upload(self, x: Array, slot: Slot) -> None:
        """Let each run copy the value of a slot to `x`, a new array."""
        recorder = self._watch.recording.recorder
        made = self.work.upload(recorder, x.device, slot)
        if made is None:
            raise self._several_devices()
        x.buffer, x.ref = made.buffer, made.ref
        recorder.track(x)

    def keep(self, slot: Slot) -> None:
        """Note that the step returns the value of a slot."""
        if self.work.includes(slot):
            self._kept.append(slot)

    def finish(self) -> None:
        """Let each run make the calls that no node makes: Python has seen the shapes of their results."""
        watch = self._watch
        done = self.work.completion(watch.recording.recorder, self._kept)
        if done is not None:
            if not watch.recording.recorder.may_check(done):
                raise self._several_devices()
            watch.recording.expect(done, np.array(True))

    def _several_devices(self) -> Exception:
        return refusal("the host works on tensors of several devices in the middle of the step", fix="use one device")


def _is_on_host(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, torch.Tensor) and x.device.type == "cpu")
