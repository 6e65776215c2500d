"""PyTorch's older functions for Jacobians and Hessians, in terms of `polyhal.func`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal import func as transforms
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor

Inputs = Tensor | tuple[Tensor, ...]


def vjp(
    func: Callable[..., Any], inputs: Inputs, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return `func(*inputs)` and the product of `v`, of the result's shape (by default 1), with the Jacobian."""
    values, single = _values(inputs)
    result, pull_back = transforms.vjp(func, *values)
    products = pull_back(_ones(result, "vjp") if v is None else v)
    return _released(result, create_graph), _released(products[0] if single else products, create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Inputs,
    v: Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Return `func(*inputs)` and the product of the Jacobian with `v`, nested like `inputs` (by default 1)."""
    values, single = _values(inputs)
    tangents = (_ones(inputs, "jvp"),) if v is None else (v,) if single else tuple(v)
    result, product = transforms.jvp(func, values, tangents)
    return _released(result, create_graph), _released(product, create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of `func` at `inputs`, nested like the results, then like `inputs`."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(message("jacobian", f"strategy is {strategy!r}", expected="'reverse-mode' or 'forward-mode'"))
    transform = transforms.jacrev if strategy == "reverse-mode" else transforms.jacfwd
    values, single = _values(inputs)
    return _released(transform(func, 0 if single else tuple(range(len(values))))(*values), create_graph)


def hessian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    outer_jacobian_strategy: str = "forward-mode",
) -> Any:
    """Return the second derivatives of `func`, whose result has one element, nested twice like `inputs`.

    They are forward over reverse and vectorized, whatever `vectorize` and `outer_jacobian_strategy` say: the values are
    the same.
    """
    values, single = _values(inputs)
    return _released(transforms.hessian(func, 0 if single else tuple(range(len(values))))(*values), create_graph)


def vhp(
    func: Callable[..., Any],
    inputs: Inputs,
    v: Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Return `func(*inputs)` and the product of `v`, nested like `inputs`, with the Hessian."""
    values, single = _values(inputs)
    numbers = tuple(range(len(values)))
    chosen = _ones(inputs, "vhp") if v is None else v
    weights = (chosen,) if single else tuple(chosen)
    _, pull_back = transforms.vjp(transforms.grad(func, numbers), *values)
    products = pull_back(weights)
    value = func(*values)
    return _released(value, create_graph), _released(products[0] if single else products, create_graph)


hvp = vhp
"""The Hessian is symmetric, so that its product from the left is that from the right."""


def _values(inputs: Inputs) -> tuple[tuple[Tensor, ...], bool]:
    return ((inputs,), True) if isinstance(inputs, Tensor) else (tuple(inputs), False)


def _ones(value: Any, name: str) -> Any:
    """1 for a tensor of one element. Raises AutogradError for others."""

    def one(x: Tensor) -> Tensor:
        if x.size != 1:
            problem = f"no v is given for a tensor of shape {x.shape}"
            raise AutogradError(message(name, problem, expected="v, or one element"))
        result: Tensor = FUNCTIONS["full"](x.shape, 1, x.dtype, device=x.device)
        return result

    return map_tree(value, one)


def _released(value: Any, create_graph: bool) -> Any:
    return value if create_graph else map_tree(value, lambda x: x.detach() if isinstance(x, Tensor) else x)
