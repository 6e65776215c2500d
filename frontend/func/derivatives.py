"""Derivatives of functions by the tape: `vjp`, and functions composed of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

from polyhal.func.batched import BatchedTensor, Level, active_levels, batched, levels
from polyhal.func.batching import BatchingExecutor
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import executing
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.steps.tree import map_tree
from polyhal.tape.engine import differentiate
from polyhal.tape.modes import enable_grad
from polyhal.tape.rules import zeros_like
from polyhal.tape.tape import GradNode
from polyhal.tensor import Tensor


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return `func(*primals)` and a function from cotangents, nested like the result, to cotangents of the primals.

    With `has_aux` the function returns (result, auxiliary values), and a third value, the latter, is returned. Raises
    AutogradError for primals that are not floating point.
    """
    point = _Point(func, primals, has_aux)

    def pull_back(cotangents: Tensor | Sequence[Tensor]) -> tuple[Any, ...]:
        gradients = iter(point.gradients(list(tensors_of(cotangents))))
        return tuple(map_tree(p, lambda x: next(gradients) if isinstance(x, Tensor) else None) for p in primals)

    return (point.result, pull_back, point.aux) if has_aux else (point.result, pull_back)


def jvp(
    func: Callable[..., Any], primals: tuple[Tensor, ...], tangents: tuple[Any, ...], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return `func(*primals)` and its derivative in the direction of `tangents`.

    Computed as the transpose of `vjp`, which is linear in the cotangents, so that an op needs no rule of its own. Source: J.
    Townsend, "A new trick for calculating Jacobian vector products" (2017). Raises ValueError unless there is a tangent
    for each primal.
    """
    point = _Point(func, primals, has_aux)
    directions = list(tensors_of(tangents))
    if len(directions) != len(point.leaves):
        problem = f"{len(directions)} tangents for {len(point.leaves)} primals"
        raise ValueError(message("jvp", problem, expected="one for each"))
    derivatives = iter(point.directional(directions))
    result = map_tree(point.result, lambda x: next(derivatives) if isinstance(x, Tensor) else x)
    return (point.result, result, point.aux) if has_aux else (point.result, result)


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `func` with respect to its arguments `argnums`, and its value.

    `func` returns a tensor of one element; with `has_aux` (value, auxiliary values), and the result is (gradient, (value,
    auxiliary values)). Raises AutogradError for another result.
    """

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        chosen = {n % len(args): args[n] for n in numbers}

        def of_chosen(*values: Any) -> Any:
            placed = dict(zip(chosen, values, strict=True))
            return func(*(placed.get(i, a) for i, a in enumerate(args)), **kwargs)

        value, pull_back, *aux = vjp(of_chosen, *chosen.values(), has_aux=has_aux)
        if not isinstance(value, Tensor) or value.size != 1:
            shown = f"shape {value.shape}" if isinstance(value, Tensor) else repr(value)
            raise AutogradError(message("grad", f"the function returned {shown}", expected="a tensor of one element"))
        one = FUNCTIONS["full"](value.shape, 1, value.dtype, device=value.device)
        gradients = pull_back(one)
        result = gradients[0] if isinstance(argnums, int) else gradients
        return result, ((value, aux[0]) if has_aux else value)

    return function


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of `func` with respect to its arguments `argnums`.

    With `has_aux`, `func` returns (value, auxiliary values), and the result is (gradient, auxiliary values). Gradients nest:
    `grad(grad(f))` is the second derivative, and `vmap(grad(f))` has a gradient for each element of a batch.

    >>> polyhal.func.grad(lambda x: (x * x).sum())(polyhal.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return function


def tensors_of(value: Tensor | Sequence[Tensor]) -> Iterator[Tensor]:
    """The tensors among the leaves of `value`."""
    found: list[Any] = []
    map_tree(value, found.append)
    return (x for x in found if isinstance(x, Tensor))


class _Point:
    """A function at one point, on a tape that only this object reads.

    Inside `vmap` the primals are made elements of all batches first, so that each element of a batch has its own derivative;
    the tape holds whole batches.
    """

    def __init__(self, func: Callable[..., Any], primals: Sequence[Tensor], has_aux: bool) -> None:
        self._levels = active_levels()
        self._executor = _without(self._levels)
        outside = dispatch.thread.grad_enabled
        self.leaves: list[Tensor] = []
        with enable_grad():
            inputs = map_tree(tuple(primals), lambda x: self._leaf(x, outside) if isinstance(x, Tensor) else x)
            returned = func(*inputs)
        result, aux = returned if has_aux else (returned, None)
        self.aux: Any = map_tree(aux, lambda x: x.detach() if isinstance(x, Tensor) else x)
        self._outputs = [self._physical(x) for x in tensors_of(result)]
        self._physical_leaves = [self._physical(x) for x in self.leaves]
        self.higher = outside and self._reaches_others()
        self.result = map_tree(result, self._released)

    def _leaf(self, x: Tensor, outside: bool) -> Tensor:
        if not x.dtype.is_floating_point:
            problem = f"a primal is {x.dtype.name}"
            raise AutogradError(message("vjp", problem, expected="a floating-point dtype"))
        physical = self._physical(x)
        with executing(self._executor):
            if physical.requires_grad and outside:
                leaf = FUNCTIONS["reshape"](physical, physical.shape)
            else:
                leaf = physical.detach()
                leaf.requires_grad = True
        self.leaves.append(self._virtual(leaf))
        return self.leaves[-1]

    def _physical(self, x: Tensor) -> Tensor:
        """`x` with an axis for each active batch in front, the innermost last."""
        missing = [level for level in self._levels if level not in levels(x)]
        return _stripped(x, self._levels, missing, self._executor)

    def _virtual(self, physical: Tensor) -> Tensor:
        for level in reversed(self._levels):
            physical = batched(physical, level)
        return physical

    def _reaches_others(self) -> bool:
        """Return whether the result depends on tensors on the tape other than the primals: they may be differentiated too."""
        own = {id(x) for x in self._physical_leaves} | {(id(x.node), x.index) for x in self._physical_leaves}
        pending: list[Any] = [x if x.node is None else (x.node, x.index) for x in self._outputs if x.requires_grad]
        seen: set[int] = set()
        connected = any(x.node is not None for x in self._physical_leaves)
        while pending:
            edge = pending.pop()
            if isinstance(edge, tuple):
                node: GradNode = edge[0]
                if (id(node), edge[1]) not in own and id(node) not in seen:
                    seen.add(id(node))
                    pending += [p for p in node.parents if p is not None]
            elif id(edge) not in own:
                return True
        return connected

    def _released(self, x: Tensor) -> Any:
        """Return a result for the caller: still on the tape only if something outside can be differentiated."""
        return x.detach() if isinstance(x, Tensor) and not self.higher else x

    def gradients(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the leaves for cotangents of all results."""
        newer = [level for level in active_levels() if level not in self._levels]
        if newer and self._levels:
            return self._one_by_one(cotangents, newer[0])
        seeds = [self._physical(c) for c in cotangents] if self._levels else list(cotangents)
        with executing(self._executor if self._levels else dispatch.thread.executor):
            found = self._differentiated(seeds, create_graph=self.higher)
        return [self._virtual(g) for g in found] if self._levels else found

    def _one_by_one(self, cotangents: Sequence[Tensor], level: Level) -> list[Tensor]:
        """Return a batch of cotangents for results that are themselves in batches."""
        executor: Any = dispatch.thread.executor
        rows = []
        with executing(executor.base):
            for i in range(level.size):
                parts = [c.physical[i] if type(c) is BatchedTensor and c.level is level else c for c in cotangents]
                rows.append(self.gradients(parts))
            return [batched(FUNCTIONS["stack"](list(column)), level) for column in zip(*rows, strict=True)]

    def _differentiated(self, seeds: Sequence[Tensor], *, create_graph: bool) -> list[Tensor]:
        pairs = [(o, s) for o, s in zip(self._outputs, seeds, strict=True) if o.requires_grad]
        found: list[Tensor | None] = [None] * len(self._physical_leaves)
        if pairs:
            outputs, gradients = zip(*pairs, strict=True)
            found = differentiate(
                outputs, gradients, self._physical_leaves, retain_graph=True, create_graph=create_graph
            )
        return [zeros_like(x) if g is None else g for g, x in zip(found, self._physical_leaves, strict=True)]

    def directional(self, tangents: Sequence[Tensor]) -> list[Tensor]:
        """Return the derivative of every result in one direction."""
        directions = [self._physical(t) for t in tangents]
        with executing(self._executor), enable_grad():
            seeds = []
            for o in self._outputs:
                seed = zeros_like(o)
                seed.requires_grad = True
                seeds.append(seed)
            transposed = self._differentiated(seeds, create_graph=True)
            pairs = [(g, t) for g, t in zip(transposed, directions, strict=True) if g.requires_grad]
            found: list[Tensor | None] = [None] * len(seeds)
            if pairs:
                outputs, weights = zip(*pairs, strict=True)
                found = differentiate(outputs, weights, seeds, retain_graph=True, create_graph=self.higher)
            results = [zeros_like(o) if d is None else d for d, o in zip(found, self._outputs, strict=True)]
            released = results if self.higher else [r.detach() for r in results]
        return [self._virtual(r) for r in released]


def _without(active: Sequence[Level]) -> Any:
    """Return the thread's executor without the executors of `vmap`."""
    executor: Any = dispatch.thread.executor
    for _ in active:
        while not isinstance(executor, BatchingExecutor):
            executor = executor.base
        executor = executor.base
    return executor


def _stripped(x: Tensor, order: Sequence[Level], missing: Sequence[Level], executor: Any) -> Tensor:
    """Return the memory of `x` with one axis for each level of `order`, outermost first; `missing` ones repeat it."""
    inner: Any = x
    while type(inner) is BatchedTensor:
        inner = inner.physical
    if missing:
        with executing(executor):
            lengths, shape = [], []
            present = levels(x)
            rest = inner.shape[len(present) :]
            for level in reversed(order):
                lengths.append(level.size)
                shape.append(1 if level in missing else level.size)
            inner = FUNCTIONS["broadcast_to"](FUNCTIONS["reshape"](inner, (*shape, *rest)), (*lengths, *rest))
    result: Tensor = inner
    return result
