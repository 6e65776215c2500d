"""Who belongs to whom in a captured step: modules for its nodes, and names for its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from polyhal.hal.capture.result import InputSource, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar, described


class ModuleScopes:
    """Follows a step while it is recorded. `module` is the path of the one that records at the moment."""

    def __init__(self) -> None:
        self._modules = [""]
        self._of_module: dict[int, str] = {}
        self._of_tape: dict[int, str] = {}
        self._of_buffer: dict[int, str] = {}

    @property
    def module(self) -> str:
        return self._modules[-1]

    @property
    def outermost(self) -> bool:
        """Whether no module is recording."""
        return len(self._modules) == 1

    @contextmanager
    def inside(self, module: Any) -> Iterator[None]:
        """Have what is recorded in the block belong to `module`. The tree of the outermost one gives the names."""
        if self.outermost:
            for name, child in module.named_modules():
                self._of_module[id(child)] = name
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                self._of_buffer.setdefault(id(tensor.buffer), name)
        with self._within(self._of_module.get(id(module), type(module).__name__)):
            yield

    def differentiating(self) -> AbstractContextManager[None]:
        """Have what is recorded in the block belong to what `gradient_of` says, and to nothing before it says so."""
        return self._within("")

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._modules.append(name)
        try:
            yield
        finally:
            self._modules.pop()

    def taped(self, order: int) -> None:
        """Note that node number `order` of the tape belongs to the module of the moment."""
        self._of_tape[order] = self.module

    def gradient_of(self, order: int) -> None:
        """What is recorded from now on is part of the gradient of the tape's node number `order`."""
        self._modules[-1] = self._of_tape.get(order, "")

    def belongs(self, owner: Any, parts: Mapping[str, Any]) -> None:
        """Have the tensors among `parts` called by the name of the tensor that they are kept for."""
        name = self._of_buffer.get(id(owner.buffer))
        for part, x in parts.items():
            if name and hasattr(x, "ref"):
                self._of_buffer.setdefault(id(x.buffer), f"{name}.{part}")

    def of_inputs(self, sources: Iterable[tuple[int, InputSource]]) -> Iterator[tuple[int, str]]:
        """A name for each numbered input. Names of tensors that stay where they are, are all different."""
        taken: set[str] = set()
        for number, source in sources:
            if isinstance(source, RuntimeScalar):
                yield number, described(source)
            elif isinstance(source, StepInput):
                yield number, f"argument {source.position}"
            else:
                name = distinct(self._of_buffer.get(id(source.buffer), "held"), taken)
                taken.add(name)
                yield number, name


def distinct(name: str, taken: Collection[str]) -> str:
    """`name`, with a number behind it if it is taken."""
    count, found = 1, name
    while found in taken:
        count += 1
        found = f"{name}~{count}"
    return found
