"""Matrix products and convolutions of complex numbers: bilinear, so that each is a few real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.ops.complex_numbers.rules import complex_rule, join
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.linear import linear
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.nn.convolution import conv2d
from polyhal.hal.ops.tensor_like import TensorLike


def bilinear(product: Callable[[Any, Any], Any], x: TensorLike, y: TensorLike) -> Any:
    """A product that is linear in both factors; at least one factor is complex: two or four real ones."""
    if not is_complex(x):
        return join(product(x, y.real), product(x, y.imag))
    if not is_complex(y):
        return join(product(x.real, y), product(x.imag, y))
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return join(product(a, c) - product(b, d), product(a, d) + product(b, c))


@complex_rule(op_matmul)
def _matmul(x: TensorLike, y: TensorLike, *, out_dtype: Any) -> Any:
    return bilinear(op_matmul, x, y)


@complex_rule(linear)
def _linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Any:
    out = bilinear(linear, x, weight) if is_complex(x) or is_complex(weight) else linear(x, weight)
    return out if bias is None else out + bias


@complex_rule(conv2d)
def _conv2d(x: TensorLike, weight: TensorLike, bias: TensorLike | None, **params: Any) -> Any:
    out = bilinear(lambda a, b: conv2d(a, b, **params), x, weight)
    return out if bias is None else out + reshape(bias, (bias.shape[0], 1, 1))
