"""Transforms of separate parts of a value, of its shape, and by a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import sum_rightmost
from polyhal.distributions.transform import Transform
from polyhal.hal.errors import message
from polyhal.tensor import Tensor


class ReshapeTransform(Transform):
    """Values of `in_shape` to `out_shape`, with the same elements. Raises ValueError for different numbers of elements."""

    bijective, sign = True, 1

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            problem = f"{self.in_shape} and {self.out_shape} have different numbers of elements"
            raise ValueError(message("ReshapeTransform", problem))
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def __call__(self, x: Tensor) -> Tensor:
        return ops.reshape(x, self.forward_shape(x.shape))

    def inverse(self, y: Tensor) -> Tensor:
        return ops.reshape(y, self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.full(x.shape[: x.ndim - len(self.in_shape)], 0, x.dtype, device=x.device)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _replaced(shape, self.out_shape, self.in_shape)


def _replaced(shape: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    cut = len(shape) - len(old)
    if cut < 0 or tuple(shape[cut:]) != old:
        raise ValueError(message("ReshapeTransform", f"a value of shape {shape}", expected=f"last axes of shape {old}"))
    return (*shape[:cut], *new)


class _Joined(Transform):
    """Parts of a value along an axis, each mapped by its own transform."""

    transforms: list[Transform]
    dim: int

    def _parts(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        raise NotImplementedError

    def _mapped(self, x: Tensor, name: str) -> Tensor:
        parts = zip(self.transforms, self._parts(x), strict=True)
        return self._join([t(part) if name == "forward" else t.inverse(part) for t, part in parts])

    def __call__(self, x: Tensor) -> Tensor:
        return self._mapped(x, "forward")

    def inverse(self, y: Tensor) -> Tensor:
        return self._mapped(y, "inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        events = self.domain.event_dim
        terms = [
            sum_rightmost(t.log_abs_det_jacobian(a, b), events - t.domain.event_dim)
            for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        ]
        dim = self.dim if self.dim < 0 else self.dim - x.ndim
        if dim + events < 0:
            return self._join_terms(terms, dim + events)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _join_terms(self, terms: Sequence[Tensor], dim: int) -> Tensor:
        raise NotImplementedError


class CatTransform(_Joined):
    """Maps pieces of `lengths` (1 each by default) along axis `dim` by the transforms of `tseq`."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> list[Tensor]:
        return list(ops.split(x, tuple(self.lengths), self.dim))

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        return ops.concat(list(parts), self.dim)

    def _join_terms(self, terms: Sequence[Tensor], dim: int) -> Tensor:
        return ops.concat(list(terms), dim)


class StackTransform(_Joined):
    """Maps the slices along axis `dim` by the transforms of `tseq`, one each."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)
        self.bijective = all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> list[Tensor]:
        return list(ops.unbind(x, self.dim))

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        return ops.stack(list(parts), self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithms of the slices, stacked along the same axis."""
        slices = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return self._join([t.log_abs_det_jacobian(a, b) for t, a, b in slices])


class CumulativeDistributionTransform(Transform):
    """Maps values to their cumulative probabilities under a distribution of one number."""

    bijective, sign = True, 1
    codomain: Constraint = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # here it depends on the distribution
        """Support of the distribution."""
        return self.distribution.support

    def __call__(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
