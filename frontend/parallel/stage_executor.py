"""The executor of a micro-batch: runs each op on the device of the current stage.

A stage begins with the call of its first module. A result of an earlier stage is received: copied to the stage's device, as a
leaf of the stage's own tape, so that each stage has a separate backward pass. Parameters that belong to another stage (tied
weights) are replicated once per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.capture.fake_buffer import FAKE_HANDLE, FakeBuffer
from polyhal.hal.core import dispatch
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.layout import Ref, contiguous
from polyhal.parallel.crossing import Crossing
from polyhal.steps.tree import map_tree
from polyhal.tape.engine import backward_to
from polyhal.tape.tape import position
from polyhal.tensor import Tensor, wrap

if TYPE_CHECKING:
    from polyhal.hal.core.dispatch import Array, RandomSource
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.nn.module import Module

_RANDOM_WORDS = 1 << 40
"""32-bit words of a generator's stream that are reserved for each micro-batch."""
_WORDS_PER_BLOCK = 4


class PipelineError(PolyhalError, RuntimeError):
    """A model cannot run in the stages into which it was split."""


@dataclass(frozen=True, slots=True)
class StageLayout:
    """First modules of stages, and the stages' devices."""

    devices: tuple[Device, ...]
    starts: dict[Module, int]
    """Stage by first module, for all stages but the first."""
    names: dict[Module, str]
    separate: bool
    """True if ops of neighbouring modules must not be fused, because a module that could be fused begins a stage."""


class Received(NamedTuple):
    """A tensor of an earlier stage, without its memory, and the leaf that represents it in the receiving stage."""

    source: Tensor
    leaf: Tensor


class SharedTensors:
    """State shared by the micro-batches of one step: replicas of parameters, and sections of random streams."""

    def __init__(self, micro_batches: int) -> None:
        self._micro_batches = micro_batches
        self._replicas: dict[tuple[int, int], Received] = {}
        self._gradients: dict[tuple[int, int], Tensor] = {}
        self._streams: dict[int, tuple[Any, Any, Any]] = {}

    def replica(self, x: Tensor, stage: int, device: Device, base: dispatch.Executor) -> Tensor:
        """Return the copy of a leaf for a stage on another device."""
        key = id(x), stage
        if key not in self._replicas:
            leaf = base.transfer(x, device)
            leaf.requires_grad = x.requires_grad
            self._replicas[key] = Received(x, leaf)
        return self._replicas[key].leaf

    def of_stage(self, stage: int) -> list[tuple[tuple[int, int], Tensor]]:
        """Return the replicas of a stage that need gradients."""
        return [(key, r.leaf) for key, r in self._replicas.items() if key[1] == stage and r.leaf.requires_grad]

    def add_gradient(self, key: tuple[int, int], g: Tensor) -> None:
        """Add to the gradient of a replica."""
        total = self._gradients.get(key)
        self._gradients[key] = g if total is None else total + g

    def return_gradients(self) -> None:
        """Add the gradients of replicas to those of their parameters."""
        for key, g in self._gradients.items():
            source = self._replicas[key].source
            backward_to([source], [g.to(source.device)], [])
        self._gradients.clear()

    def random(self, source: RandomSource, number: int, base: dispatch.Executor) -> tuple[Any, Any]:
        """Return the seed, and the offset of the section of `source`'s stream that belongs to micro-batch `number`."""
        if id(source) not in self._streams:
            self._streams[id(source)] = (source, *base.random(source, self._micro_batches * _RANDOM_WORDS))
        _, seed, offset = self._streams[id(source)]
        return seed, offset + number * (_RANDOM_WORDS // _WORDS_PER_BLOCK)


class StageExecutor(dispatch.ForwardingExecutor):
    """Runs one micro-batch. With `pause`, called at the end of a stage, each stage has a separate tape; else all share one."""

    __slots__ = (
        "_args",
        "_begins",
        "_copies",
        "_drawn",
        "_forward",
        "_layout",
        "_number",
        "_pause",
        "_received",
        "_sent",
        "_shared",
        "device",
        "stage",
    )

    replays_graphs = False

    def __init__(
        self,
        base: dispatch.Executor,
        layout: StageLayout,
        shared: SharedTensors,
        number: int,
        pause: Callable[[], None] | None,
    ) -> None:
        super().__init__(base)
        self._layout = layout
        self._shared = shared
        self._number = number
        self._pause = pause
        self._forward = True
        self._args: Any = ()
        self._begins = [position() if pause else 0]
        """Number of the first node of each stage on the tape."""
        self._received: list[dict[tuple[int, int], Received]] = [{} for _ in layout.devices]
        self._copies: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in layout.devices]
        """Tensors without gradients that were copied to a stage's device, by identity."""
        self._drawn: dict[int, int] = {}
        self._sent: dict[int, Crossing] = {}
        """Copies in flight of the next stage's arguments."""
        self.stage = 0
        self.device = layout.devices[0]

    @property
    def fuses_later(self) -> bool:
        return self._layout.separate or self.base.fuses_later

    # --- stages -----------------------------------------------------------------------------------------------------

    def enter(self, stage: int, *, forward: bool) -> None:
        """Run later ops in a stage. `forward` marks the first time."""
        self.stage = stage
        self.device = self._layout.devices[stage]
        self._forward = forward
        if forward and stage == len(self._begins):
            self._begins.append(position() if self._pause else 0)

    def receive(self) -> None:
        """Begin the next stage: copy the arguments of its first module to its device."""
        self.enter(self.stage + 1, forward=True)
        self._args = map_tree(self._args, self._localized)
        self._sent = {}

    def _send(self, device: Device) -> dict[int, Crossing]:
        """Start copies of the next stage's arguments, by identity."""
        sent: dict[int, Crossing] = {}

        def send(x: Any) -> Any:
            if isinstance(x, Tensor) and x.device is not device and not (x.requires_grad and x.node is None):
                with dispatch.executing(self.base):
                    sent[id(x)] = Crossing(x, device)
            return x

        map_tree(self._args, send)
        return sent

    def sources(self, stage: int) -> list[Received]:
        """Return the tensors with gradients that a stage received."""
        return list(self._received[stage].values())

    def owner(self, x: Tensor) -> int:
        """Return the stage that made a tensor; -1 if it was made before the first stage."""
        order = x.node.order if x.node is not None else -1
        return sum(order >= begin for begin in self._begins) - 1

    def release(self, stage: int) -> None:
        """Release the tensors that a stage received."""
        self._received[stage] = {}
        self._copies[stage] = {}

    def finish(self) -> None:
        """Check that every stage was reached. Raises PipelineError."""
        count = len(self._layout.devices)
        if self.stage != count - 1:
            missing = [name for m, name in self._layout.names.items() if self._layout.starts[m] == self.stage + 1]
            problem = f"the forward pass ended in stage {self.stage} of {count}: {missing[0]} was not called"
            raise PipelineError(message("Pipeline", problem, fix="cut at modules that every forward pass calls"))
        self._args = ()

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        start = self._layout.starts.get(module, -1)
        if self._forward and start > self.stage:
            if start != self.stage + 1:
                name = self._layout.names[module]
                problem = f"{name}, which begins stage {start}, is called in stage {self.stage}"
                raise PipelineError(message("Pipeline", problem, expected="cuts in the order of the calls"))
            self._args = args, kwargs
            if self._pause is None:
                self.receive()
            else:
                self._sent = self._send(self._layout.devices[start])
                self._pause()
            args, kwargs = self._args
            self._args = ()
            dispatch.thread.device = self.device
        else:
            args = tuple([self._localized(x) for x in args])
        return self.base.call_module(module, function, args, kwargs)

    # --- ops --------------------------------------------------------------------------------------------------------

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        local = tuple([self._localized(x) for x in inputs])
        if device is not None or not any(isinstance(x, Tensor) for x in local):
            device = self.device
        return self.base.apply(op, local, params, device)

    def apply_into(
        self, op: OpDef, inputs: tuple[Tensor, ...], params: tuple[Any, ...], outs: tuple[Array, ...]
    ) -> None:
        target = outs[0].device
        written = {id(out) for out in outs}
        local = tuple(
            x if id(x) in written or not isinstance(x, Tensor) or x.device is target else self.base.transfer(x, target)
            for x in inputs
        )
        self.base.apply_into(op, local, params, outs)

    def overwrite(self, target: Array, value: Any) -> None:
        if isinstance(value, Tensor) and value.device is not target.device:
            value = self.base.transfer(value, target.device)
        self.base.overwrite(target, value)

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        seed, offset = self._shared.random(source, self._number, self.base)
        drawn = self._drawn.get(id(source), 0)
        self._drawn[id(source)] = drawn + -(-count // _WORDS_PER_BLOCK)
        return seed, offset + drawn

    def _localized(self, x: Tensor | int | str | None) -> Any:
        """Return a tensor on the stage's device and tape."""
        if not isinstance(x, Tensor):
            return x
        if x.requires_grad and x.node is not None:
            if x.node.order < self._begins[self.stage]:
                return self._receive(x)
            return x if x.device is self.device else self._copied(x, lambda: x.to(self.device))
        if x.device is self.device:
            return x
        if x.requires_grad and self._pause is None:
            return self._copied(x, lambda: x.to(self.device))
        if x.requires_grad:
            return self._shared.replica(x, self.stage, self.device, self.base)
        return self._copied(x, lambda: self._transferred(x))

    def _transferred(self, x: Tensor) -> Tensor:
        """Copy a tensor to the stage's device, off the tape."""
        with dispatch.executing(self.base):
            return self._sent.pop(id(x), Crossing(x)).receive(self.device)

    def _receive(self, x: Tensor) -> Tensor:
        assert x.node is not None
        received, key = self._received[self.stage], (id(x.node), x.index)
        if key not in received:
            leaf: Tensor = self.base.alias(x) if x.device is self.device else self._transferred(x)
            leaf.requires_grad = True
            received[key] = Received(_without_memory(x), leaf)
        return received[key].leaf

    def _copied(self, x: Tensor, copy: Callable[[], Tensor]) -> Tensor:
        copies = self._copies[self.stage]
        if id(x) not in copies:
            copies[id(x)] = x, copy()
        return copies[id(x)][1]


def _without_memory(x: Tensor) -> Tensor:
    """Return a tensor at the same position of the tape, for gradients only. The stage can then free the elements."""
    spec = contiguous(x.dtype, x.shape)
    ghost = wrap(x.device, FakeBuffer(spec.nbytes), Ref(FAKE_HANDLE, spec, 0))
    ghost.node, ghost.index, ghost.requires_grad = x.node, x.index, True
    return ghost


def layout_of(devices: Sequence[Device], model: Module, cuts: Sequence[str]) -> StageLayout:
    """Return the layout of stages that begin at the modules `cuts`, after the first. Raises ValueError, AttributeError."""
    if len(cuts) != len(devices) - 1:
        problem = f"{len(cuts)} cuts ({', '.join(cuts)}) for {len(devices)} devices"
        raise ValueError(message("Pipeline", problem, expected=f"{len(devices) - 1} cuts, one before each later stage"))
    modules = [model.get_submodule(name) for name in cuts]
    if len(set(modules)) != len(modules) or model in modules:
        raise ValueError(message("Pipeline", f"cuts at {', '.join(cuts)}", expected="submodules, each once"))
    return StageLayout(
        tuple(devices),
        {module: i + 1 for i, module in enumerate(modules)},
        dict(zip(modules, cuts, strict=True)),
        any(not list(module.parameters()) for module in modules),
    )
