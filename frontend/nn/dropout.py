"""Dropout layers. All draw from `generator`; the default one is seeded by `polyhal.manual_seed`."""

from __future__ import annotations

from typing import ClassVar, Protocol

from polyhal.nn import functional as F
from polyhal.nn.module import Module
from polyhal.random import Generator
from polyhal.tensor import Tensor


class DropoutFunction(Protocol):
    """A dropout of `nn.functional`."""

    def __call__(
        self, input: Tensor, p: float, training: bool, inplace: bool, generator: Generator | None
    ) -> Tensor: ...


class _Dropout(Module):
    """Base of dropout layers; they do nothing in evaluation. `inplace` is accepted: the result is a new tensor."""

    function: ClassVar[DropoutFunction]

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: Generator | None = None) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p is {p}; expected 0 to 1")
        self.p = p
        self.inplace = inplace
        self.generator = generator

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.p, self.training, False, self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training, zeroes elements with probability `p` and scales the others by 1/(1-p); otherwise the identity."""

    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Dropout of whole channels of (N, C, L) or (C, L)."""

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Dropout of whole channels of (N, C, H, W). Source: Tompson et al., arXiv:1411.4280."""

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1, for networks of SELU. Source: Klambauer et al., arXiv:1706.02515."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels of (N, C, ...)."""

    function = staticmethod(F.feature_alpha_dropout)
