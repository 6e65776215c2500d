"""What the nodes and inputs of a captured step belong to: modules, recomputed regions, and names of tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from polyhal.hal.capture.result import UNNAMED, InputSource, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar, describe_scalar


class Scopes:
    """Follows a step through modules and gradients while it is recorded."""

    def __init__(self) -> None:
        self.modes: list[tuple[Any, bool]] = []
        """The modules that took part, and whether each was in training."""
        self.recomputation = 0
        """Which checkpointed region is computed again at the moment; 0 if none."""
        self._recomputations = 0
        self._modules = [""]
        self._of_module: dict[int, str] = {}
        self._of_tape: dict[int, str] = {}
        self._of_buffer: dict[int, str] = {}

    @property
    def module(self) -> str:
        """The path of the module that nodes belong to at the moment."""
        return self._modules[-1]

    @contextmanager
    def within_module(self, module: Any) -> Iterator[None]:
        """Let nodes recorded in the block belong to `module`. The tree of the outermost module gives the names."""
        if len(self._modules) == 1:
            for name, child in module.named_modules():
                self._of_module[id(child)] = name
                self.modes.append((child, child.training))
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                self._of_buffer.setdefault(id(tensor.buffer), name)
        with self._within(self._of_module.get(id(module), type(module).__name__)):
            yield

    def differentiating(self) -> AbstractContextManager[None]:
        """Let nodes recorded in the block belong to what `differentiate` says, and to nothing before."""
        return self._within("")

    def add_to_tape(self, order: int) -> None:
        """Note that node `order` of the tape belongs to the current module."""
        self._of_tape[order] = self.module

    def differentiate(self, order: int) -> None:
        """Let the following nodes belong to the module of node `order` of the tape."""
        self._modules[-1] = self._of_tape.get(order, "")

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

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._modules.append(name)
        try:
            yield
        finally:
            self._modules.pop()


def unique_name(name: str, used: Collection[str]) -> str:
    """`name`, with a number appended if it is used already."""
    count, candidate = 1, name
    while candidate in used:
        count += 1
        candidate = f"{name}~{count}"
    return candidate
