"""Walking the tape backwards."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.amp.autocast import autocast
from polyhal.autograd.modes import set_grad_enabled
from polyhal.autograd.parts import Parts
from polyhal.autograd.rules import input_gradients
from polyhal.autograd.tape import Node
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS, OPS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_add, _cast, _copy, _sum_to, _full = (FUNCTIONS[n] for n in ("add", "cast", "copy", "sum_to", "full"))
_ADD, _SLICE = OPS["add"], OPS["slice"]
_hook_numbers = itertools.count()


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Add gradients of `tensors` to `.grad` of every leaf they were made from. See `Tensor.backward`."""
    seeds = [_seed(t, g) for t, g in zip(tensors, gradients, strict=True)]
    _walk(tensors, seeds, None, retain_graph=retain_graph or create_graph, create_graph=create_graph)


def differentiate(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Gradients of `outputs` with respect to `inputs`, which need not be leaves; None where there is no path."""
    seeds = [_seed(t, g) for t, g in zip(outputs, gradients, strict=True)]
    wanted = {_key(x): i for i, x in enumerate(inputs)}
    found = _walk(outputs, seeds, wanted, retain_graph=retain_graph or create_graph, create_graph=create_graph)
    return [found.get(wanted[_key(x)]) for x in inputs]


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` (weighted by `grad_outputs`) with respect to `inputs`; `.grad` stays untouched.

    With `create_graph` the gradients can be differentiated again. Raises AutogradError where an input has no path, unless
    `allow_unused`, which gives None for it.
    """
    outs = _sequence(outputs)
    ins = _sequence(inputs)
    seeds: Sequence[Any] = [None] * len(outs) if grad_outputs is None else _sequence(grad_outputs)
    found = differentiate(
        outs, seeds, ins, retain_graph=create_graph if retain_graph is None else retain_graph, create_graph=create_graph
    )
    if not allow_unused and any(f is None for f in found):
        missing = [i for i, f in enumerate(found) if f is None]
        raise AutogradError(
            message(
                "grad",
                f"inputs {missing} were not used to make the outputs",
                fix="pass allow_unused=True to get None for them",
            )
        )
    return tuple(found)


def _sequence(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _key(x: Tensor) -> tuple[int, int]:
    return (id(x.node), x.index) if x.node is not None else (id(x), -1)


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
    return gradient


def _walk(
    outputs: Sequence[Tensor],
    seeds: Sequence[Tensor],
    wanted: dict[tuple[int, int], int] | None,
    *,
    retain_graph: bool,
    create_graph: bool,
) -> dict[int, Tensor]:
    """Visit nodes from the newest to the oldest. A node's number is larger than those of all nodes it depends on."""
    found: dict[int, Tensor] = {}
    pending: dict[Node, list[Tensor | None]] = {}
    sliced: dict[tuple[Node, int], Parts] = {}
    queue: list[tuple[int, Node]] = []
    owned = {id(s.buffer) for s in seeds}

    def expect(node: Node) -> list[Tensor | None]:
        slots = pending.get(node)
        if slots is None:
            slots = pending[node] = [None] * len(node.outputs)
            heapq.heappush(queue, (-node.order, node))
        return slots

    def deliver(parent: Any, g: Tensor) -> None:
        if isinstance(parent, tuple):
            node, index = parent
            slots = expect(node)
            held = slots[index]
            slots[index] = g if held is None else _add(held, g)
            return
        hooked = _run_hooks(parent.hooks, g)
        if wanted is None:
            _accumulate(parent, hooked, None if create_graph else owned, shared=hooked is not g)
        elif (id(parent), -1) in wanted:
            i = wanted[id(parent), -1]
            found[i] = hooked if i not in found else _add(found[i], hooked)

    executor = dispatch.thread.executor
    with set_grad_enabled(create_graph), autocast(enabled=False), executor.differentiating():
        for out, seed in zip(outputs, seeds, strict=True):
            deliver((out.node, out.index) if out.node is not None else out, seed)
        while queue:
            _, node = heapq.heappop(queue)
            grads = pending[node]
            for i in range(len(grads)):
                parts = sliced.pop((node, i), None)
                if parts is not None:
                    deliver((node, i), parts.total())
            del pending[node]
            for i, g in enumerate(grads):
                if g is not None and node.hooks and i in node.hooks:
                    grads[i] = _run_hooks(node.hooks[i], g)
                if wanted is not None and g is not None and (id(node), i) in wanted:
                    k = wanted[id(node), i]
                    found[k] = grads[i] if k not in found else _add(found[k], grads[i])  # type: ignore[assignment]
            if node.op is _SLICE and node.rule is None and isinstance(node.parents[0], tuple):
                _gather_slice(node, grads[0], sliced, expect)
                if not retain_graph:
                    node.free()
                continue
            executor.differentiate(node)
            results = input_gradients(node, grads)
            for parent, spec, g in zip(node.parents, node.specs, results, strict=True):
                if parent is None or g is None:
                    continue
                if node.rule is not None:  # a user's function may return what it keeps
                    owned.add(id(g.buffer))
                assert spec is not None
                if g.shape != spec.shape:
                    g = _sum_to(g, spec.shape)
                if g.dtype is not spec.dtype:
                    g = _cast(g, spec.dtype)
                deliver(parent, g)
            if not retain_graph:
                node.free()
    return found


def _accumulate(leaf: Tensor, g: Tensor, taken: set[int] | None, *, shared: bool) -> None:
    """Add to a leaf's gradient, in place where nothing is differentiated again (`taken` is not None).

    So the first gradient must be the leaf's own: it is copied if it is `shared` with a hook, or its memory is among those
    `taken` already, as when one gradient flows into both terms of a sum, or repeats elements.
    """
    held = leaf.grad
    if taken is None:
        leaf.grad = g if held is None else _add(held, g)
    elif held is None:
        own = not shared and id(g.buffer) not in taken and g.is_contiguous
        leaf.grad = g.detach() if own else _copy(g)
        taken.add(id(g.buffer))
    else:
        dispatch.apply_into(_ADD, (held, g), (), (held,))


def _gather_slice(
    node: Node, g: Tensor | None, sliced: dict[tuple[Node, int], Parts], expect: Callable[[Node], object]
) -> None:
    """Keep the gradient of a slice with those of the other slices of the same tensor."""
    parent, spec = node.parents[0], node.specs[0]
    assert g is not None
    assert spec is not None
    expect(parent[0])
    if parent not in sliced:
        sliced[parent] = Parts(spec)
    bound = node.op.bind(node.params)
    sliced[parent].add(g, bound["starts"], bound["steps"])


def _run_hooks(hooks: dict[int, Callable[[Tensor], Tensor | None]] | None, g: Tensor) -> Tensor:
    for hook in list(hooks.values()) if hooks else ():
        replaced = hook(g)
        g = g if replaced is None else replaced
    return g


def add_hook(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
    """Register a gradient hook on a leaf or a result; returns the function that removes it."""
    if not tensor.requires_grad:
        raise AutogradError(
            message("register_hook", "the tensor does not require gradients", fix="call requires_grad_() first")
        )
    if tensor.node is None:
        tensor.hooks = tensor.hooks or {}
        table = tensor.hooks
    else:
        tensor.node.hooks = tensor.node.hooks or {}
        table = tensor.node.hooks.setdefault(tensor.index, {})
    number = next(_hook_numbers)
    table[number] = hook

    def remove() -> None:
        table.pop(number, None)

    return remove
