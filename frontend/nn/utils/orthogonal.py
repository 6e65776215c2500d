"""A weight with orthonormal rows or columns, as a parametrization. Source: Lezcano-Casado, arXiv:1909.09501."""

from __future__ import annotations

from typing import Literal

from polyhal import functions as ops
from polyhal import linalg, random
from polyhal.creation import eye
from polyhal.nn.module import Module
from polyhal.nn.utils.parametrize import register_parametrization
from polyhal.tensor import Tensor

OrthogonalMap = Literal["matrix_exp", "cayley", "householder"]


class Orthogonal(Module):
    """Takes a matrix to an orthogonal one, times the buffer `base`, which is the weight as it was set last.

    The columns are orthonormal, or the rows if there are fewer rows.
    """

    base: Tensor | None

    def __init__(self, orthogonal_map: OrthogonalMap) -> None:
        super().__init__()
        self.orthogonal_map = orthogonal_map
        self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        tall = ops.transpose(x) if wide else x
        q = _reflected(tall) if self.orthogonal_map == "householder" else self._rotation(tall)
        if self.base is not None:
            q = ops.matmul(self.base, q)
        return ops.transpose(q) if wide else q

    def _rotation(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        lower = ops.tril(x)
        if rows != columns:
            rest = ops.full((*x.shape[:-1], rows - columns), 0.0, x.dtype, device=x.device)
            lower = ops.concat([lower, rest], -1)
        skew = lower - ops.transpose(lower)
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(skew)
        else:
            one = eye(rows, dtype=x.dtype, device=x.device)
            q = linalg.solve(one - skew * 0.5, one + skew * 0.5)
        return q[..., :columns]

    def right_inverse(self, q: Tensor) -> Tensor:
        """Make `q`, or the orthogonal matrix of its QR decomposition, the base, and return the parameter that maps to it."""
        wide = q.shape[-2] < q.shape[-1]
        tall = ops.transpose(q) if wide else q
        rows, columns = tall.shape[-2:]
        if rows != columns:
            rest = random.randn(*tall.shape[:-1], rows - columns, device=q.device).to(q.dtype)
            tall = ops.concat([tall, rest], -1)
        factor, upper = linalg.qr(tall)
        signs = ops.where(ops.less(linalg.diagonal(upper), 0.0), -1.0, 1.0)
        self.base = (factor * ops.unsqueeze(signs, -2)).detach()
        # Householder reflections of a zero matrix give the identity times this diagonal, which the map multiplies by.
        return ops.broadcast_to(-eye(q.shape[-2], q.shape[-1], dtype=q.dtype, device=q.device), q.shape).clone()


def _reflected(x: Tensor) -> Tensor:
    """Return the product of the Householder reflections below the diagonal, its columns times the diagonal's signs."""
    vectors = ops.tril(x, -1)
    scale = 2.0 / (ops.sum(ops.square(vectors), -2) + 1.0)
    signs = ops.trunc(linalg.diagonal(x).detach())
    out: Tensor = linalg.householder_product(vectors, scale) * ops.unsqueeze(signs, -2)
    return out


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: OrthogonalMap | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a weight orthogonal: its columns orthonormal, or its rows if there are fewer rows.

    `orthogonal_map` is "matrix_exp" (default for square weights), "cayley" or "householder" (default otherwise). Raises
    ValueError for other maps and vectors, and without `use_trivialization`, which keeps a base that learning starts from.
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ValueError(f"{name!r} has shape {weight.shape}; expected a matrix, or a batch of matrices")
    if not use_trivialization:
        raise ValueError("orthogonal weights are learned from a base; expected use_trivialization=True")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal_map is {chosen!r}; expected 'matrix_exp', 'cayley' or 'householder'")
    return register_parametrization(module, name, Orthogonal(chosen))
