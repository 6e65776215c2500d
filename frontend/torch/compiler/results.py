"""What a compiled graph returns: constants, views of its arguments, and what its program has made."""

from __future__ import annotations

import operator
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
    is_separate: bool
    """Whether each result has memory of its own."""
    wrapped: dict[int, torch.Tensor] = field(default_factory=dict)
    """Results for PyTorch, by their number among those that were made."""
    first: dict[int, tuple[int, torch.Tensor]] = field(default_factory=dict)
    """The first result in each memory, by the identity of its buffer, and what it is a view of."""


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


class Made:
    """What the program computes."""

    __slots__ = ("_contiguous", "_dtype", "_number", "_on_host", "_origin", "_spec", "_strides")

    def __init__(self, number: int, origin: int, spec: Spec, on_host: bool) -> None:
        """`spec` is the layout in which PyTorch expects it, in the block that the program returns as its result `number`.

        Results of one `origin` share memory by ATen's schemas, others must not.
        """
        self._number = number
        self._origin = origin
        self._spec = spec
        self._on_host = on_host
        self._dtype = tensors.TORCH_DTYPES[spec.dtype]
        self._strides = None if spec.is_contiguous else spec.strides
        self._contiguous: Spec | None = None
        """The spec of a block that was found to be contiguous."""

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        known = run.wrapped.get(self._number)
        if known is None:
            block = run.made[self._number]
            if block.ref.spec is not self._contiguous:
                block = self._checked(block)
            known = run.wrapped[self._number] = (
                self._wrapped(block, run.host) if run.is_separate else self._among_others(block, run)
            )
        return known

    def _checked(self, block: Tensor) -> Tensor:
        if not block.ref.is_contiguous:
            return FUNCTIONS["contiguous"](block)  # type: ignore[no-any-return]
        self._contiguous = block.ref.spec
        return block

    def _wrapped(self, block: Tensor, host: HostTensors) -> torch.Tensor:
        if not self._on_host:
            return tensors.wrap_block(block, self._dtype, self._spec.shape, self._strides)
        return host.returned(tensors.view_of(block, self._spec, block.ref.offset))

    def _among_others(self, block: Tensor, run: ProgramRun) -> torch.Tensor:
        """A result that may lie in the memory of another one."""
        origin, first = run.first.get(id(block.buffer), (self._origin, None))
        if first is not None and origin == self._origin and lies_on_device(first):
            # A view of PyTorch's, which notices if one of them is changed.
            return first.as_strided(self._spec.shape, self._spec.strides, block.ref.offset)
        out = self._wrapped(block if first is None else FUNCTIONS["copy"](block), run.host)
        run.first.setdefault(id(block.buffer), (self._origin, out))
        return out


class GraphResults:
    """The values that a graph returns, while it is recorded."""

    def __init__(self, graph: torch.fx.GraphModule, symbols: Symbols, inputs: dict[int, tuple[int, Tensor]]) -> None:
        """`inputs` are the arguments that are not written to: their positions, by the identity of their memory."""
        self._symbols = symbols
        self._inputs = inputs
        self._origins = _origins(graph)
        self._numbers: dict[Any, int] = {}
        self._known: dict[Any, int] = {}
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
            if self._origins[node].op == "placeholder" and all(s >= 0 for s in x.ref.strides):
                position, whole = source
                return InputView(position, whole.ref.spec, x.ref.spec, x.ref.offset - whole.ref.offset)
            x = FUNCTIONS["copy"](x)
        fake: torch.Tensor = node.meta["val"]
        strides = self._symbols.strides(fake)
        number = self._numbers.setdefault(node, len(self.made))
        if number == len(self.made):
            self.made.append(stored(x, strides))
        origin = self._known.setdefault(self._origins[node], len(self._known))
        return Made(number, origin, Spec(x.dtype, x.shape, strides), fake.device.type != NAME and not stays)


def _origins(graph: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.fx.Node]:
    """For each node the one in whose memory it lies by the schemas of ATen's ops; itself if it is no view."""
    found: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.graph.nodes:
        found[node] = node
        source = node.args[0] if node.op == "call_function" and node.args else None
        if isinstance(source, torch.fx.Node) and _is_view(node):
            found[node] = found[source]
    return found


def _is_view(node: torch.fx.Node) -> bool:
    target = node.target
    if target is operator.getitem:
        parts: Any = node.args[0]
        return parts.op == "call_function" and _is_view(parts)
    return isinstance(target, torch._ops.OpOverload) and any(
        r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns
    )
