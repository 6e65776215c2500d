"""Alias analysis while a step is recorded: which value of the graph each part of each buffer holds.

Real tensors that the step meets become inputs of the graph, by the memory they are in. Changes in place become values that
replace inputs when the graph has run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.fake_buffer import FAKE_HANDLE, FakeBuffer
from polyhal.hal.compile.capture.incremental_graph import IncrementalGraph
from polyhal.hal.compile.capture.result import StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Operand, Value
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.dispatch.operands import NUMBERS
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.layout import Ref, Spec, contiguous, extent
from polyhal.hal.ops.opdef import OPS

if TYPE_CHECKING:
    from polyhal.hal.device import Device


@dataclass(slots=True)
class AliasRoot:
    """A part of a buffer that is one value: `value` now, the input `source` at first, or None if a node made it."""

    ref: Ref
    value: int
    source: int | None

    def is_at(self, ref: Ref) -> bool:
        """Return whether this is exactly the memory of `ref`, in the same layout."""
        return self.ref.spec == ref.spec and self.ref.offset == ref.offset

    def covers(self, ref: Ref) -> bool:
        """Return whether all of `ref` is inside, in elements of the same dtype, so that it is a window of this value."""
        if ref.dtype is not self.ref.dtype:
            return False
        low, high = extent(ref.shape, ref.strides)
        start = ref.offset - self.ref.offset
        return self.ref.is_contiguous and start + low >= 0 and start + high < self.ref.size

    def overlaps(self, ref: Ref) -> bool:
        """Return whether the spans of memory intersect."""
        low, high = _bytes_of(ref)
        own_low, own_high = _bytes_of(self.ref)
        return low < own_high and own_low < high


class BufferContents:
    """The values that one buffer holds: its roots, and a cache of the values of views."""

    __slots__ = ("buffer", "changed", "initial_version", "number", "roots", "values")

    def __init__(self, buffer: Buffer, number: int) -> None:
        self.buffer = buffer
        self.number = number
        self.initial_version = buffer.version
        self.roots: list[AliasRoot] = []
        self.values: dict[tuple[Spec, int], int] = {}
        """By spec and offset."""
        self.changed = False

    def covering(self, ref: Ref) -> AliasRoot | None:
        """The root that covers all of `ref`."""
        return next((root for root in self.roots if root.covers(ref)), None)

    def at(self, ref: Ref) -> AliasRoot | None:
        """The root in exactly the memory of `ref`."""
        return next((root for root in self.roots if root.is_at(ref)), None)

    def of_other_dtype(self, ref: Ref) -> list[AliasRoot]:
        """The roots with elements of another dtype than that of `ref`."""
        return [root for root in self.roots if root.ref.dtype is not ref.dtype]

    def updates(self) -> Iterator[tuple[int, int]]:
        """The inputs that are replaced, each with the value that replaces it."""
        for root in self.roots:
            if root.source is not None and root.value != root.source:
                yield root.source, root.value


class AliasTable:
    """The contents of all buffers that a step touches. Looking up a tensor may add an input or a view to the graph."""

    def __init__(self, graph: IncrementalGraph, previous: AliasTable | None = None) -> None:
        """`previous` is the table of a step that this one follows; its results and inputs are inputs here."""
        self._graph = graph
        self._previous = previous
        self._buffers: dict[int, BufferContents] = {}
        self._host_reads: dict[int, tuple[str, Any]] = {}
        """Handles whose contents were read on the host, with the user's line; the handle keeps its identity taken."""
        self.forwarded: list[StepInput | int] = []
        """Inputs of `previous`, and values of its graph, that this step uses."""
        self.first_uses: dict[int, str] = {}
        """The user's line that used a captured constant first, by value."""

    def __iter__(self) -> Iterator[BufferContents]:
        return iter(self._buffers.values())

    # --- reading ----------------------------------------------------------------------------------------------------

    def operand(self, x: Any) -> Operand:
        """The operand of a node for an array, a number, a runtime scalar or None."""
        if x is None or type(x) in NUMBERS:
            number: Operand = x
            return number
        return self._graph.scalar(x) if isinstance(x, RuntimeScalar) else Value(self.value_of(x))

    def value_of(self, x: Array) -> int:
        """The value that an array holds now."""
        contents = self._contents(x.buffer)
        key = (x.ref.spec, x.ref.offset)
        value = contents.values.get(key)
        if value is None:
            value = contents.values[key] = self._new_view(contents, x)
        return value

    def memory_of(self, x: Array) -> int:
        """Return a number for the buffer of an array; arrays in one buffer have equal numbers."""
        return self._contents(x.buffer).number

    def add_input(self, x: Array) -> int:
        """Register `x` as a graph input. Returns its position among the step's inputs."""
        position, value = self._graph.add_step_input(x.ref.spec, x.device)
        contents = self._contents(x.buffer)
        key = (x.ref.spec, x.ref.offset)
        if key not in contents.values:
            contents.roots.append(AliasRoot(x.ref, value, value))
            contents.values[key] = value
        return position

    def add_result(self, x: Array, value: int) -> None:
        """Register `x` as the array, in a buffer of its own, of a value that a node makes."""
        contents = self._contents(x.buffer)
        contents.roots.append(AliasRoot(x.ref, value, None))
        contents.values[x.ref.spec, x.ref.offset] = value

    def add_view(self, x: Array, value: int) -> None:
        """Register `x` as a view with the value of a node."""
        self._contents(x.buffer).values[x.ref.spec, x.ref.offset] = value

    def add_whole(self, x: Array) -> None:
        """Let views of `x` be windows of one value. Without it, the first view that is used would be a value of its own."""
        if id(x.buffer) not in self._buffers and x.ref.is_contiguous and not isinstance(x.buffer, FakeBuffer):
            self.value_of(x)

    def add_frozen(self, x: Array, constant: CapturedConstant) -> None:
        """Register `x` as the array, in a buffer of its own, of elements that are the same at each run."""
        value = self._graph.add_input(constant, constant.ref.spec)
        self.first_uses[value] = user_line()
        self.add_result(x, value)

    def frozen_memory(self, x: Array) -> tuple[Buffer, Ref] | None:
        """Where the elements of a fake tensor lie if they are the same at each run; None if they are not."""
        contents = self._buffers.get(id(x.buffer))
        root = None if contents is None else contents.covering(x.ref) or contents.at(x.ref)
        source = None if root is None else self._graph.sources.get(root.value)
        if root is None or not isinstance(source, CapturedConstant) or not source.frozen:
            return None
        return source.buffer, Ref(source.ref.handle, x.ref.spec, source.ref.offset + x.ref.offset - root.ref.offset)

    def present(self, x: Array) -> int | None:
        """Return the value that the memory of an array, or a larger part of its buffer, holds now; None if it has none."""
        contents = self._buffers.get(id(x.buffer))
        root = None if contents is None else contents.covering(x.ref) or contents.at(x.ref)
        return None if root is None else root.value

    def check_read(self, ref: Ref) -> None:
        """Raise CaptureError for elements that do not exist yet, or will differ in another run."""
        contents = next((c for c in self._buffers.values() if c.buffer.handle is ref.handle), None)
        roots = [] if contents is None else contents.roots
        first = (self._graph.sources.get(r.value if r.source is None else r.source) for r in roots)
        changed = contents is not None and contents.changed
        if ref.handle is FAKE_HANDLE or changed or any(isinstance(source, StepInput) for source in first):
            raise read_error(ref.spec, user_line())
        self._host_reads.setdefault(id(ref.handle), (user_line(), ref.handle))

    # --- writing ----------------------------------------------------------------------------------------------------

    def store(self, target: Array, value: Operand) -> None:
        """Let the memory of `target` hold `value` in later ops. Raises CaptureError for memory with overlapping roots."""
        ref = target.ref
        if not ref.size:
            self._contents(target.buffer)  # so that the version is restored
            target.buffer.version += 1
            return
        if ref.handle is not FAKE_HANDLE and id(ref.handle) in self._host_reads:
            raise read_error(ref.spec, self._host_reads[id(ref.handle)][0])
        contents = self._contents(target.buffer)
        root = contents.covering(ref) or contents.at(ref)
        if root is None:
            if isinstance(target.buffer, FakeBuffer) or any(r.overlaps(ref) for r in contents.roots):
                raise _overlap_error(ref)
            root = self._new_constant(contents, _dense_span(ref), target.device)
        if any(r is not root and r.overlaps(ref) for r in contents.roots):
            raise _overlap_error(ref)
        own = root.ref
        whole = root.is_at(ref) or (
            own.size == ref.size and own.offset == ref.offset and own.is_contiguous and ref.is_contiguous
        )
        replacement = self._replacement(value, ref, target.device) if whole else None
        if replacement is not None and own.shape != ref.shape:
            (replacement,), _ = self._graph.add_node(OPS["reshape"], (Value(replacement),), (own.shape,), target.device)
        if replacement is not None:
            root.value = replacement
        else:
            params = (ref.shape, ref.strides, ref.offset - root.ref.offset)
            operands = (Value(root.value), value)
            (root.value,), _ = self._graph.add_node(OPS["overwrite"], operands, params, target.device, (0,))
        contents.changed = True
        contents.values = {(r.ref.spec, r.ref.offset): r.value for r in contents.roots}
        target.buffer.version += 1

    def _replacement(self, value: Operand, ref: Ref, device: Device) -> int | None:
        """The value of memory after all of it was overwritten, which passes may fuse with others; None if it takes a window."""
        spec = self._graph.spec_of(value)
        operands: tuple[Operand, ...]
        params: tuple[Any, ...]
        if isinstance(value, (bool, int, float)):
            op, operands, params = "full", (), (ref.shape, value, ref.dtype)
        elif not isinstance(value, Value) or not isinstance(spec, Spec) or spec.shape != ref.shape:
            return None
        elif spec == contiguous(ref.dtype, ref.shape):
            return value.index
        else:
            op, operands, params = (
                ("copy", (value,), ()) if spec.dtype is ref.dtype else ("cast", (value,), (ref.dtype,))
            )
        (made,), _ = self._graph.add_node(OPS[op], operands, params, device)
        return made

    def restore_versions(self) -> None:
        """Give all buffers the versions that they had before."""
        for contents in self:
            contents.buffer.version = contents.initial_version

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _contents(self, buffer: Buffer) -> BufferContents:
        contents = self._buffers.get(id(buffer))
        if contents is None:
            contents = self._buffers[id(buffer)] = BufferContents(buffer, len(self._buffers))
        return contents

    def _new_view(self, contents: BufferContents, x: Array) -> int:
        """The value of a part of a buffer that was not looked at in this layout before."""
        root = contents.covering(x.ref) or self._forward(contents, x)
        if root is not None:
            return root.value if root.is_at(x.ref) else self._window(root, x.ref, x.device)
        if any(
            root.overlaps(x.ref) and not self._is_constant(contents, root) for root in contents.of_other_dtype(x.ref)
        ):
            raise _dtype_error(x.ref)
        if isinstance(x.buffer, FakeBuffer):
            raise CaptureError(message(None, f"a tensor of another capture is used, at {user_line()}"))
        if contents.changed and any(root.overlaps(x.ref) for root in contents.roots):
            raise _overlap_error(x.ref)
        root = self._new_constant(contents, x.ref, x.device)
        self.first_uses[root.value] = user_line()
        return root.value

    def _is_constant(self, contents: BufferContents, root: AliasRoot) -> bool:
        """Return whether a part of a buffer is memory from outside that neither a call nor the step replaces."""
        return not contents.changed and isinstance(self._graph.sources.get(root.value), CapturedConstant)

    def _new_constant(self, contents: BufferContents, ref: Ref, device: Device) -> AliasRoot:
        """A root for memory that stays where it is from run to run."""
        value = self._graph.add_input(CapturedConstant(contents.buffer, ref, device), ref.spec)
        root = AliasRoot(ref, value, value)
        contents.roots.append(root)
        return root

    def _forward(self, contents: BufferContents, x: Array) -> AliasRoot | None:
        """The part of a buffer that the previous step made or was passed, as an input of this one."""
        previous = self._previous
        earlier = None if previous is None else previous._buffers.get(id(contents.buffer))
        origin = None if earlier is None else earlier.covering(x.ref) or earlier.at(x.ref)
        if previous is None or origin is None:
            return None
        source = previous._graph.sources.get(origin.value)
        if isinstance(source, CapturedConstant):
            if not source.frozen:
                return None
            value = self._graph.add_input(source, source.ref.spec)
        else:
            _, value = self._graph.add_step_input(origin.ref.spec, x.device)
            self.forwarded.append(source if isinstance(source, StepInput) else origin.value)
        root = AliasRoot(origin.ref, value, value)
        contents.roots.append(root)
        return root

    def _window(self, root: AliasRoot, ref: Ref, device: Device) -> int:
        """A view of the memory of a root."""
        params = (ref.shape, ref.strides, ref.offset - root.ref.offset)
        (value,), _ = self._graph.add_node(OPS["window"], (Value(root.value),), params, device)
        return value


def _dense_span(ref: Ref) -> Ref:
    """The contiguous memory that a layout spans; `ref` itself if that is contiguous."""
    if ref.is_contiguous:
        return ref
    low, high = extent(ref.shape, ref.strides)
    return Ref(ref.handle, contiguous(ref.dtype, (high - low + 1,)), ref.offset + low)


def _bytes_of(ref: Ref) -> tuple[int, int]:
    """Return the first byte of a reference in its buffer, and the byte after its last."""
    low, high = extent(ref.shape, ref.strides)
    return (ref.offset + low) * ref.dtype.itemsize, (ref.offset + high + 1) * ref.dtype.itemsize


def _dtype_error(ref: Ref) -> CaptureError:
    return CaptureError(
        message(
            None,
            f"the memory of a tensor of another dtype is read as {ref.spec}, at {user_line()}",
            expected="the bytes of tensors to be read as one dtype",
            fix="convert with to(dtype), or do it outside of the step",
        )
    )


def _overlap_error(ref: Ref) -> CaptureError:
    return CaptureError(
        message(
            None,
            f"a tensor of shape {ref.shape} is changed in place, and another one that overlaps it in memory is used, "
            f"at {user_line()}",
            expected="tensors that are changed in place to be seen through their own views only",
            fix="change a clone",
        )
    )


def read_error(spec: Spec, line: str) -> CaptureError:
    """Return the error for a value that is read on the host at a line of the program."""
    return CaptureError(
        message(
            None,
            f"the value of a {spec} is read while it is only being recorded, at {line}",
            expected="ops on tensors: a captured step takes the same path at each run",
            fix="use polyhal.where, or return the tensor and read it outside",
        )
    )
