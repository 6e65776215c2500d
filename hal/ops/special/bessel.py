"""Bessel functions of orders 0 and 1, modified ones and their scaled forms, and the Airy function, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Tolerance
from polyhal.hal.ops.pointwise.arithmetic import abs_, sign
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.rounding import isinf
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.special import bessel_integrals as integrals
from polyhal.hal.ops.special.airy import airy_ai
from polyhal.hal.ops.tensor_like import Array, TensorLike

_REASON = "it is rarely called, and its integrals and series are summed in float64"


def _bessel(
    name: str,
    formula: Callable[[Any], Any],
    doc: str,
    low: float = -9.0,
    gradient: Callable[..., Any] | None = None,
    public: bool = False,
) -> OpFunction:
    def reference(x: Array) -> Any:
        with np.errstate(all="ignore"):
            return formula(np.asarray(x, np.float64))

    options: dict[str, Any] = {} if gradient is None else {"gradient": gradient}
    return elementwise(
        name,
        reference,
        doc,
        promotion="float",
        on_host=_REASON,
        samples=spread(low, 9.0),
        tolerance=Tolerance(4.0),
        autocast=Autocast.FLOAT32,
        public=public,
        names=Names("special."),
        **options,
    )


def _over_argument(y: TensorLike, x: TensorLike) -> Any:
    """I1(x) / x, or of its scaled form; 1/2 at 0."""
    flat = equal(x, 0.0)
    return where(flat, 0.5, y / where(flat, 1.0, x))


i0 = _bessel(
    "i0",
    lambda x: integrals.scaled_i(0, x) * np.exp(np.abs(x)),
    "Modified Bessel function of the first kind, order 0.",
    gradient=lambda g, x: g * i1(x),
    public=True,
)
i0e: OpFunction = _bessel(
    "i0e",
    lambda x: integrals.scaled_i(0, x),
    "`exp(-|x|) * i0(x)`.",
    gradient=lambda g, x, out: g * (i1e(x) - sign(x) * out),
)
i1: OpFunction = _bessel(
    "i1",
    lambda x: integrals.scaled_i(1, x) * np.exp(np.abs(x)),
    "Modified Bessel function of the first kind, order 1.",
    gradient=lambda g, x, out: g * where(isinf(out), abs_(out), i0(x) - _over_argument(out, x)),
)
i1e: OpFunction = _bessel(
    "i1e",
    lambda x: integrals.scaled_i(1, x),
    "`exp(-|x|) * i1(x)`.",
    gradient=lambda g, x, out: g * (i0e(x) - sign(x) * out - _over_argument(out, x)),
)


def _declare_order(n: int) -> None:
    _bessel(f"bessel_j{n}", lambda x: integrals.bessel_j(n, x), f"Bessel function J of order {n}.")
    _bessel(f"bessel_y{n}", lambda x: integrals.bessel_y(n, x), f"Bessel function Y of order {n}.", 0.1)
    _bessel(
        f"modified_bessel_i{n}",
        lambda x: integrals.scaled_i(n, x) * np.exp(np.abs(x)),
        f"Modified Bessel function I of order {n}.",
    )
    _bessel(
        f"modified_bessel_k{n}",
        lambda x: integrals.scaled_k(n, x) * np.exp(-x),
        f"Modified Bessel function K of order {n}.",
        0.1,
    )
    _bessel(
        f"scaled_modified_bessel_k{n}",
        lambda x: integrals.scaled_k(n, x),
        f"`exp(x)` times the modified Bessel function K of order {n}.",
        0.1,
    )


_declare_order(0)
_declare_order(1)
_bessel("airy_ai", airy_ai, "Airy function Ai.")
