"""Random numbers as methods of tensors under PyTorch's names. Those that end in `_` overwrite the elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor.inplace import overwrite

if TYPE_CHECKING:
    from polyhal.random import Generator
    from polyhal.tensor import Tensor

_exp, _log1p, _maximum, _tan = (FUNCTIONS[n] for n in ("exp", "log1p", "maximum", "tan"))
_MANTISSA = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
"""Integers up to this power of two are numbers of the dtype."""


class RandomMethods:
    """Draws in the shape and dtype of a tensor. In-place methods raise AutogradError for leaves that require gradients."""

    __slots__ = ()

    dtype: Any
    shape: Any
    device: Any

    def uniform_(self, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Overwrite by uniform numbers in [low, high)."""
        if high < low:
            raise ValueError(message("uniform_", f"bounds {low} and {high}", expected="low <= high"))
        return self._overwritten("uniform_", self._uniform("uniform_", generator) * (high - low) + low)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Overwrite by numbers of the normal distribution."""
        return self._overwritten("normal_", self._normal("normal_", mean, std, generator))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Self:
        """Overwrite by numbers whose logarithms are normally distributed with this mean and standard deviation."""
        return self._overwritten("log_normal_", _exp(self._normal("log_normal_", mean, std, generator)))

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Overwrite by exponentially distributed positive numbers of rate `lambd`."""
        if lambd <= 0:
            raise ValueError(message("exponential_", f"lambd is {lambd}", expected="a positive rate"))
        times = -_log1p(-self._uniform("exponential_", generator))
        return self._overwritten("exponential_", _maximum(times, 2.0**-25) / lambd)

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Overwrite by numbers of Cauchy's distribution around `median` of half width `sigma`."""
        if sigma <= 0:
            raise ValueError(message("cauchy_", f"sigma is {sigma}", expected="a positive width"))
        angles = (self._uniform("cauchy_", generator) - 0.5) * math.pi
        return self._overwritten("cauchy_", _tan(angles) * sigma + median)

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Self:
        """Overwrite by numbers of trials, 1 or more, up to the first success of probability `p`, 0 < p <= 1."""
        if not 0 < p <= 1:
            raise ValueError(message("geometric_", f"p is {p}", expected="0 < p <= 1"))
        if p == 1:
            return self._overwritten("geometric_", 1)
        trials = _log1p(-self._draw(dtypes.float32, generator)) * (1 / math.log1p(-p))
        return self._overwritten("geometric_", _maximum(trials.ceil(), 1.0))

    def bernoulli_(self, p: Any = 0.5, *, generator: Generator | None = None) -> Self:
        """Overwrite by 1 with probability `p`, a number or a tensor that is broadcast, else by 0."""
        drawn = self._draw(dtypes.float32, generator)
        return self._overwritten("bernoulli_", drawn < (p.detach() if hasattr(p, "ref") else float(p)))

    def random_(self, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Self:
        """Overwrite by integers from `low` up to, not including, `high`: `random_(high)` or `random_(low, high)`.

        Without bounds, draw from the non-negative integers that the dtype represents exactly.
        """
        from polyhal.random import randint

        if high is None:
            low, high = 0, low or _count(self.dtype)
        wide = self.dtype if self.dtype.is_integral else dtypes.int64
        drawn = randint(low, high, self.shape, dtype=wide, generator=generator, device=self.device)
        return self._overwritten("random_", drawn)

    def bernoulli(self, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
        """Draw 1 with the probabilities that the elements are, or with probability `p`, else 0."""
        from polyhal.random import bernoulli

        return bernoulli(self._tensor, p, generator=generator)

    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Tensor:
        """Draw positions along the last axis, with the elements as weights; see `polyhal.multinomial`."""
        from polyhal.sampling import multinomial

        return multinomial(self._tensor, num_samples, replacement, generator=generator)

    # --- parts of the above -----------------------------------------------------------------------------------------

    @property
    def _tensor(self) -> Any:
        return self

    def _overwritten(self, method: str, value: Any) -> Self:
        overwrite(self, value, method)
        return self

    def _draw(self, dtype: DType, generator: Generator | None) -> Any:
        """Uniform numbers in [0, 1) in the tensor's shape."""
        from polyhal.random import rand

        return rand(self.shape, dtype=dtype, generator=generator, device=self.device)

    def _uniform(self, method: str, generator: Generator | None) -> Any:
        return self._draw(self._wide(method), generator)

    def _normal(self, method: str, mean: float, std: float, generator: Generator | None) -> Any:
        from polyhal.random import randn

        if std < 0:
            raise ValueError(message(method, f"std is {std}", expected="0 or more"))
        return randn(self.shape, dtype=self._wide(method), generator=generator, device=self.device) * std + mean

    def _wide(self, method: str) -> DType:
        """Return the dtype to compute in: float32 at least. Raises TypeError for integers."""
        if not self.dtype.is_floating_point:
            raise TypeError(message(method, f"the tensor is {self.dtype.name}", expected="floats"))
        return dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32


def _count(dtype: DType) -> int:
    """Return the number of consecutive integers, beginning at 0, that a dtype represents exactly, at most 2**63 - 1."""
    if dtype.kind == "bool":
        return 2
    if dtype.is_floating_point:
        return 1 + int(2 ** _MANTISSA[dtype])
    return min(dtypes.iinfo(dtype).max + 1, 2**63 - 1)
