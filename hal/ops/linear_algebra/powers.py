"""Products of chains of matrices, and powers of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.matmul import matmul, op_matmul
from polyhal.hal.ops.tensor_like import TensorLike


def chain_splits(lengths: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors i to j so that the multiplications are fewest.

    Factor i is a matrix (lengths[i], lengths[i + 1]). Dynamic programming (Cormen et al., Introduction to Algorithms, 15.2).
    """
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for span in range(1, count):
        for i in range(count - span):
            j = i + span
            options = {
                k: cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1] for k in range(i, j)
            }
            splits[i, j] = min(options, key=options.__getitem__)
            cost[i, j] = options[splits[i, j]]
    return splits


@composite("linalg.", public=False)
def multi_dot(tensors: Sequence[TensorLike]) -> Any:
    """The product of two or more matrices in the order of fewest multiplications; the ends may be vectors.

    Raises ShapeError for fewer than two factors, and for shapes that do not chain.
    """
    if len(tensors) < 2:
        raise ShapeError(message("multi_dot", f"{len(tensors)} factors", expected="at least two"))
    shapes = [tuple(t.shape) for t in tensors]
    inner, ends = shapes[1:-1], (shapes[0], shapes[-1])
    if any(len(s) != 2 for s in inner) or any(len(s) not in (1, 2) for s in ends):
        listed = ", ".join(map(str, shapes))
        raise ShapeError(message("multi_dot", f"shapes {listed}", expected="matrices, or vectors at the ends"))
    factors = list(tensors)
    if len(shapes[0]) == 1:
        factors[0] = reshape(factors[0], (1, shapes[0][0]))
    if len(shapes[-1]) == 1:
        factors[-1] = reshape(factors[-1], (shapes[-1][0], 1))
    splits = chain_splits([factors[0].shape[0], *(f.shape[1] for f in factors)])

    def product(i: int, j: int) -> Any:
        return factors[i] if i == j else op_matmul(product(i, splits[i, j]), product(splits[i, j] + 1, j))

    out = product(0, len(factors) - 1)
    return reshape(out, tuple(n for n, end in zip(out.shape, ends, strict=True) if len(end) == 2))


@composite(method=False, returns=Returns.COPY)
def chain_matmul(*matrices: Any) -> Any:
    """The product of matrices in the order of fewest multiplications, as `linalg.multi_dot`."""
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


def positive_power(x: TensorLike, n: int) -> Any:
    """`x` multiplied `n` >= 1 times with itself, by repeated squaring."""
    out = None
    while True:
        if n % 2:
            out = x if out is None else matmul(out, x)
        n //= 2
        if not n:
            return out
        x = matmul(x, x)
