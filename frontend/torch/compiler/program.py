"""A compiled graph for one set of shapes: recorded once as a Polyhal program, and run on PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from polyhal.hal.compile.capture.replay_cache import ReplayStep
from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.layout import Spec, contiguous
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.compiler.host import HostTensors
from polyhal.torch.compiler.interpreter import Interpreter
from polyhal.torch.compiler.layouts import Symbols, moved_to, same_layout
from polyhal.torch.compiler.results import GraphResults, ProgramRun, Result, graph_results
from polyhal.torch.compiler.saved_values import carried, values_of
from polyhal.torch.device import NAME

Number = bool | int | float


class Program(ReplayStep[Any]):
    """Runs a graph for arguments of the shapes that it was recorded with. PyTorch's guards choose the graph."""

    def __init__(
        self, graph: torch.fx.GraphModule, arguments: Sequence[Any], device: Device, symbols: Symbols, kept: set[int]
    ) -> None:
        """Record the graph. `kept` are positions of results that remain on the device, even if PyTorch assumes the CPU.

        Raises UnsupportedNodeError for a graph that has to be split.
        """
        self._device = device
        self._host = HostTensors(device)
        self._numbers: list[Number] = []
        """Float arguments of the current call."""
        self._floats: list[int] = []
        self._tensors: list[tuple[int, Spec, Callable[[torch.Tensor, Spec], Tensor]]] = []
        """Tensor arguments: positions, recorded layouts, and functions that bring them into that layout."""
        self._written: list[int] = []
        """Positions of the arguments that the graph writes to."""
        self._carrier: tuple[int, list[Spec]] | None = None
        """Position of the carrier among the arguments, and the layouts of its values."""
        self._results: list[Result] = []
        self._program = self._recorded(graph, arguments, symbols, kept)
        super().__init__(self._program.captured)
        self._count = len(self.captured.results)

    def _recorded(
        self, graph: torch.fx.GraphModule, arguments: Sequence[Any], symbols: Symbols, kept: set[int]
    ) -> Executable:
        recording = Recording()
        with no_grad(), recording:
            placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
            self._carrier = _carrier_of(placeholders)
            values = [self._argument(recording, i, x) for i, x in enumerate(arguments)]
            if self._carrier is not None:
                place, specs = self._carrier
                specs[:] = [x.ref.spec for x in values_of(arguments[place], specs)]
                values[place] = [recording.placeholder(self._device, spec) for spec in specs]
            results = GraphResults(graph, symbols)
            interpreter = Interpreter(graph, self._device, symbols, results.bases)
            returned = interpreter.run(values)
            returned = returned if isinstance(returned, (list, tuple)) else [returned]
            written = {placeholders.index(n): x for n, x in interpreter.writes.items()}
            self._written = sorted(written)
            for i, _, _ in self._tensors:
                results.add_argument(i, values[i], i in written)
            if self._carrier is not None:
                results.reserve(values[self._carrier[0]])
            pairs = enumerate(zip(graph_results(graph), returned, strict=True))
            self._results = [results.add(node, x, place in kept) for place, (node, x) in pairs]
            recording.results(results.made)
            recording.assign([(values[i], x) for i, x in written.items()])
            del interpreter, written, values, returned, results, pairs  # a live tensor would be updated after each run
        return recording.program()

    def _argument(self, recording: Recording, position: int, x: torch.Tensor | int) -> Any:
        if self._carrier is not None and self._carrier[0] == position:
            return []
        if isinstance(x, torch.Tensor):
            spec = self._host.spec(x)
            on_device = x.device.type == NAME
            self._tensors.append((position, spec, self._of_device if on_device else self._of_host))
            return recording.placeholder(self._device, spec)
        if isinstance(x, float):
            self._floats.append(position)
            self._numbers.append(x)
            read: Callable[[], Number] = partial(self._numbers.__getitem__, len(self._numbers) - 1)
            return recording.recorder.runtime_scalar(read, f"argument {position}")
        return x

    def holds(self, call: Any) -> bool:
        return True

    def adopt(self, later: Program) -> None:
        """No-op: a graph is recorded once for each signature."""

    def run(self, call: Any) -> list[Any]:
        """Run the program. Empties the list of arguments, so that their memory can be reused.

        Raises CaptureError in a step that is being recorded.
        """
        arguments = call.arguments
        dispatch.require_execution("torch.compile", "a compiled graph is called in a step that is recorded")
        self._numbers[:] = [arguments[i] for i in self._floats]
        try:
            given = {i: take(arguments[i], spec) for i, spec, take in self._tensors}
            made = self._program.run([*given.values(), *self._carried(arguments)], self._count)
            for i in self._written:
                self._host.write_back(arguments[i], given[i])
            run = ProgramRun(arguments, given, made, self._host)
            return [result(run) for result in self._results]
        finally:
            self._host.finish()
            arguments.clear()

    def _carried(self, arguments: Sequence[Any]) -> list[Tensor]:
        """Return the values of the carrier in their recorded layouts."""
        if self._carrier is None:
            return []
        position, specs = self._carrier
        pairs = zip(values_of(arguments[position], specs), specs, strict=True)
        return [x if x.ref.spec is spec else _in_layout(x, spec) for x, spec in pairs]

    def _of_device(self, x: torch.Tensor, spec: Spec) -> Tensor:
        """Return an argument on the device in the recorded layout, usually the tensor itself."""
        found = tensors.with_layout(x, spec)
        if found is not None and found.device is self._device:
            return found
        return _in_layout(self._host.given(x), spec)

    def _of_host(self, x: torch.Tensor, spec: Spec) -> Tensor:
        """Return a device copy or import of an argument on the CPU in the recorded layout."""
        return _in_layout(self._host.given(x), spec)


def _carrier_of(placeholders: Sequence[torch.fx.Node]) -> tuple[int, list[Spec]] | None:
    """Return the position of a carrier among the arguments and the layouts of its values; None for graphs without one."""
    for position, node in enumerate(placeholders):
        values = carried(node)
        if values is not None:
            return position, [contiguous(tensors.dtype_of(x.dtype), tuple(map(int, x.shape))) for x in values]
    return None


def _in_layout(x: Tensor, spec: Spec) -> Tensor:
    """Return the tensor in a layout; the tensor itself if it has the layout."""
    own = x.ref.spec
    if own == spec or ((own.aligned or not spec.aligned) and same_layout(spec.shape, own.strides, spec.strides)):
        return x
    return moved_to(x, spec)
