"""The recording executor: a whole step becomes a graph, made of ops on fake tensors that have no memory.

The tape is written as usual, so that the backward pass and the optimizer are ops like others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.aliasing import AliasTable, read_error
from polyhal.hal.compile.capture.checked_reads import CheckedReads
from polyhal.hal.compile.capture.fake_buffer import FAKE_HANDLE, FakeBuffer
from polyhal.hal.compile.capture.gradients import GradientTable
from polyhal.hal.compile.capture.incremental_graph import IncrementalGraph
from polyhal.hal.compile.capture.leaves import LeafTable
from polyhal.hal.compile.capture.replay_log import RECORDED_SEED, ReplayLog, UndoableAction
from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.capture.scopes import Scopes
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Value
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array, Executor, RandomSource
from polyhal.hal.core.dispatch.number_range import require_operands_fit
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.execution.tape_hooks import TapeNode
from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.readback import finished
from polyhal.hal.errors import CaptureError, ShapeError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.opdef import OPS, OpDef

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.layout.host_call import HostFunction
    from polyhal.hal.ops.schema import Inputs, ParamValues


class StepRecorder:
    """An executor that records one step. `Executor` describes its methods; `finish` returns the graph.

    A step may follow a `previous` one, as a backward pass does: tensors that the previous step made or was passed become
    inputs of this one, and `forwarded` lists them.
    """

    fuses_later = True
    replays_graphs = False

    def __init__(self, previous: StepRecorder | None = None) -> None:
        self._scopes = Scopes()
        self._graph = IncrementalGraph(self._scopes)
        self._aliases: AliasTable = AliasTable(self._graph, None if previous is None else previous._aliases)
        self._gradients = GradientTable()
        self._replay_log = ReplayLog()
        self._rollbacks: list[Callable[[], object]] = []
        self._tensors: dict[int, weakref.ref[Any]] = {}
        """All that were made, by identity, in order; those that outlive the recording are live-outs."""
        self._leaves = LeafTable()
        self._places: dict[int, Any] = {}
        """The first places on the tape of tensors in real memory whose place changed, by identity."""
        self.gradient_rules: list[tuple[int, TapeNode]] | None = None
        """Nodes of the tape, each with the number of graph nodes before its gradient rule, if they are to be listed."""
        self._checks = CheckedReads(self._graph)
        self.take_read: Callable[[Array], np.ndarray | None] | None = None
        """Returns the elements of an array that is read on the host; None if the read is refused."""
        self.take_constant: Callable[[Array], bool] | None = None
        """Makes an argument of an array from host data. Returns False for an array that becomes a constant."""

    @property
    def recorder(self) -> StepRecorder:
        """Itself: the protocol `Recorder` is implemented here."""
        return self

    @property
    def tape_hooks(self) -> StepRecorder:
        """Itself: the protocol `TapeHooks` is implemented here."""
        return self

    @property
    def forwarded(self) -> list[StepInput | int]:
        """Inputs of the previous step, and values of its graph, that this step uses."""
        return self._aliases.forwarded

    # --- ops and memory ---------------------------------------------------------------------------------------------

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        inputs, device = dispatch.admitted(op, inputs, device)
        if dispatch.is_complex_call(inputs, params):
            return dispatch.apply_complex(self, op, inputs, params, device)
        operands = tuple(self._aliases.operand(x) for x in inputs)
        if dispatch.thread.grad_enabled:
            self._leaves.note(inputs)
        outputs, view_offset = self._graph.add_node(op, operands, dispatch.freeze(params), device)
        if op.stores_numbers:
            require_operands_fit(op, inputs, self._graph.spec(outputs[0]).dtype)
        if view_offset is None:
            results = tuple(self._fake(value, device) for value in outputs)
        else:
            results = (self._view(inputs[0], outputs[0], view_offset),)
        if dispatch.thread.grad_enabled:
            if any(hasattr(x, "ref") and x.requires_grad for x in inputs):
                dispatch.frontend.record(op, inputs, params, results)
            elif view_offset is not None:
                dispatch.frontend.note_view(inputs[0], results[0])
        return results if op.schema.returns_tuple else results[0]

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Array, ...]) -> None:
        operands = tuple(self._aliases.operand(x) for x in inputs)
        if op.stores_numbers:
            require_operands_fit(op, inputs, outs[0].ref.dtype)
        targets = [Value(self._aliases.value_of(out)) for out in outs]
        replaces = tuple(operands.index(t) if t in operands else -1 for t in targets)
        values, _ = self._graph.add_node(op, operands, dispatch.freeze(params), outs[0].device, replaces)
        for out, value in zip(outs, values, strict=True):
            spec = self._graph.spec(value)
            if spec.shape != out.ref.shape or spec.dtype is not out.ref.dtype:
                raise ShapeError(message(op.name, f"the result is {spec}", expected=f"the target's {out.ref.spec}"))
            self._aliases.store(out, Value(value))

    def overwrite(self, target: Array, value: Any) -> None:
        self._aliases.store(target, self._aliases.operand(value))

    def assign(self, pairs: Iterable[tuple[Array, Any]]) -> None:
        """Overwrite several arrays with values that are read before any of them is written."""
        for target, value in [(target, self._aliases.operand(value)) for target, value in pairs]:
            self._aliases.store(target, value)

    def transfer(self, x: Array, device: Device, non_blocking: bool = False) -> Any:
        narrow = device.stand_ins.get(x.ref.dtype)
        if narrow is not None:
            x = self.apply(OPS["cast"], (x,), (narrow,))
        (value,), _ = self._graph.add_node(OPS["transfer"], (Value(self._aliases.value_of(x)),), (), device)
        return self._fake(value, device)

    def communicate(
        self, collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        operands = tuple(Value(self._aliases.value_of(x)) for x in sources)
        devices = communicator.devices
        params = (collective, communicator, dtype)
        values, _ = self._graph.add_node(OPS["collective"], operands, params, devices[0])
        members = [i for i, _ in communicator.targets(collective)]
        return tuple(self._fake(value, devices[i]) for i, value in zip(members, values, strict=True))

    def alias(self, x: Array) -> Any:
        return self._track(dispatch.frontend.wrap(x.device, x.buffer, x.ref))

    def capture_constant(self, x: Array) -> None:
        if self.take_constant is not None and self.take_constant(x):
            return
        constant = CapturedConstant(x.buffer, x.ref, x.device, frozen=True)
        x.buffer, x.ref = FakeBuffer(x.ref.spec.nbytes), Ref(FAKE_HANDLE, x.ref.spec, 0)
        self._aliases.add_frozen(x, constant)
        self._track(x)

    def track(self, x: Array, base: Array | None = None) -> None:
        if base is not None:
            self._aliases.add_whole(base)
        self._track(x)

    def read(self, x: Array) -> np.ndarray:
        memory = self._aliases.frozen_memory(x)
        if memory is not None:
            return x.device.download(memory[1])
        if self.take_read is not None:
            elements = self.take_read(x)
            if elements is None:
                raise read_error(x.ref.spec, user_line())
            return elements
        self._aliases.check_read(x.ref)
        return x.device.download(x.ref)

    def read_async(self, x: Array) -> Future[np.ndarray]:
        return finished(self.read(x))

    def known(self, x: Array, executor: Executor, inputs: Sequence[Array]) -> np.ndarray | None:
        """Return the elements of `x`, computed by `executor` from `inputs` of the step; None if another device takes part."""
        self._replay_log.look_ahead()
        return self._checks.known(self._aliases.value_of(x), executor, inputs, self._present_values)

    def may_check(self, x: Array) -> bool:
        """Return whether runs can check `x`: one element, on the device of all checks."""
        return x.ref.size == 1 and self._checks.may_check(x.device)

    def host_call(
        self, function: HostFunction, values: Sequence[int], result: tuple[DType, tuple[int, ...]], device: Device
    ) -> Any:
        """Return an array that each run computes by a Python function of the elements of values of the graph."""
        (value,), _ = self._graph.add_node(HOST_CALL, tuple(map(Value, values)), (function, (result,)), device)
        return self._fake(value, device)

    def expect(self, x: Array, element: np.ndarray) -> None:
        """Let each run raise PathChangedError if `x` has another element at this point."""
        self._checks.expect(self._aliases.value_of(x), element, x.device)

    def require_success(self, info: Array) -> bool:
        return self._graph.set_parameter(self._aliases.value_of(info), "check", True)

    # --- what differs from run to run -------------------------------------------------------------------------------

    def runtime_scalar(self, compute: Callable[[], Any], name: str = "", increment: int = 0) -> RuntimeScalar:
        return self._replay_log.scalar(compute, name, increment)

    def random(self, source: RandomSource, count: int) -> tuple[RuntimeScalar, RuntimeScalar]:
        return self._replay_log.random(source, count)

    def random_state(self, source: RandomSource) -> dict[str, int]:
        return {"seed": RECORDED_SEED, "offset": self._replay_log.stream(source).blocks}

    def set_random_state(self, source: RandomSource, state: Mapping[str, int]) -> None:
        if state["seed"] != RECORDED_SEED:
            problem = f"a state of random numbers from outside is set, at {user_line()}"
            raise CaptureError(message("random", problem, fix="set it outside of the step"))
        self._replay_log.stream(source).blocks = state["offset"]

    def random_state_after(self, source: RandomSource, state: Mapping[str, int]) -> dict[str, int]:
        """Return the state of a source at a position of `random_state`, after the recorded ops have run."""
        stream = self._replay_log.stream(source)
        return {"seed": stream.seed, "offset": stream.offset + state["offset"]}

    def on_replay(self, action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        self._replay_log.actions.append(action if undo is None else UndoableAction(action, undo))

    def on_rollback(self, snapshot: Callable[[], Callable[[], object]]) -> None:
        self._rollbacks.append(snapshot())

    def before_rebase(self, x: Array, place: Callable[[Any], Any]) -> None:
        if id(x) not in self._places and not isinstance(x.buffer, FakeBuffer):
            self._places[id(x)] = place(x)

    # --- what ops belong to -----------------------------------------------------------------------------------------

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with self._scopes.within_module(module):
            return function(*args, **kwargs)

    def name_state(self, state: Mapping[Any, Mapping[str, Any]]) -> None:
        self._scopes.name_state(state)

    def before_gradient_read(self, leaf: Any) -> None:
        if self.made(leaf):  # each run makes a new one, whose gradient begins as None
            return
        gradient = self._gradients.read(leaf)
        if gradient is not None:
            gradient.position = self.add_input(gradient.initial)

    def before_gradient_write(self, leaf: Any) -> None:
        if not self.made(leaf):
            self._gradients.of(leaf)

    def add_to_tape(self, node: TapeNode) -> None:
        self._scopes.add_to_tape(node)

    def differentiating(self) -> AbstractContextManager[object]:
        return self._scopes.differentiating()

    def differentiate(self, node: TapeNode) -> None:
        self._scopes.differentiate(node)
        if self.gradient_rules is not None:
            self.gradient_rules.append((self._graph.size, node))

    def recomputing(self) -> AbstractContextManager[object]:
        return self._scopes.recomputing()

    # --- the step as a whole ----------------------------------------------------------------------------------------

    def add_input(self, x: Array) -> int:
        """Register `x` as a graph input. Returns its position among the step's inputs."""
        self._leaves.exclude(x)
        return self._aliases.add_input(x)

    def add_fake_input(self, device: Device, spec: Spec) -> Any:
        """Register an input by its spec. Returns a fake tensor for it."""
        x = dispatch.frontend.wrap(device, FakeBuffer(spec.nbytes), Ref(FAKE_HANDLE, spec, 0))
        self.add_input(x)
        return x

    @property
    def places(self) -> list[Any]:
        """The first places on the tape of tensors in real memory, in the order in which they changed."""
        return list(self._places.values())

    def tensors_read(self) -> list[Any]:
        """Return the tensors that ops have read with gradients enabled, as far as they are alive."""
        return self._leaves.alive()

    def restore_places(self) -> None:
        """Put tensors in real memory back to the places on the tape that they had before the recording."""
        while self._places:
            self._places.popitem()[1].restore()

    def made(self, x: Array) -> bool:
        """Return whether a tensor was made while recording."""
        ref = self._tensors.get(id(x))
        return ref is not None and ref() is x

    def value_of(self, x: Array) -> int:
        """The value that a tensor holds now; for `finish`."""
        return self._aliases.value_of(x)

    def memory_of(self, x: Array) -> int:
        """Return a number for the memory of a tensor; for `finish`."""
        return self._aliases.memory_of(x)

    def finish(self, results: Iterable[int], memories: Iterable[int | None]) -> CapturedGraph:
        """Return the recorded graph, given the values that the step returns, and the memory of each."""
        returned, places = list(results), list(memories)
        self._back_constants()
        tensors = [
            t for t in (ref() for ref in self._tensors.values()) if t is not None and isinstance(t.buffer, FakeBuffer)
        ]
        checks = [] if self._checks.flag is None else [self._checks.flag]
        graph, number = self._graph.finish([*returned, *map(self.value_of, tensors), *checks])
        sources = self._graph.sources
        mutated_inputs, mutated_buffers = self._update_inputs(graph, number)
        graph.names = {number[value]: name for value, name in self._scopes.input_names(sources.items())}
        return CapturedGraph(
            graph,
            list(sources.values()),
            self._replay_log.actions,
            [(t, len(returned) + i) for i, t in enumerate(tensors)],
            list(range(len(returned))),
            mutated_buffers,
            self._gradients.close(),
            mutated_inputs,
            self._scopes.modes,
            {number[value]: line for value, line in self._aliases.first_uses.items()},
            self._gradients.initial,
            self._leaves.flags(ref() for ref in self._tensors.values()),
            places + [self.memory_of(x) for x in tensors] + [None] * len(checks),
            len(graph.outputs) - 1 if checks else None,
        )

    def abandon(self) -> None:
        """Roll back changes to Python's objects, as far as they are known: state, gradients, and versions of buffers."""
        while self._rollbacks:
            self._rollbacks.pop()()
        self.restore_places()
        self._gradients.restore()
        self._aliases.restore_versions()
        self._back_constants()

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _update_inputs(self, graph: Graph, number: dict[int, int]) -> tuple[list[int], list[Buffer]]:
        """Note updates in the graph. Returns the positions of step inputs, and buffers of constants, that change."""
        positions: set[int] = set()
        buffers: dict[int, Buffer] = {}
        for contents in self._aliases:
            for replaced, value in contents.updates():
                graph.updates[number[replaced]] = number[value]
                source = self._graph.sources[replaced]
                if isinstance(source, StepInput):
                    positions.add(source.position)
                else:
                    buffers[id(contents.buffer)] = contents.buffer
        return sorted(positions), list(buffers.values())

    def _present_values(self) -> set[int]:
        """Return the values that living tensors hold."""
        alive = (ref() for ref in self._tensors.values())
        found = {self._aliases.present(x) for x in alive if x is not None and isinstance(x.buffer, FakeBuffer)}
        return {v for v in found if v is not None}

    def _back_constants(self) -> None:
        """Give memory to tensors made from host data that outlive the recording: the program may cache them."""
        for x in [ref() for ref in self._tensors.values()]:
            if x is not None and (memory := self._aliases.frozen_memory(x)) is not None:
                x.buffer, x.ref = memory

    def _fake(self, value: int, device: Device) -> Any:
        """A fake tensor for a value that a node makes."""
        spec = self._graph.spec(value)
        x = dispatch.frontend.wrap(device, FakeBuffer(spec.nbytes), Ref(FAKE_HANDLE, spec, 0))
        self._aliases.add_result(x, value)
        return self._track(x)

    def _view(self, base: Array, value: int, offset: int) -> Any:
        """A tensor over the memory of `base` for the value of a view."""
        ref = Ref(base.ref.handle, self._graph.spec(value), base.ref.offset + offset)
        x = dispatch.frontend.wrap(base.device, base.buffer, ref)
        self._aliases.add_view(x, value)
        return self._track(x)

    def _track(self, x: Any) -> Any:
        self._tensors.pop(id(x), None)  # of a tensor that is gone: its identity has moved on
        self._tensors[id(x)] = weakref.ref(x)
        return x
