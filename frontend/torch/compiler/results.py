"""Results of a compiled graph: constants, views of its arguments, and tensors that its program computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import ALIGNMENT, Spec, is_dense
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.compiler.host import HostTensors
from polyhal.torch.compiler.layouts import Symbols, same_layout, stored
from polyhal.torch.compiler.saved_values import carrier, origin, save, words_of
from polyhal.torch.device import NAME


@dataclass(slots=True)
class ProgramRun:
    """One call of a program."""

    arguments: Sequence[Any]
    given: dict[int, Tensor]
    """The arguments on the device, by position."""
    made: list[Tensor]
    host: HostTensors
    wrapped: dict[Result, torch.Tensor] = field(default_factory=dict)
    """Tensors for PyTorch that were already created in this call, by result."""


class Result(Protocol):
    """Recipe for one result of a graph, applied to each run."""

    def __call__(self, run: ProgramRun, /) -> Any:
        """Return the value for PyTorch."""


class FixedValue(NamedTuple):
    """None, or a number that depends only on shapes."""

    value: Any

    def __call__(self, run: ProgramRun) -> Any:
        return self.value


class ComputedNumber(NamedTuple):
    """A number that depends on float arguments."""

    scalar: RuntimeScalar

    def __call__(self, run: ProgramRun) -> Any:
        return self.scalar.value


class InputView(NamedTuple):
    """A view of an argument, which the program does not copy."""

    position: int
    whole: Spec
    spec: Spec
    offset: int
    is_argument: bool
    """True if PyTorch expects the argument, rather than a view of it."""

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        x: torch.Tensor = run.arguments[self.position]
        spec = self.spec
        strides = x.stride()
        is_moved = strides != self.whole.strides and not same_layout(x.shape, strides, self.whole.strides)
        if is_moved:  # a copy was made for the program
            given = run.given[self.position]
            moved = tensors.view_of(given, spec, given.ref.offset + self.offset)
            return tensors.wrap(moved) if x.device.type == NAME else run.host.returned(moved)
        if self.is_argument:
            return x
        start: Any = x.storage_offset()
        return x.as_strided(spec.shape, spec.strides, start + self.offset)


class Made:
    """A contiguous tensor that the program computes (a block), in which PyTorch has one result or several views."""

    __slots__ = ("_contiguous", "_dtype", "_is_whole", "_number", "_on_host", "_spec", "_strides")

    def __init__(self, number: int, spec: Spec, on_host: bool) -> None:
        """Describe result `number` of the program; `spec` is the layout that PyTorch expects in its block."""
        self._number = number
        self._spec = spec
        self._on_host = on_host
        self._dtype = tensors.TORCH_DTYPES[spec.dtype]
        self._strides = None if spec.is_contiguous else spec.strides
        self._contiguous: Spec | None = None
        """The spec of a block that was found to be contiguous."""
        self._is_whole = False
        """True if that is the expected layout."""

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        known = run.wrapped.get(self)
        if known is None:
            block = run.made[self._number]
            if block.ref.spec is not self._contiguous:
                block = self._checked(block)
            known = run.wrapped[self] = self._wrapped(block, run.host)
        return known

    def value(self, run: ProgramRun) -> Tensor:
        """Return the result as Polyhal's tensor."""
        block = run.made[self._number]
        if block.ref.spec is not self._contiguous:
            block = self._checked(block)
        return block if self._is_whole else tensors.view_of(block, self._spec, block.ref.offset)

    def _checked(self, block: Tensor) -> Tensor:
        if not block.ref.is_contiguous:
            return FUNCTIONS["contiguous"](block)  # type: ignore[no-any-return]
        self._contiguous = block.ref.spec
        self._is_whole = block.ref.spec == self._spec
        return block

    def _wrapped(self, block: Tensor, host: HostTensors) -> torch.Tensor:
        if not self._on_host:
            return tensors.wrap_block(block, self._dtype, self._spec.shape, self._strides)
        return host.returned(tensors.view_of(block, self._spec, block.ref.offset))


@dataclass(frozen=True, slots=True, eq=False)
class MadeView:
    """A view of a block that other results share. PyTorch makes the view, so that it notices a change of one of them.

    Each node has its own tensor, also if views are equal: PyTorch's autograd distinguishes results by identity, and marks those
    without a gradient.
    """

    base: Made
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    """Elements between the first element of the base and the first element of the view."""

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        known = run.wrapped.get(self)
        if known is None:
            base = self.base(run)
            start: Any = base.storage_offset()
            known = run.wrapped[self] = base.as_strided(self.shape, self.strides, start + self.offset)
        return known

    def value(self, run: ProgramRun) -> Tensor:
        """Return the result as Polyhal's tensor."""
        base = self.base.value(run)
        offset = base.ref.offset + self.offset
        spec = Spec(base.dtype, self.shape, self.strides, offset % ALIGNMENT == 0)
        return tensors.view_of(base, spec, offset)


class Carrier:
    """The carrier of values that a forward graph saves."""

    __slots__ = ("_parts", "_words")

    def __init__(self, parts: Sequence[Made | MadeView]) -> None:
        self._parts = parts
        self._words: int | None = None

    def __call__(self, run: ProgramRun) -> torch.Tensor:
        values = [part.value(run) for part in self._parts]
        if self._words is None:
            self._words = words_of([x.ref.spec for x in values])
        return carrier(values, self._words)


class GraphResults:
    """Builder of the results of a graph during its recording."""

    def __init__(self, graph: torch.fx.GraphModule, symbols: Symbols) -> None:
        self._symbols = symbols
        returned = {n for x in graph_results(graph) for n in _parts(x) if isinstance(n, torch.fx.Node)}
        counts = Counter(map(origin, returned))
        self.bases: dict[torch.fx.Node, Any] = dict.fromkeys(
            n for n, k in counts.items() if k > 1 and _is_dense(n, symbols)
        )
        """Nodes whose memory several results share, with their values once computed."""
        self._inputs: dict[int, tuple[int, Tensor]] = {}
        self._known: dict[Any, Made] = {}
        """Blocks by node. A value that is both returned and saved for backward is one tensor in each run, so that PyTorch's
        version counter detects a change between the passes."""
        self._views: dict[Any, MadeView] = {}
        """Views of blocks by node."""
        self._taken: set[int] = set()
        """Identities of buffers that other results must not share."""
        self.made: list[Tensor] = []
        """Tensors that the program must return."""

    def add_argument(self, position: int, x: Tensor, is_written: bool) -> None:
        """Reserve the memory of an argument: results in it are copied. Views are not, if the graph does not write to it."""
        self._taken.add(id(x.buffer))
        if not is_written:
            self._inputs[id(x.buffer)] = position, x

    def reserve(self, arrays: Sequence[Tensor]) -> None:
        """Reserve the memory of arrays that are not arguments for PyTorch: results in it are copied."""
        self._taken.update(id(x.buffer) for x in arrays)

    def add(self, node: Any, x: Any, stays: bool) -> Result:
        """Return the recipe of a result. With `stays` it remains on the device, although PyTorch assumes the CPU: only other
        graphs of the program read it."""
        if isinstance(x, RuntimeScalar):
            return ComputedNumber(x)
        if isinstance(node, torch.fx.Node) and node.target is save:
            return Carrier([self._stored(n, v) for n, v in zip(_parts(node), x, strict=True)])
        if not isinstance(x, Tensor):
            return FixedValue(x)
        first = origin(node)
        source = self._inputs.get(id(x.buffer))
        if source is not None and first.op == "placeholder" and all(s >= 0 for s in x.ref.strides):
            position, whole = source
            offset = x.ref.offset - whole.ref.offset
            return InputView(position, whole.ref.spec, x.ref.spec, offset, node is first)
        fake: torch.Tensor = node.meta["val"]
        return self._stored(node, x, fake.device.type != NAME and not stays)

    def _stored(self, node: torch.fx.Node, x: Tensor, on_host: bool = False) -> Made | MadeView:
        """Return a block for the value of a node, or a view of the block that it shares with other results."""
        first = origin(node)
        if first not in self.bases or x.size == 0:
            return self._block(node, x, on_host)
        base = self._block(first, self.bases[first], on_host)
        if node is first:
            return base
        if node not in self._views:
            offsets = [self._symbols.value(n.meta["val"].storage_offset()) for n in (first, node)]
            strides = self._symbols.strides(node.meta["val"])
            self._views[node] = MadeView(base, x.shape, strides, offsets[1] - offsets[0])
        return self._views[node]

    def _block(self, node: torch.fx.Node, x: Tensor, on_host: bool) -> Made:
        """Return the block for the value of a node, in the memory layout that PyTorch expects."""
        known = self._known.get(node)
        if known is None:
            strides = self._symbols.strides(node.meta["val"])
            block = stored(x, strides)
            if id(block.buffer) in self._taken:
                block = FUNCTIONS["copy"](block)
            self._taken.add(id(block.buffer))
            spec = Spec(x.dtype, x.shape, strides)
            known = self._known[node] = Made(len(self.made), spec, on_host)
            self.made.append(block)
        return known


def graph_results(graph: torch.fx.GraphModule) -> Sequence[Any]:
    """Return the nodes and constants that a graph returns."""
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    returned: Any = output.args[0]
    return returned if isinstance(returned, (list, tuple)) else [returned]


def _parts(x: Any) -> Sequence[Any]:
    """Return the values of a carrier, or a result itself."""
    if isinstance(x, torch.fx.Node) and x.target is save:
        values: Any = x.args[0]
        return values  # type: ignore[no-any-return]
    return (x,)


def _is_dense(node: torch.fx.Node, symbols: Symbols) -> bool:
    """Return whether a node computes a tensor without gaps in its memory."""
    fake = node.meta.get("val")
    if node.op != "call_function" or not isinstance(fake, torch.Tensor):
        return False
    try:
        return is_dense(tuple(symbols.value(n) for n in fake.shape), symbols.strides(fake))
    except KeyError:  # a size that depends on elements
        return False
