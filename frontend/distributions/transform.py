"""Invertible maps with the logarithm of their Jacobian's determinant: the base class, inverse and composition."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.distributions import constraints
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.parameters import sum_rightmost
from polyhal.tensor import Tensor


class Transform:
    """A map from `domain` to `codomain`; call it for its value, `inv` is the inverse.

    `sign` is that of the derivative of a monotonic map. `cache_size` is accepted and unused: nothing is cached.
    """

    domain: Constraint
    codomain: Constraint
    bijective = False
    sign: int | Tensor = 0

    def __init__(self, cache_size: int = 0) -> None:
        self._cache_size = cache_size

    @property
    def inv(self) -> Transform:
        """Inverse map."""
        return InverseTransform(self)

    def __call__(self, x: Tensor) -> Tensor:
        """Map `x`."""
        raise NotImplementedError

    def inverse(self, y: Tensor) -> Tensor:
        """Map `y` back."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithm of the absolute determinant of the Jacobian at `x`, where `y` is its image."""
        raise NotImplementedError

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the image of a value of `shape`."""
        return tuple(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a value whose image has `shape`."""
        return tuple(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class InverseTransform(Transform):
    """The inverse of a map; its own inverse is that map."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._forward = transform
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective, self.sign = transform.bijective, transform.sign

    @property
    def inv(self) -> Transform:
        return self._forward

    def __call__(self, x: Tensor) -> Tensor:
        return self._forward.inverse(x)

    def inverse(self, y: Tensor) -> Tensor:
        return self._forward(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._forward.forward_shape(shape)


class ComposeTransform(Transform):
    """Maps one after the other; the first of `parts` is applied first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)
        sign: int | Tensor = 1
        for part in self.parts:
            sign = sign * part.sign
        self.sign = sign
        self.domain = self.parts[0].domain if self.parts else constraints.real
        self.codomain = self.parts[-1].codomain if self.parts else constraints.real
        first, last = self.domain.event_dim, self.codomain.event_dim
        for part in reversed(self.parts):
            last = max(last + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        for part in self.parts:
            first = max(first + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        self.domain = _with_event(self.domain, last)
        self.codomain = _with_event(self.codomain, first)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x * 0
        total: Tensor | None = None
        event_dim = self.domain.event_dim
        for part in self.parts:
            y = part(x)
            term = sum_rightmost(part.log_abs_det_jacobian(x, y), event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            total, x = term if total is None else total + term, y
        assert total is not None
        return total

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


class IndependentTransform(Transform):
    """A map whose last `reinterpreted_batch_ndims` batch axes count as event axes."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective, self.sign = base_transform.bijective, base_transform.sign

    def __call__(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)


def _with_event(constraint: Constraint, event_dim: int) -> Constraint:
    """Return `constraint` for values of at least `event_dim` axes."""
    added = event_dim - constraint.event_dim
    return constraints.independent(constraint, added) if added > 0 else constraint
