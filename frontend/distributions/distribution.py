"""Base of all distributions: shapes, validation of parameters and values, and expansion.

A sample has the shape sample_shape + batch_shape + event_shape: independent draws, then the distributions of a batch, then one
value. `sample` and `rsample` take the Generator from which they draw. Equal seeds produce equal random bits on every device,
and so equal samples up to rounding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from polyhal import functions as ops
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.parameters import DerivedParameter, expanded
from polyhal.hal.core import dispatch
from polyhal.hal.errors import CaptureError, message
from polyhal.random import Generator
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class Distribution:
    """The base of all distributions: a batch of `batch_shape` distributions over values of `event_shape`.

    Parameters and values are checked unless `validate_args` is False, or `python -O` runs; never in a captured step, since a
    check reads results back. Raises ValueError for values outside of `arg_constraints` and `support`.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    _default_validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Enable or disable checks of parameters and values by default."""
        Distribution._default_validate_args = value

    def __init__(
        self,
        batch_shape: tuple[int, ...] = (),
        event_shape: tuple[int, ...] = (),
        validate_args: bool | None = None,
    ) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        self._validate_args = self._default_validate_args if validate_args is None else validate_args
        if self._checks():
            self._check_parameters()

    @property
    def support(self) -> Constraint:
        """Region of values with a density above zero."""
        raise NotImplementedError(message(self._name, "the support is not implemented"))

    @property
    def mean(self) -> Tensor:
        """Mean, of shape batch_shape + event_shape."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """Most probable value."""
        raise self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """Variance of each element."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """Standard deviation of each element."""
        return ops.sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        """Draw without gradients."""
        with no_grad():
            return self.rsample(sample_shape, generator=generator).detach()

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        """Draw such that gradients reach the parameters. Raises NotImplementedError if the distribution has no such method."""
        raise self._missing("rsample")

    def sample_n(self, n: int) -> Tensor:
        """Draw `n` times."""
        return self.sample((n,))

    def log_prob(self, value: Any) -> Tensor:
        """Return the logarithm of the density or probability of `value`, of shape sample_shape + batch_shape."""
        raise self._missing("log_prob")

    def cdf(self, value: Any) -> Tensor:
        """Return the probability of values up to `value`."""
        raise self._missing("cdf")

    def icdf(self, value: Any) -> Tensor:
        """Return the value with cumulative probability `value`."""
        raise self._missing("icdf")

    def entropy(self) -> Tensor:
        """Return the entropy in nats, of shape batch_shape."""
        raise self._missing("entropy")

    def perplexity(self) -> Tensor:
        """Return the exponential of the entropy."""
        return ops.exp(self.entropy())

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """List all values of a discrete distribution along a new first axis, for each of the batch if `expand`."""
        raise self._missing("enumerate_support")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """Return the distribution with its parameters broadcast to `batch_shape`."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.batch_shape = tuple(batch_shape)
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                event = value.shape[value.ndim - constraint.event_dim :]
                new.__dict__[name] = expanded(value, new.batch_shape + event)
        return new

    # --- for subclasses ---------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(message(self._name, f"{what} is not implemented"))

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the shape of a sample."""
        lengths = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*lengths, *self.batch_shape, *self.event_shape)

    def _checks(self) -> bool:
        """Return whether to check. In a captured step no values can be read."""
        if not self._validate_args:
            return False
        try:
            dispatch.require_execution(self._name, "arguments are checked")
        except CaptureError:
            return False
        return True

    def _check_parameters(self) -> None:
        """Raise ValueError for a parameter outside of its constraint."""
        for name, constraint in self.arg_constraints.items():
            derived = (
                isinstance(inspect.getattr_static(self, name, None), DerivedParameter) and name not in self.__dict__
            )
            value = None if derived else getattr(self, name)
            if not isinstance(value, Tensor):
                continue
            with no_grad():
                valid = bool(ops.all(constraint.check(value)).item())
            if not valid:
                problem = f"{name} of shape {value.shape} has values out of range"
                raise ValueError(message(self._name, problem, expected=f"{name} in {constraint!r}"))

    def _value(self, value: Any) -> Tensor:
        """Convert `value` to a tensor. Raises ValueError unless it is in the support."""
        if not isinstance(value, Tensor):
            model = self._any_parameter()
            value = Tensor(value, dtype=getattr(model, "dtype", None), device=getattr(model, "device", None))
        tensor: Tensor = value
        if self._checks():
            self._check_value(tensor)
        return tensor

    def _any_parameter(self) -> Tensor | None:
        """Return a parameter of this or of an inner distribution, for the dtype and device of numbers."""
        for held in self.__dict__.values():
            found = held._any_parameter() if isinstance(held, Distribution) else held
            if isinstance(found, Tensor):
                return found
        return None

    def _check_value(self, value: Tensor) -> None:
        expected = self.batch_shape + self.event_shape
        events = len(self.event_shape)
        if events and value.shape[-events:] != self.event_shape:
            problem = f"a value of shape {value.shape}"
            raise ValueError(message(self._name, problem, expected=f"last axes of shape {self.event_shape}"))
        for length, wanted in zip(reversed(value.shape), reversed(expected), strict=False):
            if length not in (1, wanted) and wanted != 1:
                problem = f"a value of shape {value.shape}"
                raise ValueError(message(self._name, problem, expected=f"a shape that broadcasts with {expected}"))
        with no_grad():
            valid = bool(ops.all(self.support.check(value)).item())
        if not valid:
            raise ValueError(message(self._name, "a value outside of the support", expected=repr(self.support)))

    def __repr__(self) -> str:
        held = {n: v for n in self.arg_constraints if isinstance(v := self.__dict__.get(n), Tensor)}
        parts = (f"{n}: {v.item() if math.prod(v.shape) == 1 else v.shape}" for n, v in held.items())
        return f"{self._name}({', '.join(parts)})"
