"""Registries of transforms onto constraints: `biject_to` and `transform_to`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.distributions import constraints
from polyhal.distributions.constraints import Bounded, Constraint
from polyhal.distributions.joined_transforms import CatTransform, StackTransform
from polyhal.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from polyhal.distributions.transform import ComposeTransform, IndependentTransform, Transform
from polyhal.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from polyhal.hal.errors import message

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Maps constraints to transforms, by the class of the constraint; call it with a constraint."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._factories: dict[type[Constraint], Factory] = {}

    def register(self, constraint: Constraint | type[Constraint], factory: Factory | None = None) -> Any:
        """Register a function from a constraint of that class to a transform; a decorator without one."""
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if factory is None:
            return lambda decorated: self.register(kind, decorated)
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """Return the transform onto `constraint`. Raises NotImplementedError if none is registered."""
        factory = self._factories.get(type(constraint))
        if factory is None:
            raise NotImplementedError(message(self._name, f"no transform is registered for {constraint!r}"))
        return factory(constraint)


biject_to = ConstraintRegistry("biject_to")
"""Bijections from unconstrained vectors: for Hamiltonian Monte Carlo, whose densities need the Jacobian."""
transform_to = ConstraintRegistry("transform_to")
"""Maps that need not be bijective, often of fewer steps: for optimization of parameters."""


def _bounded(constraint: Bounded) -> Transform:
    lower, upper = constraint.lower_bound, constraint.upper_bound
    if lower is None and upper is None:
        return ComposeTransform([])
    if upper is None:
        return _moved(ExpTransform(), lower, 1)
    if lower is None:
        return _moved(ExpTransform(), upper, -1)
    return _moved(SigmoidTransform(), lower, upper - lower)


def _moved(transform: Transform, loc: Any, scale: Any) -> Transform:
    plain = isinstance(loc, (int, float)) and isinstance(scale, (int, float))
    if plain and loc == 0 and scale == 1:
        return transform
    return ComposeTransform([transform, AffineTransform(loc, scale)])


def _register() -> None:
    for registry in (biject_to, transform_to):
        registry.register(Bounded, _bounded)
        registry.register(constraints.corr_cholesky, lambda c: CorrCholeskyTransform())
        registry.register(constraints.lower_cholesky, lambda c: LowerCholeskyTransform())
        registry.register(constraints.positive_definite, lambda c: PositiveDefiniteTransform())
        _register_joined(registry)
    biject_to.register(constraints.simplex, lambda c: StickBreakingTransform())
    transform_to.register(constraints.simplex, lambda c: SoftmaxTransform())


def _register_joined(registry: ConstraintRegistry) -> None:
    registry.register(
        constraints.IndependentConstraint,
        lambda c: IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(constraints.Cat, lambda c: CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths))
    registry.register(constraints.Stack, lambda c: StackTransform([registry(p) for p in c.cseq], c.dim))


_register()
