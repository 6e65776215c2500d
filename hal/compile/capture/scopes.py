"""Scopes of ops: modules, gradients, lines; in captured steps also recomputed regions, and names of tensors."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from polyhal.hal.compile.capture.result import UNNAMED, InputSource, StepInput
from polyhal.hal.core.execution.location import SourceLocation
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar, describe_scalar
from polyhal.hal.core.execution.tape_hooks import TapeNode


class _Position(threading.local):
    """Where a thread is: the parts of a pipeline are recorded on several, which take turns."""

    def __init__(self) -> None:
        self.modules = [""]
        self.gradient: SourceLocation | None = None
        """The location of the gradient that is being computed; None outside of backward passes."""


class ModuleScopes:
    """Follows a program through modules and gradients, so that every op can be located."""

    def __init__(self) -> None:
        self._at = _Position()
        self._of_module: dict[int, str] = {}

    @property
    def module(self) -> str:
        """The path of the module that ops belong to at the moment."""
        return self._at.modules[-1]

    def location(self) -> SourceLocation:
        """The location of the op that is called now: in a backward pass, that of the op whose gradient is computed."""
        return self._at.gradient or SourceLocation.current(self.module)

    @contextmanager
    def within_module(self, module: Any) -> Iterator[None]:
        """Let ops called in the block belong to `module`. The tree of the outermost module gives the names."""
        if len(self._at.modules) == 1:
            self._enter_tree(module)
        with self._within(self._of_module.get(id(module), type(module).__name__)):
            yield

    def _enter_tree(self, module: Any) -> None:
        """Name the modules of the tree below the outermost one."""
        self._of_module = {id(child): name for name, child in module.named_modules()}

    def differentiating(self) -> AbstractContextManager[None]:
        """Let ops called in the block belong to the location that `differentiate` sets, and to no module."""
        return self._within("")

    def add_to_tape(self, node: TapeNode) -> None:
        """Locate a node of the tape."""
        node.location = self.location()

    def differentiate(self, node: TapeNode) -> None:
        """Let the following ops belong to the gradient of a node of the tape."""
        self._at.modules[-1] = node.location.module
        self._at.gradient = node.location.in_gradient(node.op.name)

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        at = self._at
        at.modules.append(name)
        gradient, at.gradient = at.gradient, None
        try:
            yield
        finally:
            at.modules.pop()
            at.gradient = gradient


class Scopes(ModuleScopes):
    """Follows a step while it is recorded: modules and their modes, recomputed regions, names of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[tuple[Any, object]] = []
        """The modules that took part, and the mode of each: training or evaluation, and hooks."""
        self.recomputation = 0
        """Which checkpointed region is computed again at the moment; 0 if none."""
        self._recomputations = 0
        self._of_buffer: dict[int, str] = {}

    def _enter_tree(self, module: Any) -> None:
        for name, child in module.named_modules():
            self._of_module[id(child)] = name
            self.modes.append((child, child.call_mode))
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            for part in (tensor.real, tensor.imag) if tensor.dtype.is_complex else (tensor,):
                self._of_buffer.setdefault(id(part.buffer), name)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Let nodes recorded in the block belong to a region that is computed again."""
        previous = self.recomputation
        self._recomputations += 1
        self.recomputation = self._recomputations
        try:
            yield
        finally:
            self.recomputation = previous

    def name_state(self, state: Mapping[Any, Mapping[str, Any]]) -> None:
        """Name the arrays kept for each tensor after that tensor."""
        for owner, arrays in state.items():
            name = self._of_buffer.get(id(owner.buffer))
            for kind, x in arrays.items():
                if name and hasattr(x, "ref"):
                    self._of_buffer.setdefault(id(x.buffer), f"{name}.{kind}")

    def input_names(self, sources: Iterable[tuple[int, InputSource]]) -> Iterator[tuple[int, str]]:
        """A name for each input by value. The names of captured constants are all different."""
        used: set[str] = set()
        for value, source in sources:
            if isinstance(source, RuntimeScalar):
                yield value, describe_scalar(source)
            elif isinstance(source, StepInput):
                yield value, f"argument {source.position}"
            else:
                name = unique_name(self._of_buffer.get(id(source.buffer), UNNAMED), used)
                used.add(name)
                yield value, name


def unique_name(name: str, used: Collection[str]) -> str:
    """`name`, with a number appended if it is used already."""
    count, candidate = 1, name
    while candidate in used:
        count += 1
        candidate = f"{name}~{count}"
    return candidate
