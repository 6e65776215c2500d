"""Parameters of distributions of trials: either `probs` or `logits`; the other is derived."""

from __future__ import annotations

from typing import Any

from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import DerivedParameter, broadcast_parameters, logits_of, probs_of
from polyhal.hal.errors import message
from polyhal.tensor import Tensor


class TrialDistribution(Distribution):
    """A distribution with the probability of success `probs`, or its log-odds `logits`."""

    @DerivedParameter
    def probs(self) -> Tensor:
        """Probability of success, derived from `logits`."""
        return probs_of(self.logits, True)

    @DerivedParameter
    def logits(self) -> Tensor:
        """Log-odds of success, derived from `probs`."""
        return logits_of(self.probs, True)

    def _set_odds(self, probs: Tensor | None, logits: Tensor | None, *others: Any) -> list[Tensor]:
        """Store the given one of both parameters, and return `others` as tensors, all broadcast to one shape."""
        name, value = one_of(self._name, probs, logits)
        self.__dict__[name], *tensors = broadcast_parameters(value, *others)
        return tensors

    @property
    def _given(self) -> Tensor:
        """Parameter that was given."""
        value: Tensor = self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]
        return value


def one_of(function: str, probs: Tensor | None, logits: Tensor | None) -> tuple[str, Any]:
    """Return the name and value of the given parameter. Raises ValueError unless there is exactly one."""
    if (probs is None) == (logits is None):
        raise ValueError(message(function, "probs and logits are alternatives", expected="exactly one of both"))
    return ("logits", logits) if probs is None else ("probs", probs)
