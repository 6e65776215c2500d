"""A compiled graph: one program for each set of argument shapes, or compiled parts with PyTorch's ops in between."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import torch

from polyhal.hal.capture.lru_cache import LRUCache
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.settings.state import settings
from polyhal.torch import tensors
from polyhal.torch.compiler.interpreter import UnsupportedNodeError, why_not, writes_inside
from polyhal.torch.compiler.layouts import Symbols, is_symbolic
from polyhal.torch.compiler.program import Program
from polyhal.torch.compiler.split import SplitGraph
from polyhal.torch.device import NAME, current
from polyhal.torch.failures import translated

_PROGRAMS = 64
"""Maximum number of programs of a graph; the least recently used one is evicted."""
_GRAPHS: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
"""All live compiled graphs."""


def release_programs() -> None:
    """Drop the programs of all compiled graphs, with their memory. A graph that PyTorch keeps is compiled again when called."""
    for graph in list(_GRAPHS):
        graph.release()


class CompiledGraph:
    """A graph of ATen ops; a call takes a list of arguments and empties it."""

    def __init__(
        self, graph: torch.fx.GraphModule, kept: Collection[int] = (), device: Device | None = None, split: bool = True
    ) -> None:
        """Prepare compilation. `kept` are positions of results that remain on the device; `device` computes on CPU tensors.

        A graph with ops that only PyTorch runs is split, unless `split` is False: calls then raise NotImplementedError.
        """
        self._graph = graph
        self._kept = set(kept)
        self._device = device
        self._may_split = split
        self._fakes = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
        self._is_symbolic = any(is_symbolic(fake) for fake in self._fakes)
        self._programs: LRUCache[Any, Program] = LRUCache(_PROGRAMS)
        self._split: SplitGraph | None = None
        self._unsupported: dict[torch.fx.Node, str] = {}
        """Nodes that only PyTorch can run, with the reasons."""
        _GRAPHS.add(self)

    def release(self) -> None:
        """Drop all programs. The next call compiles the graph again."""
        self._programs.clear()

    def __call__(self, arguments: list[Any], symbols: Symbols | None = None) -> list[Any]:
        """Run the graph. `symbols` are the symbols of the graph that this one is a part of."""
        try:
            if self._split is None:
                program = self._programs.get(self._key(arguments)) or self._compiled(arguments, symbols)
                if program is not None:
                    return program(arguments)
            assert self._split is not None
            return self._split(arguments, self._bound(arguments, symbols))
        except PolyhalError as error:
            raise translated(error) from error

    def _key(self, arguments: Sequence[Any]) -> Any:
        """Return the key of a program: the conditions that PyTorch's guards have not checked."""
        if not self._is_symbolic:
            return settings.result_key
        # Floats are runtime scalars: a number that changes in every step does not need a new program.
        shapes = tuple(
            x.shape if isinstance(x, torch.Tensor) else None if isinstance(x, float) else x for x in arguments
        )
        return settings.result_key, shapes

    def _bound(self, arguments: Sequence[Any], symbols: Symbols | None) -> Symbols:
        found = Symbols({} if symbols is None else dict(symbols.values))
        for fake, x in zip(self._fakes, arguments, strict=True):
            found.bind(fake, x)
        return found

    def _compiled(self, arguments: Sequence[Any], symbols: Symbols | None) -> Program | None:
        """Compile a program. If it cannot be one, split the graph and return None."""
        device = self._device_of(arguments)
        self._unsupported = {n: reason for n in self._graph.graph.nodes if (reason := why_not(n, device))}
        if not self._unsupported:
            try:
                program = Program(self._graph, arguments, device, self._bound(arguments, symbols), self._kept)
            except UnsupportedNodeError as error:
                self._unsupported[error.node] = error.reason
            else:
                return self._programs.add(self._key(arguments), program)
        if not self._may_split:
            reasons = "; ".join(f"{n.target}: {reason}" for n, reason in self._unsupported.items())
            raise NotImplementedError(f"the graph has ops that only PyTorch runs, and split is False: {reasons}")
        for node in self._graph.graph.nodes:
            if writes_inside(node):
                raise NotImplementedError(
                    f"{node.target} writes to a value within a compiled graph: {node.format_node()}"
                )
        self._split = SplitGraph(self._graph, self._unsupported, self._kept, self._part)
        self._programs.clear()
        return None

    def _part(self, graph: torch.fx.GraphModule, kept: Collection[int]) -> CompiledGraph:
        return CompiledGraph(graph, kept, self._device)

    def _device_of(self, arguments: Sequence[Any]) -> Device:
        """Return the device of the arguments; for CPU tensors the device from the options, or the current one."""
        for x in arguments:
            if isinstance(x, torch.Tensor) and x.device.type == NAME:
                return tensors.root_of(x).device
        return self._device or current()
