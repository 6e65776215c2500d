"""One tensor for the values that a forward graph saves for its backward graph.

Autograd, AOTAutograd and both graphs handle each saved tensor by itself, which takes longer than the kernels of small models.
Values that only the two graphs read therefore travel as Polyhal tensors in the storage of a single tensor, the carrier. Its
elements are computed only for programs that read them, such as hooks that move saved tensors to the CPU. Arguments of the
forward graph, and values in the memory of its results, are saved by PyTorch, which detects later changes of them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from polyhal.hal.dtypes import int32
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor, wrap
from polyhal.torch import tensors
from polyhal.torch.compiler import private
from polyhal.torch.compiler.layouts import is_storable, is_symbolic
from polyhal.torch.private import new_tensor
from polyhal.torch.storages import Storage

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_LINE = 128
"""Alignment of values in the elements of a carrier, in bytes."""
_FEWEST = 2
_VALUES = "polyhal_saved_values"
"""Key in the metadata of a carrier's placeholder: its traced values."""


def save(values: Sequence[Any]) -> Any:
    """Return a carrier of values; a node of forward graphs, which programs compute by `carrier`."""
    raise AssertionError("only compiled programs compute a carrier")


def saved(values: Any, index: int) -> Any:
    """Return a value of a carrier; a node of backward graphs."""
    return values[index]


class CarrierStorage(Storage):
    """Storage of a carrier. `values` are the saved values, `root` their elements one after another."""

    values: Sequence[Tensor]

    @cached_property
    def root(self) -> Tensor:  # type: ignore[override]
        """Copy the values to common memory."""
        device: Device = self.values[0].device
        starts, words = _places([x.ref.spec for x in self.values])
        buffer, ref = device.reserve(contiguous(int32, (words,)))
        for x, start in zip(self.values, starts, strict=True):
            if x.size:
                target = contiguous(x.dtype, x.shape)
                device.backend.copy(x.ref, Ref(ref.handle, target, start // x.dtype.itemsize))
        return wrap(device, buffer, ref)


def carrier(values: Sequence[Tensor], words: int) -> torch.Tensor:
    """Return a carrier of values that take up `words`."""
    out = new_tensor((words,), torch.int32)
    storage: Any = tensors.storage_of(out)
    storage.__class__ = CarrierStorage
    storage.values = values
    return out


def words_of(specs: Sequence[Spec]) -> int:
    """Return the number of elements of a carrier."""
    return _places(specs)[1]


def values_of(x: torch.Tensor, specs: Sequence[Spec]) -> Sequence[Tensor]:
    """Return the values of a carrier, or of a copy of one: then in contiguous layouts of the shapes and dtypes of `specs`."""
    storage = tensors.storage_of(x)
    if type(storage) is CarrierStorage:
        return storage.values
    root: Tensor = FUNCTIONS["contiguous"](tensors.unwrap(x))
    if root.ref.offset * int32.itemsize % _LINE:
        root = FUNCTIONS["copy"](root)
    starts, _ = _places(specs)
    first = root.ref.offset * int32.itemsize
    found = []
    for spec, start in zip(specs, starts, strict=True):
        plain = contiguous(spec.dtype, spec.shape)
        found.append(
            wrap(root.device, root.buffer, Ref(root.ref.handle, plain, (first + start) // spec.dtype.itemsize))
        )
    return found


def _places(specs: Sequence[Spec]) -> tuple[list[int], int]:
    """Return the first byte of each value, and the number of words of all."""
    starts, end = [], 0
    for spec in specs:
        starts.append(end)
        end += -(-contiguous(spec.dtype, spec.shape).nbytes // _LINE) * _LINE
    return starts, end // int32.itemsize


def carry(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, count: int, device: Device) -> None:
    """Let the forward graph return a carrier of values that only both graphs read, after its `count` other results.

    Values of dtypes that `device` does not hold, such as complex ones, are saved by PyTorch.
    """
    output = forward.graph.output_node()
    returned = list(output.args[0])  # type: ignore[arg-type]
    shared = {origin(n) for n in returned[:count] if isinstance(n, torch.fx.Node)}
    places = {n.name: n for n in backward.graph.nodes if n.op == "placeholder"}
    chosen = [
        n for n in returned[count:] if _is_carried(n, shared, device) and n.name in places and places[n.name].users
    ]
    if len(chosen) < _FEWEST:
        return
    with forward.graph.inserting_before(output):
        made = forward.graph.call_function(save, (chosen,))
    made.meta["val"] = private.traced_empty(chosen[0].meta["val"], torch.int32)
    kept = set(chosen)
    output.args = ([*returned[:count], made, *(n for n in returned[count:] if n not in kept)],)
    _read_from_carrier(backward, [places[n.name] for n in chosen], made.meta["val"])
    forward.recompile()
    backward.recompile()


def carried(placeholder: torch.fx.Node) -> list[torch.Tensor] | None:
    """Return the traced values of a carrier; None for another argument."""
    return placeholder.meta.get(_VALUES)


def _read_from_carrier(graph: torch.fx.GraphModule, read: Sequence[torch.fx.Node], fake: torch.Tensor) -> None:
    """Replace placeholders of a backward graph by values of a carrier, in front of the first other tensor."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    first = next(n for n in placeholders if isinstance(n.meta.get("val"), torch.Tensor))
    with graph.graph.inserting_before(first):
        source = graph.graph.placeholder("carrier")
    source.meta["val"] = fake
    source.meta[_VALUES] = [n.meta["val"] for n in read]
    with graph.graph.inserting_after(placeholders[-1]):
        nodes = [graph.graph.call_function(saved, (source, i)) for i in reversed(range(len(read)))][::-1]
    for place, node in zip(read, nodes, strict=True):
        node.meta = dict(place.meta)
        place.replace_all_uses_with(node)
        graph.graph.erase_node(place)


def origin(node: torch.fx.Node) -> torch.fx.Node:
    """Return the node whose memory a node shares by the schemas of ATen's ops: itself, if it is not a view."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node) and is_view(node):
        node = node.args[0]
    return node


def is_view(node: torch.fx.Node) -> bool:
    """Return whether a node is a view of its first argument, or an element of a list of views."""
    target = node.target
    if target is operator.getitem:
        parts: Any = node.args[0]
        return parts.op == "call_function" and is_view(parts)
    return isinstance(target, torch._ops.OpOverload) and any(
        r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns
    )


def _is_carried(node: Any, shared: set[torch.fx.Node], device: Device) -> bool:
    """Return whether a result of a forward graph is a tensor of known shape in memory of its own on `device`."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return False
    fake, source = node.meta.get("val"), origin(node)
    return (
        isinstance(fake, torch.Tensor)
        and not is_symbolic(fake)
        and is_storable(fake, device)
        and source.op == "call_function"
        and source not in shared
    )
