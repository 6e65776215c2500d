"""The Kullback-Leibler divergence of two distributions, found by their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.distributions.distribution import Distribution
from polyhal.hal.errors import message
from polyhal.tensor import Tensor

Formula = Callable[[Any, Any], Tensor]
_FORMULAS: dict[tuple[type[Distribution], type[Distribution]], Formula] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Formula], Formula]:
    """Register the decorated function as KL(p || q) for p of `type_p` and q of `type_q`, and for their subclasses."""

    def register(formula: Formula) -> Formula:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return KL(p || q) in nats, of shape batch_shape.

    The formula of the most specific classes is used. Raises NotImplementedError if no pair matches.
    """
    ranked = [
        (type(p).__mro__.index(type_p) + type(q).__mro__.index(type_q), formula)
        for (type_p, type_q), formula in _FORMULAS.items()
        if isinstance(p, type_p) and isinstance(q, type_q)
    ]
    if not ranked:
        problem = f"no formula for {type(p).__name__} and {type(q).__name__}"
        raise NotImplementedError(message("kl_divergence", problem, expected="a pair of register_kl"))
    return min(ranked, key=lambda pair: pair[0])[1](p, q)
