"""A compiled graph: one program for each set of argument shapes, or compiled parts with PyTorch's ops in between."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import torch

from polyhal.hal.compile.capture.difference import Difference
from polyhal.hal.compile.capture.replay_cache import NotReplayableError, Pending, ReplayCache
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.torch import tensors
from polyhal.torch.compiler.interpreter import UnsupportedNodeError, why_not, writes_inside
from polyhal.torch.compiler.layouts import Symbols, is_symbolic
from polyhal.torch.compiler.program import Program
from polyhal.torch.compiler.split import SplitGraph
from polyhal.torch.device import NAME, current
from polyhal.torch.failures import translated

_PROGRAMS = 64
"""Maximum number of programs of a graph; the least recently used one is evicted."""
_NO_SYMBOLS = Symbols()
_GRAPHS: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
"""All live compiled graphs."""


def release_programs() -> None:
    """Drop the programs of all compiled graphs, with their memory. A graph that PyTorch keeps is compiled again when called."""
    for graph in list(_GRAPHS):
        graph.release()


class GraphCall:
    """A call of a compiled graph. PyTorch has compared all properties of the arguments that are not in `key`."""

    __slots__ = ("arguments", "key", "symbols")

    def __init__(self, arguments: list[Any], key: Hashable, symbols: Symbols) -> None:
        """`symbols` are the symbols of the graph that this one is a part of."""
        self.arguments = arguments
        self.key = key
        self.symbols = symbols

    @staticmethod
    def described(key: Hashable) -> str:
        """Describe a key for messages."""
        return repr(key)


class CompiledGraph(ReplayCache[GraphCall, Program]):
    """A graph of ATen ops; a call takes a list of arguments and empties it."""

    is_pure = True

    def __init__(
        self, graph: torch.fx.GraphModule, kept: Collection[int] = (), device: Device | None = None, split: bool = True
    ) -> None:
        """Prepare compilation. `kept` are positions of results that remain on the device; `device` computes on CPU tensors.

        A graph with ops that only PyTorch runs is split, unless `split` is False: calls then raise NotImplementedError.
        """
        super().__init__("torch.compile", _PROGRAMS)
        self._graph = graph
        self._kept = set(kept)
        self._device = device
        self._may_split = split
        self._fakes = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
        self._is_symbolic = any(is_symbolic(fake) for fake in self._fakes)
        self._split: SplitGraph | None = None
        self._unsupported: dict[torch.fx.Node, str] = {}
        """Nodes that only PyTorch can run, with the reasons."""
        _GRAPHS.add(self)

    def release(self) -> None:
        """Drop all programs. The next call compiles the graph again."""
        self._entries.clear()

    def __call__(self, arguments: list[Any], symbols: Symbols = _NO_SYMBOLS) -> list[Any]:
        """Run the graph. `symbols` are the symbols of the graph that this one is a part of."""
        call = GraphCall(arguments, self._key(arguments), symbols)
        try:
            with self._lock:
                if self._split is None:
                    return self._replay(call)  # type: ignore[no-any-return]
            return self._run_eagerly(call)
        except PolyhalError as error:
            raise translated(error) from error

    def _key(self, arguments: Sequence[Any]) -> Hashable:
        """Return the key of a program: the conditions that PyTorch's guards have not checked."""
        if not self._is_symbolic:
            return settings.result_key
        # Floats are runtime scalars: a number that changes in every step does not need a new program.
        shapes = tuple(
            x.shape if isinstance(x, torch.Tensor) else None if isinstance(x, float) else x for x in arguments
        )
        return settings.result_key, shapes

    def _bound(self, call: GraphCall) -> Symbols:
        found = Symbols(dict(call.symbols.values))
        for fake, x in zip(self._fakes, call.arguments, strict=True):
            found.bind(fake, x)
        return found

    def _record(self, call: GraphCall) -> Pending[Program]:
        """Compile a program. Raises NotReplayableError for a graph that has to be split."""
        device = self._device_of(call.arguments)
        self._unsupported = {n: reason for n in self._graph.graph.nodes if (reason := why_not(n, device))}
        if not self._unsupported:
            try:
                program = Program(self._graph, call.arguments, device, self._bound(call), self._kept)
            except UnsupportedNodeError as error:
                self._unsupported[error.node] = error.reason
            else:
                return Pending(program, abandon=lambda: None)  # the graph is functional
        reasons = "; ".join(f"{n.target}: {reason}" for n, reason in self._unsupported.items())
        raise NotReplayableError(f"the graph has ops that only PyTorch runs: {reasons}", is_certain=True)

    def _give_up(self, entry: Any, reason: Difference) -> None:
        """Split the graph."""
        if not self._may_split:
            raise NotImplementedError(f"{reason.problem}; split is False") from None
        for node in self._graph.graph.nodes:
            if writes_inside(node):
                raise NotImplementedError(
                    f"{node.target} writes to a value within a compiled graph: {node.format_node()}"
                ) from None
        self._split = SplitGraph(self._graph, self._unsupported, self._kept, self._part)
        self.release()

    def _run_eagerly(self, call: GraphCall) -> list[Any]:
        """Run the split graph."""
        assert self._split is not None
        return self._split(call.arguments, self._bound(call))

    def _warn(self, problem: str, expected: str, fix: str) -> None:
        """No-op: PyTorch itself reports calls with many shapes."""

    def _part(self, graph: torch.fx.GraphModule, kept: Collection[int]) -> CompiledGraph:
        return CompiledGraph(graph, kept, self._device)

    def _device_of(self, arguments: Sequence[Any]) -> Device:
        """Return the device of the arguments; for CPU tensors the device from the options, or the current one."""
        for x in arguments:
            if isinstance(x, torch.Tensor) and x.device.type == NAME:
                return tensors.root_of(x).device
        return self._device or current()
