"""What a compiled graph returns: constants, views of its arguments, and what its program has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.compiler.host import HostTensors, lies_on_device
from polyhal.torch.compiler.layouts import Symbols, same_layout, stored
from polyhal.torch.device import NAME


@dataclass(slots=True)
class ProgramRun:
    """One call of a program."""

    arguments: Sequence[Any]
    given: dict[int, Tensor]
    """The arguments on the device, by position."""
    made: list[Tensor]
    host: HostTensors
    wrapped: dict[int, torch.Tensor] = field(default_factory=dict)
    """GraphResults for PyTorch, by their number among those that were made."""


class Result(Protocol):
    """How one of the values that a graph returns is made of a run."""

    def __call__(self, run: ProgramRun, /) -> Any:
        """The value for PyTorch."""


class FixedValue(NamedTuple):
    """None, or a number that follows from the shapes."""

    value: Any

    def __call__(self, run: ProgramRun) -> Any:
        return self.value


class ComputedNumber(NamedTuple):
    """A number that follows from float arguments."""

    scalar: RuntimeScalar

    def __call__(self, run: ProgramRun) -> Any:
        return self.scalar.value


class InputView(NamedTuple):
    """A part of an argument: no program has to copy it."""

    position: int
    whole: Spec
    spec: Spec
    offset: int

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        x: torch.Tensor = run.arguments[self.position]
        spec = self.spec
        if not same_layout(x.shape, x.stride(), self.whole.strides):  # a copy was made for the program
            given = run.given[self.position]
            moved = tensors.view_of(given, spec, given.ref.offset + self.offset)
            return tensors.wrap(moved) if x.device.type == NAME else run.host.returned(moved)
        if not self.offset and spec.shape == self.whole.shape and same_layout(spec.shape, spec.strides, x.stride()):
            return x
        start: Any = x.storage_offset()
        return x.as_strided(spec.shape, spec.strides, start + self.offset)


class Made(NamedTuple):
    """What the program computes."""

    number: int
    spec: Spec
    """The layout in which PyTorch expects it, in the block that the program returns."""
    on_host: bool

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        known = run.wrapped.get(self.number)
        if known is None:
            block = run.made[self.number]
            if not block.ref.is_contiguous:
                block = FUNCTIONS["contiguous"](block)
            x = tensors.view_of(block, self.spec, block.ref.offset)
            known = self._alias(x, run)
            if known is None:
                known = run.host.returned(x) if self.on_host else tensors.wrap(x)
            run.wrapped[self.number] = known
        return known

    def _alias(self, x: Tensor, run: ProgramRun) -> torch.Tensor | None:
        """A view of a result in the same memory, so that PyTorch knows if one of them is changed."""
        for number, other in run.wrapped.items():
            if run.made[number].buffer is x.buffer and lies_on_device(other):
                return other.as_strided(x.shape, x.ref.strides, x.ref.offset)
        return None


class GraphResults:
    """The values that a graph returns, while it is recorded."""

    def __init__(self, symbols: Symbols, inputs: dict[int, tuple[int, Tensor]]) -> None:
        """`inputs` are the arguments that are not written to: their positions, by the identity of their memory."""
        self._symbols = symbols
        self._inputs = inputs
        self._numbers: dict[Any, int] = {}
        self.made: list[Tensor] = []
        """What the program has to return."""

    def add(self, node: Any, x: Any, stays: bool) -> Result:
        """How a value is made of a run. With `stays` it is left on the device, wherever PyTorch thinks it is."""
        if isinstance(x, RuntimeScalar):
            return ComputedNumber(x)
        if not isinstance(x, Tensor):
            return FixedValue(x)
        source = self._inputs.get(id(x.buffer))
        if source is not None:
            position, whole = source
            return InputView(position, whole.ref.spec, x.ref.spec, x.ref.offset - whole.ref.offset)
        fake: torch.Tensor = node.meta["val"]
        strides = self._symbols.strides(fake)
        number = self._numbers.setdefault(node, len(self.made))
        if number == len(self.made):
            self.made.append(stored(x, strides))
        return Made(number, Spec(x.dtype, x.shape, strides), fake.device.type != NAME and not stays)
