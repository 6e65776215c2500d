"""Recording a whole step as a graph: ops on ordinary tensors that have no memory while they are recorded.

A capture is what `dispatch` sends the ops of a thread to. Results are tensors whose buffer is `Pending`; real tensors that the
step meets become inputs of the graph, under the memory that they lie in. Changes in place become values that replace
inputs when the graph has run. The tape is written as usual, so the backward pass and the optimizer are ops like others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from polyhal.hal import dispatch
from polyhal.hal.capture.aliasing import AliasRoot, BufferContents, entangled, reading
from polyhal.hal.capture.gradients import GradientTable
from polyhal.hal.capture.result import (
    FAKE_HANDLE,
    CapturedConstant,
    CapturedGraph,
    FakeBuffer,
    InputSource,
    StepInput,
)
from polyhal.hal.capture.runtime_scalars import RandomStream, RuntimeScalar
from polyhal.hal.capture.scopes import ModuleScopes
from polyhal.hal.capture.user_line import user_line
from polyhal.hal.dispatch import Array
from polyhal.hal.errors import CaptureError, ShapeError, message
from polyhal.hal.ir.graph import Graph, Node, Operand, Origin
from polyhal.hal.layout import Ref, ScalarSpec, Spec, contiguous, extent, place
from polyhal.hal.ops.opdef import OPS, OpDef, Value
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_NUMBERS = (float, int, bool)


class StepRecorder:
    """Records one step. `executor` is what `dispatch` calls; `finish` gives the graph, `abandon` forgets it.

    `before` is the capture of a step that this one follows, as a backward pass does: what that one made is an argument here.
    """

    def __init__(self, before: StepRecorder | None = None) -> None:
        self._before = before
        self.forwarded: list[StepInput | int] = []
        """What is passed here on from `before`: its arguments, and values of its graph by number."""
        self._passed = 0
        self._undo: list[Callable[[], object]] = []
        self._modes: list[tuple[Any, bool]] = []
        self._lines: dict[int, str] = {}
        self._read: dict[int, tuple[str, Any]] = {}
        """Handles whose contents were read on the host, and where."""
        self._specs: list[Any] = []
        self._nodes: list[Node] = []
        self._sources: dict[int, InputSource] = {}
        self._memories: dict[int, BufferContents] = {}
        self._notes: list[Callable[[], object]] = []
        self._numbers: dict[int, int] = {}
        self._streams: dict[int, RandomStream] = {}
        self._tensors: list[weakref.ref[Any]] = []
        self._again = self._recomputations = 0
        self._gradients = GradientTable()
        self.names = ModuleScopes()

    # --- what the step is made of -----------------------------------------------------------------------------------

    def argument(self, x: Array) -> int:
        """Take `x` for a tensor that each run is given anew. Returns its position among the arguments."""
        position = self._passed
        self._passed += 1
        slot = self._input(StepInput(position, x.ref.spec, x.device), x.ref.spec)
        memory = self._memory(x.buffer)
        key = (x.ref.spec, x.ref.offset)
        if key not in memory.values:
            memory.roots.append(AliasRoot(x.ref, slot, slot))
            memory.values[key] = slot
        return position

    def number(self, compute: Callable[[], Any], name: str = "", increment: int = 0) -> RuntimeScalar:
        """A number that is computed at each run."""
        live = RuntimeScalar(compute, name, increment)
        self._notes.append(live.refresh)
        return live

    def each_run(self, action: Callable[[], object]) -> None:
        """Something for Python to do at each run. It is not done now."""
        self._notes.append(action)

    def undo(self, action: Callable[[], object]) -> None:
        """Something that takes back what was done to a Python object, should the capture fail."""
        self._undo.append(action)

    def random(
        self, take: Callable[[int], tuple[int, int]], stream: object, count: int
    ) -> tuple[RuntimeScalar, RuntimeScalar]:
        """The seed and offset of `count` words that each run takes from `stream` anew, by `take`."""
        found = self._streams.get(id(stream))
        if found is None:
            found = self._streams[id(stream)] = RandomStream(stream, take)
            self._notes.append(found.draw)
        return found.reserve(count)

    def track(self, x: Any) -> None:
        """Know of a tensor that may outlive the capture."""
        self._tensors.append(weakref.ref(x))

    # --- executing --------------------------------------------------------------------------------------------------

    def executor(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        """Record one op; the executor interface of `dispatch`."""
        inputs, device = dispatch.admitted(op, inputs, device)
        params = dispatch.freeze(params)
        slots = tuple(self._operand(x) for x in inputs)
        made, moved = self._add(op, slots, params, device)
        outs = []
        for slot in made:
            spec = self._specs[slot]
            if moved is not None:
                base = inputs[0]
                out = dispatch.frontend.wrap(device, base.buffer, Ref(base.ref.handle, spec, base.ref.offset + moved))
                self._memory(base.buffer).values[spec, out.ref.offset] = slot
                self.track(out)
            else:
                out = self._pending(slot, device)
            outs.append(out)
        results = tuple(outs)
        if dispatch.thread.grad_enabled and any(hasattr(x, "ref") and x.requires_grad for x in inputs):
            dispatch.frontend.record(op, inputs, params, results)
            if results[0].node is not None:
                self.names.taped(results[0].node.order)
        return results if op.returns_tuple else results[0]

    def transfer(self, x: Array, device: Device) -> Any:
        """Record a copy of `x` on another device, off the tape."""
        made, _ = self._add(OPS["transfer"], (self._operand(x),), (), device)
        return self._pending(made[0], device)

    def into(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        """Record an op whose results are written over existing tensors (see `dispatch.apply_into`)."""
        device = outs[0].device
        slots = tuple(self._operand(x) for x in inputs)
        held = [self._operand(out) for out in outs]
        replaces = tuple(slots.index(h) if h in slots else -1 for h in held)
        made, _ = self._add(op, slots, dispatch.freeze(params), device, replaces)
        for out, slot in zip(outs, made, strict=True):
            spec = self._specs[slot]
            if spec.shape != out.ref.shape or spec.dtype is not out.ref.dtype:
                raise ShapeError(message(op.name, f"the result is {spec}", expected=f"the target's {out.ref.spec}"))
            self._store(out, Value(slot))

    def overwrite(self, target: Array, value: Any) -> None:
        """Record that `target`'s elements are replaced by a number, or by those of a tensor of the same shape."""
        self._store(target, self._operand(value))

    def gradient_read(self, leaf: Any) -> None:
        """Note that a leaf's gradient is looked at."""
        passed = self._gradients.read(leaf)
        if passed is not None:
            passed.position = self.argument(passed.found)

    def gradient_set(self, leaf: Any) -> None:
        """Note that a leaf's gradient is replaced, before that is done."""
        self._gradients.of(leaf)

    def refuse_reading(self, ref: Ref) -> None:
        """Raise CaptureError when a value is wanted on the host that is not there yet, or that another run will not have."""
        memory = next((m for m in self._memories.values() if m.buffer.handle is ref.handle), None)
        passed = memory is not None and any(
            isinstance(self._sources.get(r.slot if r.source is None else r.source), StepInput) for r in memory.roots
        )
        if ref.handle is FAKE_HANDLE or passed or (memory is not None and memory.changed):
            raise reading(ref.spec, user_line())
        self._read.setdefault(id(ref.handle), (user_line(), ref.handle))

    # --- modules and regions -----------------------------------------------------------------------------------------

    def inside(self, module: Any) -> AbstractContextManager[None]:
        """Have what is recorded in the block belong to `module`."""
        if self.names.outermost:
            self._modes += [(child, child.training) for _, child in module.named_modules()]
        return self.names.inside(module)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Have what is recorded in the block computed again, and not kept from the first time."""
        previous = self._again
        self._recomputations += 1
        self._again = self._recomputations
        try:
            yield
        finally:
            self._again = previous

    # --- the end ----------------------------------------------------------------------------------------------------

    def value_of(self, x: Array) -> int:
        """The number of the value that a tensor holds now; for `finish`."""
        operand = self._operand(x)
        assert isinstance(operand, Value)
        return operand.index

    def finish(self, results: Iterable[int]) -> CapturedGraph:
        """The graph of what was recorded, given the values that the step returns, by `value_of`."""
        wanted = list(results)
        alive = [t for t in (ref() for ref in self._tensors) if t is not None and isinstance(t.buffer, FakeBuffer)]
        kept = [self.value_of(t) for t in alive]
        order = [*self._sources, *[i for n in self._nodes for i in n.outputs]]
        new = {old: i for i, old in enumerate(order)}
        graph = Graph([self._specs[i] for i in self._sources])
        graph.specs = [self._specs[i] for i in order]
        graph.nodes = [
            n._replace(
                inputs=tuple(Value(new[x.index]) if isinstance(x, Value) else x for x in n.inputs),
                outputs=tuple(new[i] for i in n.outputs),
            )
            for n in self._nodes
        ]
        graph.outputs = tuple(new[i] for i in (*wanted, *kept))
        written, rewritten = {}, set()
        for memory in self._memories.values():
            for root in memory.replaced():
                assert root.source is not None
                source = self._sources[root.source]
                graph.updates[new[root.source]] = new[root.slot]
                if isinstance(source, StepInput):
                    rewritten.add(source.position)
                else:
                    written[id(memory.buffer)] = memory.buffer
        graph.names = {new[slot]: name for slot, name in self.names.of_inputs(self._sources.items())}
        gradients = self._gradients.close()
        return CapturedGraph(
            graph,
            list(self._sources.values()),
            self._notes,
            [(t, len(wanted) + i) for i, t in enumerate(alive)],
            list(range(len(wanted))),
            list(written.values()),
            gradients,
            sorted(rewritten),
            self._modes,
            {new[slot]: line for slot, line in self._lines.items()},
            self._gradients.initial,
        )

    def abandon(self) -> None:
        """Leave Python's objects as they were before, as far as they are known: gradients, and versions of buffers."""
        for action in reversed(self._undo):
            action()
        self._gradients.restore()
        for memory in self._memories.values():
            memory.buffer.version = memory.version

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _add(
        self,
        op: OpDef,
        slots: tuple[Operand, ...],
        params: tuple[Any, ...],
        device: Device,
        replaces: tuple[int, ...] = (),
    ) -> tuple[tuple[int, ...], int | None]:
        """Append a node; its outputs, and where a view starts in what it views."""
        specs = tuple(self._spec_of(s) for s in slots)
        bound = op.bind(params)
        inferred = dispatch.infer(op, specs, bound)
        view = op.view(specs[0], bound) if op.view is not None and isinstance(specs[0], Spec) else None
        outputs = [place(specs[0], view)] if view is not None else [contiguous(d, s) for d, s in inferred]
        for spec in outputs:
            device.check_dtype(spec.dtype, op.name)
        first = len(self._specs)
        self._specs.extend(outputs)
        made = tuple(range(first, first + len(outputs)))
        origin = Origin(device, settings.key, self.names.module, self._again)
        self._nodes.append(Node(op, slots, tuple(bound.values()), made, origin, replaces))
        return made, None if view is None else view.offset

    def _pending(self, slot: int, device: Device) -> Any:
        """A tensor for a value that a node makes."""
        spec = self._specs[slot]
        out = dispatch.frontend.wrap(device, FakeBuffer(spec.nbytes), Ref(FAKE_HANDLE, spec, 0))  # type: ignore[arg-type]
        memory = self._memory(out.buffer)
        memory.roots.append(AliasRoot(out.ref, slot, None))
        memory.values[spec, 0] = slot
        self.track(out)
        return out

    def _spec_of(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return self._specs[operand.index]
        return None if operand is None else ScalarSpec(dispatch.scalar_dtype(operand))

    def _input(self, source: InputSource, spec: Any) -> int:
        slot = len(self._specs)
        self._specs.append(spec)
        self._sources[slot] = source
        return slot

    def _memory(self, buffer: Any) -> BufferContents:
        memory = self._memories.get(id(buffer))
        if memory is None:
            memory = self._memories[id(buffer)] = BufferContents(buffer)
        return memory

    def _operand(self, x: Any) -> Operand:
        """The value that an operand holds now."""
        if x is None or type(x) in _NUMBERS:
            return x  # type: ignore[no-any-return]
        if isinstance(x, RuntimeScalar):
            slot = self._numbers.get(id(x))
            if slot is None:
                spec = ScalarSpec(dispatch.scalar_dtype(x.value))
                slot = self._numbers[id(x)] = self._input(x, spec)
            return Value(slot)
        memory = self._memory(x.buffer)
        key = (x.ref.spec, x.ref.offset)
        slot = memory.values.get(key)
        if slot is None:
            slot = memory.values[key] = self._seen(memory, x)
        return Value(slot)

    def _seen(self, memory: BufferContents, x: Any) -> int:
        """The value of a part of a buffer that was not looked at in this way before."""
        root = memory.covering(x.ref)
        if root is None and self._before is not None:
            root = self._handed_on(memory, x)
        if root is not None:
            exact = root.ref.spec == x.ref.spec and root.ref.offset == x.ref.offset
            return root.slot if exact else self._window(root, x.ref, x.device)
        if isinstance(memory.buffer, FakeBuffer):
            raise CaptureError(message(None, f"a tensor of another capture is used, at {user_line()}"))
        if memory.changed and any(root.overlaps(x.ref) for root in memory.roots):
            raise entangled(x)
        slot = self._input(CapturedConstant(memory.buffer, x.ref, x.device), x.ref.spec)
        self._lines[slot] = user_line()
        memory.roots.append(AliasRoot(x.ref, slot, slot))
        return slot

    def _handed_on(self, memory: BufferContents, x: Any) -> AliasRoot | None:
        """The part of a buffer that the capture before this one made, or was passed, as an argument of this one."""
        assert self._before is not None
        known = self._before._memories.get(id(memory.buffer))
        own = None if known is None else known.covering(x.ref) or known.seen_as(x.ref)
        source = None if own is None else self._before._sources.get(own.slot)
        if own is None or isinstance(source, CapturedConstant):
            return None
        slot = self._input(StepInput(self._passed, own.ref.spec, x.device), own.ref.spec)
        self._passed += 1
        self.forwarded.append(source if isinstance(source, StepInput) else own.slot)
        found = AliasRoot(own.ref, slot, slot)
        memory.roots.append(found)
        return found

    def _window(self, root: AliasRoot, ref: Ref, device: Device) -> int:
        """A view of a root's memory."""
        params = (ref.shape, ref.strides, ref.offset - root.ref.offset)
        made, _ = self._add(OPS["window"], (Value(root.slot),), params, device)
        return made[0]

    def _store(self, target: Any, value: Operand) -> None:
        """Let `target`'s memory hold `value` from now on."""
        memory = self._memory(target.buffer)
        ref = target.ref
        if not ref.size:
            return
        if id(target.buffer.handle) in self._read and target.buffer.handle is not FAKE_HANDLE:
            raise reading(ref.spec, self._read[id(target.buffer.handle)][0])
        root = memory.covering(ref)
        if root is None:
            if isinstance(memory.buffer, FakeBuffer) or any(r.overlaps(ref) for r in memory.roots):
                raise entangled(target)
            low, high = extent(ref.shape, ref.strides)
            flat = Ref(ref.handle, contiguous(ref.dtype, (high - low + 1,)), ref.offset + low)
            whole = ref if ref.is_contiguous else flat
            slot = self._input(CapturedConstant(memory.buffer, whole, target.device), whole.spec)
            root = AliasRoot(whole, slot, slot)
            memory.roots.append(root)
        if any(r is not root and r.overlaps(ref) for r in memory.roots):
            raise entangled(target)
        exact = root.ref.spec.shape == ref.shape and root.ref.offset == ref.offset and ref.is_contiguous
        if exact and isinstance(value, Value) and self._specs[value.index] == contiguous(ref.dtype, ref.shape):
            root.slot = value.index
        else:
            params = (ref.shape, ref.strides, ref.offset - root.ref.offset)
            made, _ = self._add(OPS["overwrite"], (Value(root.slot), value), params, target.device, (0,))
            root.slot = made[0]
        memory.changed = True
        memory.values = {(root.ref.spec, root.ref.offset): root.slot for root in memory.roots}
        target.buffer.version += 1
