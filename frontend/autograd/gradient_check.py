"""`gradcheck`: compare the gradients of a user's function with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tape.engine import differentiate
from polyhal.tensor import Tensor


class GradcheckError(AutogradError):
    """A gradient differs from finite differences."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    *,
    raise_exception: bool = True,
) -> bool:
    """Return whether the gradients of `func` at `inputs` agree with central differences of width 2 `eps`.

    Checks every input that requires a gradient, which must be float64 for the defaults to make sense, and every floating-point
    result. Raises GradcheckError, which names the element, or returns False without `raise_exception`. Raises
    AutogradError if no input requires a gradient.
    """
    values = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise AutogradError(message("gradcheck", "no input requires a gradient", fix="pass requires_grad=True to one"))
    problem = _first_problem(func, values, checked, eps, atol, rtol)
    if problem and raise_exception:
        raise GradcheckError(
            message("gradcheck", problem, fix="correct the gradient, or choose inputs away from kinks")
        )
    return not problem


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Return whether the second gradients of `func` agree with central differences of its first. See `gradcheck`.

    The first gradients are weighted by `grad_outputs`, one for each differentiable result, by default random ones.
    """
    values = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    outputs = [o for o in _outputs(func, values) if o.requires_grad]
    rng = np.random.default_rng(0)
    seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or ())
    seeds = seeds or [
        Tensor(rng.uniform(0.5, 1.5, o.shape).astype(o.dtype.numpy), device=o.device, requires_grad=True)
        for o in outputs
    ]

    def first(*arguments: Any) -> tuple[Tensor, ...]:
        point, weights = arguments[: len(values)], arguments[len(values) :]
        results = [o for o in _outputs(func, point) if o.requires_grad]
        wanted = [point[i] for i in checked]
        found = differentiate(results, weights, wanted, create_graph=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, [*values, *seeds], eps, atol, rtol, raise_exception=raise_exception)


def _outputs(func: Callable[..., Any], values: Sequence[Tensor]) -> list[Tensor]:
    """Return the floating-point results."""
    result = func(*values)
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [o for o in results if isinstance(o, Tensor) and o.dtype.is_floating_point]


def _first_problem(
    func: Callable[..., Any], values: list[Tensor], checked: list[int], eps: float, atol: float, rtol: float
) -> str:
    """Describe the first disagreement; empty if there is none."""
    outputs = _outputs(func, values)
    for number, out in enumerate(outputs):
        numeric = {i: _differences(func, values, i, number, eps) for i in checked}
        for element in range(out.size):
            seed = np.zeros(out.size, out.dtype.numpy)
            seed[element] = 1
            found: list[Tensor | None] = [None] * len(checked)
            if out.requires_grad:
                weight = Tensor(seed.reshape(out.shape), device=out.device)
                found = differentiate([out], [weight], [values[i] for i in checked], retain_graph=True)
            for i, g in zip(checked, found, strict=True):
                expected = numeric[i][..., element]
                got = np.zeros(values[i].shape) if g is None else g.detach().numpy().astype(np.float64)
                wrong = ~np.isclose(got, expected, rtol=rtol, atol=atol)
                if wrong.any():
                    at = tuple(int(k) for k in np.argwhere(wrong)[0])
                    return (
                        f"the derivative of element {element} of result {number} with respect to input {i} at {at} is "
                        f"{got[at]:.8g}, and finite differences give {expected[at]:.8g}"
                    )
    return ""


def _differences(func: Callable[..., Any], values: list[Tensor], i: int, number: int, eps: float) -> np.ndarray:
    """Central differences of result `number` with respect to input `i`: (*input, result.size)."""
    x = values[i]
    base = x.detach().numpy()
    columns = []
    for element in range(base.size):
        ends = []
        for step in (eps, -eps):
            moved = base.copy().reshape(-1)
            moved[element] += step
            copy = FUNCTIONS["reshape"](Tensor(moved, device=x.device), base.shape)
            copy.requires_grad_()  # functions under test may differentiate
            point = [copy if k == i else v for k, v in enumerate(values)]
            ends.append(_outputs(func, point)[number].detach().numpy().astype(np.float64).reshape(-1))
        columns.append((ends[0] - ends[1]) / (2 * eps))
    size = columns[0].size if columns else 0
    return np.stack(columns).reshape((*base.shape, size)) if columns else np.zeros((*base.shape, size))
