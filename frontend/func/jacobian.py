"""Jacobians and Hessians: whole matrices of derivatives, a batch of rows or columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from polyhal.func.batched import active_levels
from polyhal.func.derivatives import jvp, tensors_of, vjp
from polyhal.func.vectorize import vmap
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.steps.tree import map_tree
from polyhal.tape.rules import zeros_like
from polyhal.tensor import Tensor

Argnums = int | tuple[int, ...]


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `func` in reverse: one backward pass per element of the result.

    For a result of shape R and an argument of shape A it has shape (*R, *A), nested like the result, then like `argnums`.
    Best where the result is smaller than the argument.

    >>> polyhal.func.jacrev(lambda x: x * x)(polyhal.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, of_chosen = _chosen(func, argnums, args, kwargs)
        result, pull_back, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        outputs = list(tensors_of(result))
        by_output = []
        for number, out in enumerate(outputs):

            def rows(unit: Tensor, number: int = number) -> tuple[Any, ...]:
                cotangents = iter(unit if i == number else zeros_like(o) for i, o in enumerate(outputs))
                gradients = pull_back(map_tree(result, lambda x: next(cotangents) if isinstance(x, Tensor) else x))
                return tuple(g for tree in gradients for g in tensors_of(tree))

            by_output.append([g.reshape((*out.shape, *g.shape[1:])) for g in _mapped(rows, _units(out), chunk_size)])
        found = iter(by_output)
        jacobians = map_tree(result, lambda x: _like(argnums, chosen, next(found)) if isinstance(x, Tensor) else None)
        return (jacobians, aux[0]) if has_aux else jacobians

    return jacobian


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `func` forwards: one directional derivative per element of an argument.

    The result equals `jacrev`. Best where the argument is smaller than the result. Raises ValueError for another
    `randomness` than "error".
    """
    if randomness != "error":
        raise ValueError(message("jacfwd", f"randomness is {randomness!r}", expected="'error'"))

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, of_chosen = _chosen(func, argnums, args, kwargs)
        inputs = list(tensors_of(chosen))
        columns: list[list[Tensor]] = []
        outputs: Any = None
        aux: list[Any] = []
        for number, x in enumerate(inputs):

            def column(unit: Tensor, number: int = number) -> tuple[Any, ...]:
                nonlocal outputs
                tangents = iter(unit if i == number else zeros_like(p) for i, p in enumerate(inputs))
                placed = map_tree(chosen, lambda p: next(tangents) if isinstance(p, Tensor) else p)
                outputs, derivative, *rest = jvp(of_chosen, chosen, placed, has_aux=has_aux)
                aux[:] = rest
                return tuple(tensors_of(derivative))

            parts = _mapped(column, _units(x), None)
            columns.append([_last(p, x.shape) for p in parts])
        found = iter([list(row) for row in zip(*columns, strict=True)])
        jacobians = map_tree(outputs, lambda o: _like(argnums, chosen, next(found)) if isinstance(o, Tensor) else None)
        return (jacobians, aux[0]) if has_aux else jacobians

    return jacobian


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of `func`: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)


def _chosen(
    func: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Return the arguments `argnums`, and `func` as a function of them."""
    numbers = [n % len(args) for n in ((argnums,) if isinstance(argnums, int) else argnums)]

    def of_chosen(*values: Any) -> Any:
        placed = dict(zip(numbers, values, strict=True))
        return func(*(placed.get(i, a) for i, a in enumerate(args)), **kwargs)

    return tuple(args[n] for n in numbers), of_chosen


def _units(x: Tensor) -> Tensor:
    """Return one tensor of the shape of `x` for each of its elements, which is 1 there: (x.size, *x.shape)."""
    from polyhal.creation import eye

    if not x.size:
        raise AutogradError(message("jacobian", f"a tensor of shape {x.shape} has no elements"))
    return eye(x.size, dtype=x.dtype, device=x.device).reshape((x.size, *x.shape))


def _mapped(function: Callable[..., tuple[Tensor, ...]], units: Tensor, chunk_size: int | None) -> tuple[Tensor, ...]:
    """`function` of every unit, stacked. Inside another `vmap` one by one, as that one batches the work already."""
    if not active_levels():
        results: tuple[Tensor, ...] = vmap(function, chunk_size=chunk_size)(units)
        return results
    rows = [function(units[i]) for i in range(units.shape[0])]
    return tuple(FUNCTIONS["stack"](list(column)) for column in zip(*rows, strict=True))


def _last(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` with its first axis moved to the end and divided into `shape`."""
    moved = FUNCTIONS["moveaxis"](x, 0, -1)
    result: Tensor = moved.reshape((*moved.shape[:-1], *shape))
    return result


def _like(argnums: Argnums, chosen: tuple[Any, ...], found: list[Tensor]) -> Any:
    """Return tensors in the nesting of the arguments."""
    remaining = iter(found)
    trees = tuple(map_tree(c, lambda x: next(remaining) if isinstance(x, Tensor) else None) for c in chosen)
    return trees[0] if isinstance(argnums, int) else trees
