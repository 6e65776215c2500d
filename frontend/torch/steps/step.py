"""A recorded step of PyTorch: its graph, its host program and its guards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from polyhal.hal.compile.capture.difference import Difference
from polyhal.hal.compile.capture.replay_cache import ReplayStep
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.errors import LinAlgError
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, extent
from polyhal.hal.system.diagnostics.explain_graph import explain
from polyhal.tensor import wrap
from polyhal.torch import private, tensors
from polyhal.torch.failures import translated
from polyhal.torch.steps.guards import Guards
from polyhal.torch.steps.host import HostProgram, Slot, same
from polyhal.torch.steps.results import Results, Run
from polyhal.torch.steps.signature import Call
from polyhal.torch.steps.watch import Memory, StepWatch, Upload

_PRESENT = object()
"""Sentinel for a gradient that must exist, although the step does not read its elements."""


def dense_span(x: torch.Tensor) -> Any:
    """Return the memory span of a tensor of the device as a dense array; of real and imaginary parts for complex tensors."""
    root = tensors.root_of(x)
    shape, strides = tuple(x.shape), x.stride()
    offset: Any = x.storage_offset()
    if x.is_complex():
        shape, strides, offset = (*shape, 2), (*(2 * s for s in strides), 1), 2 * offset
    dtype = tensors.dtype_of(x.dtype.to_real())
    if x.is_contiguous():
        spec = Spec(dtype, shape, strides, offset % ALIGNMENT == 0)
    else:
        low, high = extent(shape, strides)
        offset += low
        spec = Spec(dtype, (high - low + 1,), (1,), offset % ALIGNMENT == 0)
    return wrap(root.device, root.buffer, Ref(root.ref.handle, spec, offset))


class RecordedStep(ReplayStep[Call]):
    """Recording of one call, and the executable that replays it."""

    def __init__(
        self, captured: CapturedGraph, watch: StepWatch, results: Results, guards: Guards, finals: Sequence[Any]
    ) -> None:
        """Store a recording; `finals` are the gradients of `watch.leaves` after the step, in order."""
        super().__init__(captured)
        self.results = results
        self.guards = guards
        self._reads = watch.reads
        self.host: HostProgram = watch.program
        self._mid_step = watch.mid_step.work
        self._inputs = watch.inputs
        self._memories = [m for m in watch.memories.values() if m not in watch.inputs]
        self._known = frozenset(m.storage._cdata for m in watch.memories.values())
        self._written = list(watch.written.values())
        self._leaves = [leaf for leaf, _ in watch.leaves.values()]
        self._initial = [_initial_gradient(g, watch) for _, g in watch.leaves.values()]
        self._finals = list(finals)

    @cached_property
    def executable(self) -> Executable:
        """Planned program with its memory. Raises OutOfMemoryError."""
        return Executable(self.captured)

    def same_as(self, later: RecordedStep) -> bool:
        """Return whether a later recording is equal."""
        return (
            super().same_as(later)
            and self._repeats_host_work(later)
            and len(self._inputs) == len(later._inputs)
            and all(map(_same_input, self._inputs, later._inputs))
            and self.results.same_as(later.results)
            and {id(x) for x in self._leaves} == {id(x) for x in later._leaves}
        )

    def difference(self, later: RecordedStep) -> Difference | None:
        """Return why a replay would not repeat a later call; None if Python took another path by a number that is checked."""
        for own, other in zip(self._reads, later._reads, strict=False):
            if not same(own.number, other.number):
                return None if isinstance(own.number, bool) else own.difference(other)
        if self.host.decides_otherwise(later.host):
            return None
        found = super().difference(later)
        if found is None and not self._repeats_host_work(later):
            problem = "the step does other work on CPU tensors at each call"
            found = Difference(problem, fix="pass changing values as tensor or float arguments")
        return found or self.results.difference(later.results)

    def _repeats_host_work(self, later: RecordedStep) -> bool:
        return self.host.same_as(later.host) and self._mid_step.same_as(later._mid_step)

    def changed_guard(self) -> str:
        return self.guards.changed() or super().changed_guard()

    def explain(self) -> str:
        return explain(self.executable)

    def adopt(self, later: RecordedStep) -> None:
        """Take over the state of a later, equal recording, whose tensors are in use now."""
        self.captured.live_outs = later.captured.live_outs
        self._inputs = later._inputs
        self._memories = later._memories
        self._known = later._known
        self._written = later._written
        self._leaves = later._leaves
        self._finals = later._finals
        self._initial = later._initial
        self.guards = later.guards

    def holds(self, call: Call) -> bool:
        """Return whether Python objects, gradients and memory are as they were when the step was recorded.

        Arguments must not share storages with tensors to which the step refers directly.
        """
        if self._known.intersection(map(private.storage_key, call.tensors)):
            return False
        for leaf, wanted in zip(self._leaves, self._initial, strict=True):
            now = leaf.grad
            if now is not wanted and (wanted is not _PRESENT or now is None):
                return False
        return not self.moved() and self.guards.hold()

    def moved(self) -> list[Any]:
        """Return the storages whose buffer was replaced after the step was recorded."""
        return [m.storage for m in self._memories if m.storage.root.buffer is not m.buffer]

    def run(self, call: Call) -> Any:
        """Run once. Raises PathChangedError before any effect, and PyTorch's LinAlgError for singular matrices."""
        host = self.host
        host.run(call.host)
        try:
            made = self.executable.run([self._argument(x, call) for x in self._inputs], self.results.count)
        except BaseException as error:
            host.undo()
            if isinstance(error, LinAlgError):
                raise translated(error) from error
            raise
        host.finish()
        for leaf, final in zip(self._leaves, self._finals, strict=True):
            if leaf.grad is not final:
                leaf.grad = final
        private.increment_versions(self._written)
        result = self.results.fill(Run(call.tensors, made, host.values))
        host.release()
        return result

    def _argument(self, x: int | Upload | Memory, call: Call) -> Any:
        if isinstance(x, int):
            return dense_span(call.tensors[x])
        if isinstance(x, Memory):
            return x.storage.root
        source = x.source
        return tensors.upload(self.host.values[source.index] if isinstance(source, Slot) else source)


def _same_input(a: int | Upload | Memory, b: int | Upload | Memory) -> bool:
    """Return whether two recordings take an input of the graph from the same source; memory that may move counts as one."""
    return same(a, b) if isinstance(a, (int, Upload)) else isinstance(b, Memory)


def _initial_gradient(gradient: torch.Tensor | None, watch: StepWatch) -> Any:
    """Return the gradient that a leaf must have before a run: this very tensor if the step reads its elements."""
    if gradient is None:
        return None
    return gradient if id(gradient.untyped_storage()) in watch.memories else _PRESENT
