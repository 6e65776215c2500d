"""Interpret a graph of ATen ops on Polyhal tensors with the functions of the table. Recording the pass compiles the graph."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError, UnsupportedDTypeError, UnsupportedOpError
from polyhal.hal.layout import axis_order, is_dense
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.compiler import private
from polyhal.torch.compiler.calls import as_argument, call_of
from polyhal.torch.compiler.functional import filled_to
from polyhal.torch.compiler.layouts import Symbols, is_storable
from polyhal.torch.compiler.saved_values import save, saved
from polyhal.torch.private import decompositions as known_decompositions
from polyhal.torch.registration import UnsupportedArgumentsError
from polyhal.torch.table.operands import cast

if TYPE_CHECKING:
    from polyhal.torch.call_types import Keywords

_REFUSALS = (UnsupportedArgumentsError, UnsupportedOpError, UnsupportedDTypeError, CaptureError)
"""Errors by which a function declines arguments or dtypes; a CaptureError means that it would have to read elements."""


_HANDLED_HERE = (
    torch.ops.aten.copy_.default,
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_scatter.default,
    save,
    saved,
)
_INEXACT = (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,)
"""Ops whose decomposition does not compute all results."""
_OWN: dict[Any, int] = {torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default: 6}
"""Indices of results whose contents are device-specific state for the backward pass; programs do not compute them."""
_SIZES = (
    torch.ops.aten.sym_size.int,
    torch.ops.aten.sym_stride.int,
    torch.ops.aten.sym_numel.default,
    torch.ops.aten.sym_storage_offset.default,
)


class UnsupportedNodeError(Exception):
    """A node that cannot be part of a compiled program."""

    def __init__(self, node: torch.fx.Node, reason: str) -> None:
        super().__init__(f"{node.target}: {reason}")
        self.node = node
        self.reason = reason


class Interpreter:
    """One pass over a graph."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        device: Device,
        symbols: Symbols,
        kept: dict[torch.fx.Node, Any] | None = None,
    ) -> None:
        """Prepare a pass that stores the values of the keys of `kept` in it."""
        self._kept = {} if kept is None else kept
        self._graph = graph
        self._device = device
        self._symbols = symbols
        self.writes: dict[torch.fx.Node, Any] = {}
        """New values of placeholders after the run, by placeholder."""

    def run(self, values: Sequence[Any]) -> Any:
        """Return the results for the values of placeholders, nested as in the output. Raises UnsupportedNodeError."""
        env: dict[torch.fx.Node, Any] = {}
        given = iter(values)
        last = last_uses(self._graph.graph)
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "output":
                return pytree.tree_map(lambda x: env[x] if isinstance(x, torch.fx.Node) else x, node.args[0])
            elif node.op == "get_attr":
                env[node] = self._constant(node)
            else:
                env[node] = self._computed(node, env)
            if node in self._kept:
                self._kept[node] = env[node]
            for done in last.get(node, ()):
                del env[done]
        raise AssertionError("a graph without an output")

    def _constant(self, node: torch.fx.Node) -> Any:
        value: Any = self._graph
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor):
            raise UnsupportedNodeError(node, "it is a graph within the graph")
        return tensors.upload(value) if value.device.type == "cpu" else tensors.unwrap(value)

    def _computed(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
        def filled(x: Any) -> Any:
            return env[x] if isinstance(x, torch.fx.Node) else as_argument(x, self._device)

        try:
            args, kwargs = _mapped(node.args, filled), _mapped(node.kwargs, filled)
        except TypeError as error:
            raise UnsupportedNodeError(node, str(error)) from error
        if node.op != "call_function":
            raise UnsupportedNodeError(node, f"a {node.op}")
        if node.target is save:
            return args[0]
        if node.target is operator.getitem or node.target is saved:
            return args[0][args[1]]
        if is_number(node):
            return self._number(node, args)
        if node.target is torch.ops.aten.copy_.default:
            env[node.args[0]] = self._write(node, args[0], args[1])  # type: ignore[index]
            return env[node.args[0]]  # type: ignore[index]
        if node.target is torch.ops.aten.as_strided.default:
            return self._as_strided(node, args[0], args[1:])
        if node.target is torch.ops.aten.as_strided_scatter.default:
            return self._as_strided(node, args[0], args[2:], args[1])
        return self._conforming(node, self._called(node, env, args, kwargs))

    def _called(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any], args: list[Any], kwargs: Keywords) -> Any:
        """Compute a node with a function of the table, or else by PyTorch's decomposition."""
        call = call_of(node.target)
        if call is None:
            raise UnsupportedNodeError(node, "there is no function for it")
        try:
            return call(self._device, list(args), kwargs)
        except _REFUSALS as error:
            reason = str(error) or "not with these arguments"
            found = self._decomposition(node, env)
            if found is None:
                raise UnsupportedNodeError(node, reason) from error
        parts = Interpreter(found.graph, self._device, self._symbols)
        try:
            out = parts.run(found.values)
        except UnsupportedNodeError as inner:
            raise UnsupportedNodeError(node, f"{reason}, nor by PyTorch's decomposition ({inner})") from inner
        if parts.writes:
            raise UnsupportedNodeError(node, f"{reason}, and PyTorch's decomposition writes to its arguments")
        return out

    def _decomposition(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> _Decomposition | None:
        """Trace PyTorch's decomposition of a node; None if PyTorch has none."""
        rule = all_decompositions().get(node.target)
        if rule is None or node.target in _INEXACT:
            return None
        leaves, structure = pytree.tree_flatten(
            _mapped((node.args, node.kwargs), lambda x: env[x] if isinstance(x, torch.fx.Node) else x)
        )
        places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

        def function(*given: Any) -> Any:
            for i, x in zip(places, given, strict=True):
                leaves[i] = x
            args, kwargs = pytree.tree_unflatten(leaves, structure)
            return rule(*args, **kwargs)

        values = [leaves[i] for i in places]
        layouts = [(x.shape, x.ref.strides, tensors.TORCH_DTYPES[x.dtype]) for x in values]
        graph = private.traced(function, decompositions(), layouts)
        return None if graph is None else _Decomposition(graph, values)

    def _number(self, node: torch.fx.Node, args: list[Any]) -> Any:
        """Compute a size, or a number from sizes."""
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            try:
                return self._symbols.value(value)
            except KeyError:
                pass
        if any(isinstance(x, Tensor) for x in args):
            raise UnsupportedNodeError(node, "it makes a Python number from elements")
        target: Callable[..., Any] = node.target  # type: ignore[assignment]
        return target(*args)

    def _write(self, node: torch.fx.Node, target: Tensor, value: Tensor) -> Any:
        """Return the value that replaces a placeholder. Writes to placeholders are the only mutation in these graphs.

        The memory is written after the run, because an earlier value may be a view of it.
        """
        place = node.args[0]
        if not isinstance(place, torch.fx.Node) or place.op != "placeholder":
            raise UnsupportedNodeError(node, "it writes to a tensor that is not an argument of the graph")
        self.writes[place] = filled_to(cast(value, target.dtype), target.shape)
        return self.writes[place]

    def _as_strided(
        self, node: torch.fx.Node, x: Tensor, geometry: list[Any], replacement: Tensor | None = None
    ) -> Any:
        """Compute a view by strides of the memory that PyTorch assumes for `x`; or `x` with the view replaced."""
        source: Any = node.args[0]
        fake = source.meta["val"]
        strides = self._symbols.strides(fake)
        if not is_dense(x.shape, strides):
            raise UnsupportedNodeError(node, f"a view by strides of a tensor that has strides {strides}")
        order = axis_order(x.shape, strides)
        base = FUNCTIONS["contiguous"](FUNCTIONS["permute"](x, order))
        size, stride, offset = (*geometry, None)[:3]
        first = 0 if offset is None else offset - self._symbols.value(fake.storage_offset())
        try:
            if replacement is None:
                return FUNCTIONS["window"](base, tuple(size), tuple(stride), first)
            (changed,) = FUNCTIONS["overwrite"](base, cast(replacement, x.dtype), tuple(size), tuple(stride), first)
            return FUNCTIONS["permute"](changed, sorted(range(x.ndim), key=order.__getitem__))
        except ValueError as error:
            raise UnsupportedNodeError(node, str(error)) from error

    def _conforming(self, node: torch.fx.Node, out: Any) -> Any:
        """Cast results to PyTorch's dtypes. Raises UnsupportedNodeError for shapes that differ from PyTorch's."""
        expected = node.meta["val"]
        if isinstance(expected, torch.Tensor):
            return self._as_expected(node, out, expected)
        if isinstance(expected, (list, tuple)):
            own = _OWN.get(node.target)
            pairs = enumerate(zip(out, expected, strict=True))
            return [self._as_expected(node, None if i == own else x, e) for i, (x, e) in pairs]
        return out

    def _as_expected(self, node: torch.fx.Node, x: Any, expected: Any) -> Any:
        if not isinstance(expected, torch.Tensor):
            return x
        if x is not None:
            self._symbols.bind(expected, x)
        shape = tuple(self._symbols.value(n) for n in expected.shape)
        if x is None or (x.shape != shape and not (x.size and math.prod(shape))):
            # Device-specific state for the backward pass, or a gradient that is not required.
            return FUNCTIONS["full"](shape, 0, tensors.dtype_of(expected.dtype), device=self._device)
        if x.shape != shape:
            raise UnsupportedNodeError(node, f"its result has shape {x.shape}; expected {shape}")
        return cast(x, tensors.dtype_of(expected.dtype))


def why_not(node: torch.fx.Node, device: Device) -> str:
    """Return why a node cannot be part of a program, as far as its metadata shows; "" if it may be."""
    if node.op in ("placeholder", "output", "get_attr"):
        return ""
    if node.op != "call_function":
        return f"a {node.op}"
    for x in (node, *node.all_input_nodes):
        for value in pytree.tree_leaves(x.meta.get("val")):
            if isinstance(value, torch.Tensor) and not is_storable(value, device):
                return f"{device} does not support {value.dtype}"
    if node.target is operator.getitem or node.target in _HANDLED_HERE:
        return ""
    if is_number(node):
        reads = isinstance(node.target, torch._ops.OpOverload) and node.target not in _SIZES
        return "it makes a Python number from elements" if reads else ""
    return "" if call_of(node.target) is not None else "there is no function for it"


def writes_inside(node: torch.fx.Node) -> bool:
    """Return whether a node writes to a value other than an argument of its graph; functional graphs do not."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return False
    places = zip(target._schema.arguments, node.args, strict=False)
    written = [x for a, x in places if a.alias_info is not None and a.alias_info.is_write]
    return any(not isinstance(x, torch.fx.Node) or x.op != "placeholder" for x in written)


def is_number(node: torch.fx.Node) -> bool:
    """Return whether a node is a number (a size, or computed from sizes) rather than a tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))


def _mapped(x: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to the leaves of a tree of arguments; tuples become lists."""
    if isinstance(x, (list, tuple)):
        return [_mapped(v, function) for v in x]
    if isinstance(x, dict):
        return {k: _mapped(v, function) for k, v in x.items()}
    return function(x)


def last_uses(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Return by node the operands whose last use it is."""
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    seen: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found


class _Decomposition(NamedTuple):
    """Decomposition of a node: a graph of other ops."""

    graph: torch.fx.GraphModule
    values: list[Any]
    """The arguments of the graph."""


@functools.lru_cache(maxsize=1)
def all_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of all ops; table functions may decline some arguments."""
    return known_decompositions()


@functools.lru_cache(maxsize=1)
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of ops without a function in the table."""
    return {op: rule for op, rule in private.core_decompositions().items() if call_of(op) is None}
