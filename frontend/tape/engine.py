"""The backward pass: a walk over the tape from the results to the leaves."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.system.checks.gradients import watched_gradients
from polyhal.mixed_precision import autocast
from polyhal.tape.complex_parts import joined_gradients, parts_of, seeded_parts
from polyhal.tape.hooks import run_hooks
from polyhal.tape.modes import GradMode
from polyhal.tape.ownership import share
from polyhal.tape.paths import Paths
from polyhal.tape.rules import input_gradients
from polyhal.tape.sinks import GradientCollector, LeafAccumulator, PartialCollector
from polyhal.tape.slices import Gradient, SliceSum, add_gradients
from polyhal.tape.tape import Edge, GradNode, edge_of

if TYPE_CHECKING:
    from polyhal.tape.checkpoint import Region
    from polyhal.tensor import Tensor

_full, _copy = FUNCTIONS["full"], FUNCTIONS["copy"]


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add gradients of `tensors`, weighted by `grad_tensors`, to `.grad` of every leaf, or only of `inputs`.

    A tensor of one element needs no weights. The tape is freed unless `retain_graph`, which is `create_graph` by default.
    Raises AutogradError. See `Tensor.backward`.
    """
    outs = _sequence(tensors)
    gradients = [None] * len(outs) if grad_tensors is None else _sequence(grad_tensors)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is not None:
        _add_to(_sequence(inputs), outs, gradients, retain, create_graph)
        return
    ends, weights = seeded_parts(outs, gradients)
    seeds = [_seed(t, g) for t, g in zip(ends, weights, strict=True)]
    sink = LeafAccumulator(create_graph=create_graph)
    _walk(ends, seeds, sink, retain_graph=retain or create_graph, create_graph=create_graph)
    sink.finish()


def backward_to(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor], collected: Sequence[Tensor]
) -> list[Tensor | None]:
    """Add gradients to `.grad` of every leaf but those `collected`, whose gradients are returned; None without a path."""
    ends, weights = seeded_parts(outputs, gradients)
    seeds = [_seed(t, g) for t, g in zip(ends, weights, strict=True)]
    sink = PartialCollector(collected)
    _walk(ends, seeds, sink, retain_graph=False, create_graph=False)
    sink.finish()
    return sink.gradients()


def _add_to(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], gradients: Sequence[Any], retain: bool, create_graph: bool
) -> None:
    """Add gradients to `.grad` of `inputs` and of nothing else; nothing where there is no path."""
    found = differentiate(outputs, gradients, inputs, retain_graph=retain, create_graph=create_graph)
    with GradMode(create_graph):
        for x, g in zip(inputs, found, strict=True):
            if g is not None:
                x.grad = _copy(g) if x.grad is None else x.grad + g


def differentiate(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Return gradients of `outputs` with respect to `inputs`, which need not be leaves; None if there is no path."""
    outputs, gradients = seeded_parts(outputs, gradients)
    seeds = [_seed(t, g) for t, g in zip(outputs, gradients, strict=True)]
    sink = GradientCollector(parts_of(inputs))
    paths = Paths([edge_of(out) for out in outputs], sink.chosen)
    _walk(outputs, seeds, sink, retain_graph=retain_graph or create_graph, create_graph=create_graph, paths=paths)
    return joined_gradients(inputs, sink.gradients())


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return gradients of the sum of `outputs` (weighted by `grad_outputs`) with respect to `inputs`; `.grad` stays untouched.

    With `create_graph` the gradients can be differentiated again. An input without a path raises AutogradError; with
    `allow_unused` its gradient is None, and with `materialize_grads` zeros. Raises ValueError for `only_inputs=False`, which
    PyTorch no longer has either, and `is_grads_batched`, for which there is `polyhal.vmap`.

    >>> x = polyhal.tensor(3.0, requires_grad=True)
    >>> (slope,) = polyhal.grad(x * x, x)
    >>> slope.item()
    6.0
    """
    if not only_inputs or is_grads_batched:
        problem = "is_grads_batched" if is_grads_batched else "only_inputs=False"
        fix = "use polyhal.func.vjp with polyhal.vmap" if is_grads_batched else "use backward"
        raise ValueError(message("grad", f"{problem} is not supported", fix=fix))
    outs = _sequence(outputs)
    ins = _sequence(inputs)
    seeds: Sequence[Any] = [None] * len(outs) if grad_outputs is None else _sequence(grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    gradients = differentiate(outs, seeds, ins, retain_graph=retain, create_graph=create_graph)
    if materialize_grads:
        return tuple(
            _full(x.shape, 0, x.dtype, device=x.device) if g is None else g for x, g in zip(ins, gradients, strict=True)
        )
    if not allow_unused and any(g is None for g in gradients):
        missing = [i for i, g in enumerate(gradients) if g is None]
        raise AutogradError(
            message(
                "grad",
                f"inputs {missing} were not used to make the outputs",
                fix="pass allow_unused=True to get None for them",
            )
        )
    return tuple(gradients)


def _sequence(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _seed(out: Tensor, gradient: Tensor | None) -> Tensor:
    if not out.requires_grad:
        raise AutogradError(
            message(
                "backward",
                f"the tensor of shape {out.shape} is not on the tape",
                fix="set requires_grad on an input, and leave no_grad()",
            )
        )
    if gradient is None:
        if out.size != 1:
            raise AutogradError(
                message(
                    "backward", f"the output has shape {out.shape}", expected="one element, or a gradient of that shape"
                )
            )
        seed: Tensor = _full(out.shape, 1, out.dtype, device=out.device)
        return seed
    if gradient.shape != out.shape:
        raise AutogradError(
            message("backward", f"the gradient has shape {gradient.shape}", expected=f"the output's {out.shape}")
        )
    share(gradient)
    return gradient


def _walk(
    outputs: Sequence[Tensor],
    seeds: Sequence[Tensor],
    sink: LeafAccumulator | GradientCollector,
    *,
    retain_graph: bool,
    create_graph: bool,
    paths: Paths | None = None,
) -> None:
    """Visit nodes from the newest to the oldest: the order of a node exceeds the orders of all nodes that it depends on.

    With `paths`, only the gradient rules of nodes on them are applied.
    """
    pending = _Pending()
    regions: set[Region[Any]] = set()
    hooks = dispatch.thread.executor.tape_hooks
    scope = nullcontext() if hooks is None else hooks.differentiating()
    with GradMode(create_graph), autocast(enabled=False), scope:
        for out, seed in zip(outputs, seeds, strict=True):
            _deliver(edge_of(out), seed, pending, sink)
        while pending.queue:
            node, sums = pending.pop()
            if hooks is not None:
                hooks.differentiate(node)
            grads = _arrived(node, sums)
            sink.visit(node, grads)
            if paths is not None and not paths.leads(node):
                continue
            if node.region is not None:
                regions.add(node.region[0])
                node.restore()
            for parent, g in input_gradients(node, grads, paths):
                _deliver(parent, g, pending, sink)
            if retain_graph:
                node.drop_recomputed()
            else:
                node.free()
        for region in regions:
            region.forget()
        sink.run_hooks()


class _Pending:
    """The nodes to visit, the newest first, with the gradients that flowed into their outputs so far."""

    def __init__(self) -> None:
        self._sums: dict[GradNode, list[Gradient | None]] = {}
        self.queue: list[tuple[int, GradNode]] = []
        self._watched = watched_gradients()

    def add(self, node: GradNode, index: int, g: Gradient) -> None:
        """Add to the gradient of output `index`."""
        sums = self._sums.get(node)
        if sums is None:
            sums = self._sums[node] = [None] * len(node.outputs)
            heapq.heappush(self.queue, (-node.order, node))
        previous = sums[index]
        sums[index] = total = g if previous is None else add_gradients(previous, g)
        if self._watched is not None:
            self._watched.replace(node, index, total.tensors() if type(total) is SliceSum else (total,))

    def pop(self) -> tuple[GradNode, list[Gradient | None]]:
        """Return the newest node, whose gradients are complete."""
        _, node = heapq.heappop(self.queue)
        if self._watched is not None:
            self._watched.release(node, len(node.outputs))
        return node, self._sums.pop(node)


def _deliver(to: Edge, g: Gradient, pending: _Pending, sink: LeafAccumulator | GradientCollector) -> None:
    if isinstance(to, tuple):
        pending.add(to[0], to[1], g)
    else:
        sink.add_to_leaf(to, g.total() if type(g) is SliceSum else g)


def _arrived(node: GradNode, sums: list[Gradient | None]) -> list[Tensor | None]:
    """Return the complete gradients of a node's outputs, as its hooks left them."""
    grads = [g.total() if type(g) is SliceSum else g for g in sums]
    if node.hooks is not None:
        for i, g in enumerate(grads):
            if g is not None and i in node.hooks:
                grads[i] = run_hooks(node.hooks[i], g)
    return grads
