"""Constraints on parameters and values of distributions, under the names of torch.distributions.constraints.

`constraint.check(value)` returns bools, one per event: the last `event_dim` axes are reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.linalg import cholesky_ex
from polyhal.tensor import Tensor


class Constraint:
    """A region of values: the last `event_dim` axes are one value; `is_discrete` means that the region is countable."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Return for each event whether it is inside the region, as bools."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_")


class Dependent(Constraint):
    """A region that depends on the parameters; each distribution states it as a property."""

    def __init__(self, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def check(self, value: Tensor) -> Tensor:
        raise ValueError(
            "[constraints] a dependent constraint cannot be checked; expected the constraint of an instance"
        )


class IndependentConstraint(Constraint):
    """`base`, applied jointly to all elements of the last `reinterpreted_batch_ndims` axes."""

    def __init__(self, base: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base, reinterpreted_batch_ndims
        self.is_discrete = base.is_discrete
        self.event_dim = base.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        count = self.reinterpreted_batch_ndims
        return ops.all(result, axis=tuple(range(-count, 0))) if count else result


class Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return ops.logical_or(value == 0, value == 1)


class OneHot(Constraint):
    """Vectors of zeros with a single 1."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ops.logical_and(ops.all(boolean.check(value), axis=-1), ops.sum(value, axis=-1) == 1)


class Bounded(Constraint):
    """Numbers between two bounds, which are numbers, tensors or None; each end is open or closed."""

    def __init__(
        self,
        lower: Tensor | float | None,
        upper: Tensor | float | None,
        *,
        open_lower: bool = False,
        open_upper: bool = False,
    ) -> None:
        self.lower_bound, self.upper_bound = lower, upper
        self._open = (open_lower, open_upper)

    def check(self, value: Tensor) -> Tensor:
        inside = value == value
        if self.lower_bound is not None:
            above = value > self.lower_bound if self._open[0] else value >= self.lower_bound
            inside = ops.logical_and(inside, above)
        if self.upper_bound is not None:
            below = value < self.upper_bound if self._open[1] else value <= self.upper_bound
            inside = ops.logical_and(inside, below)
        return inside

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class IntegerBounded(Bounded):
    """Whole numbers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return ops.logical_and(super().check(value), value == ops.floor(value))


class Simplex(Constraint):
    """Vectors of nonnegative numbers with sum 1, up to 1e-6."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ops.logical_and(ops.all(value >= 0, axis=-1), ops.abs(ops.sum(value, axis=-1) - 1) < 1e-6)


class MultinomialCounts(Constraint):
    """Vectors of nonnegative integers whose sum is at most the given one."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: int) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        whole = ops.all(nonnegative_integer.check(value), axis=-1)
        return ops.logical_and(whole, ops.sum(value, axis=-1) <= self.upper_bound)


class LowerTriangular(Constraint):
    """Square lower triangular matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return ops.all(ops.tril(value) == value, axis=(-2, -1))


class LowerCholesky(LowerTriangular):
    """Square lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        positive_diagonal = ops.all(ops.diagonal(value, 0, -2, -1) > 0, axis=-1)
        return ops.logical_and(super().check(value), positive_diagonal)


class CorrCholesky(LowerCholesky):
    """Lower Cholesky factors of correlation matrices: their rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = value.shape[-1] * 10 * float(dtypes.finfo(value.dtype).eps)
        lengths = ops.sqrt(ops.sum(ops.square(value), axis=-1))
        return ops.logical_and(super().check(value), ops.all(ops.abs(lengths - 1) <= tolerance, axis=-1))


class Cat(Constraint):
    """Pieces of `lengths` (1 each by default) along axis `dim`, each in a region of `cseq`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        pieces = ops.split(value, tuple(self.lengths), self.dim)
        return ops.concat([c.check(v) for c, v in zip(self.cseq, pieces, strict=True)], self.dim)


class Stack(Constraint):
    """Slices along axis `dim`, each in a region of `cseq`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        dim_in_event = max(c.event_dim for c in self.cseq)
        self.event_dim = dim_in_event + (dim_in_event + dim < 0)

    def check(self, value: Tensor) -> Tensor:
        slices = ops.unbind(value, self.dim)
        return ops.stack([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)


class PositiveDefinite(Constraint):
    """Symmetric positive definite matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        transposed = ops.swapaxes(value, -2, -1)
        symmetric = ops.all(ops.abs(value - transposed) <= 1e-6 + 1e-5 * ops.abs(transposed), axis=(-2, -1))
        return ops.logical_and(symmetric, cholesky_ex(value)[1] == 0)


dependent = Dependent()
boolean = Boolean()
one_hot = OneHot()
real = Bounded(None, None)
real_vector = IndependentConstraint(real, 1)
positive = Bounded(0.0, None, open_lower=True)
nonnegative = Bounded(0.0, None)
unit_interval = Bounded(0.0, 1.0)
nonnegative_integer = IntegerBounded(0, None)
positive_integer = IntegerBounded(1, None)
simplex = Simplex()
lower_triangular = LowerTriangular()
lower_cholesky = LowerCholesky()
corr_cholesky = CorrCholesky()
positive_definite = PositiveDefinite()
independent = IndependentConstraint
multinomial = MultinomialCounts
integer_interval = IntegerBounded
cat = Cat
stack = Stack


def greater_than(lower_bound: float) -> Bounded:
    """Return the constraint to numbers above `lower_bound`."""
    return Bounded(lower_bound, None, open_lower=True)


def greater_than_eq(lower_bound: Tensor | int) -> Bounded:
    """Return the constraint to numbers of at least `lower_bound`."""
    return Bounded(lower_bound, None)


def less_than(upper_bound: float) -> Bounded:
    """Return the constraint to numbers below `upper_bound`."""
    return Bounded(None, upper_bound, open_upper=True)


def interval(lower_bound: Tensor | float, upper_bound: Tensor | float) -> Bounded:
    """Return the constraint to the closed interval between two bounds."""
    return Bounded(lower_bound, upper_bound)


def half_open_interval(lower_bound: float, upper_bound: float) -> Bounded:
    """Return the constraint to numbers of at least `lower_bound` and below `upper_bound`."""
    return Bounded(lower_bound, upper_bound, open_upper=True)
