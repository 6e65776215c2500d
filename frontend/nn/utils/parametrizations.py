"""Parametrizations of weights: by length and direction, by their largest singular value, and orthogonal ones."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal import random
from polyhal.nn.functional import normalize
from polyhal.nn.module import Module
from polyhal.nn.utils.orthogonal import Orthogonal, orthogonal
from polyhal.nn.utils.parametrize import register_parametrization
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

__all__ = ["Orthogonal", "SpectralNorm", "WeightNorm", "orthogonal", "spectral_norm", "weight_norm"]


def length(x: Tensor, dim: int | None) -> Tensor:
    """Return the norm over all axes but `dim`, which are kept."""
    axes = None if dim is None else tuple(i for i in range(x.ndim) if i != dim % x.ndim)
    return ops.sqrt(ops.sum(ops.square(x), axes, dim is not None))


class WeightNorm(Module):
    """`g * v / |v|`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        out: Tensor = weight_v * (weight_g / length(weight_v, self.dim))
        return out

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of a weight."""
        return length(weight, self.dim), weight.clone()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn length and direction of a weight separately, per slice along `dim`, or of the whole. Source: arXiv:1602.07868."""
    return register_parametrization(module, name, WeightNorm(dim))


class SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iteration follows in training."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ValueError(f"n_power_iterations is {n_power_iterations}; expected 1 or more")
        self.dim = dim % max(weight.ndim, 1)
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight.detach())
                rows, columns = matrix.shape
                u, v = (random.randn(n, device=weight.device).to(weight.dtype) for n in (rows, columns))
                self.register_buffer("_u", normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", normalize(v, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        order = (self.dim, *(i for i in range(weight.ndim) if i != self.dim))
        return ops.reshape(weight.permute(order), (weight.shape[self.dim], -1))

    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._u.copy_(normalize(ops.matmul(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(ops.matmul(matrix.T, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies: the buffers change again before the backward pass if the layer is called twice.
        u, v = self._u.clone(), self._v.clone()
        out: Tensor = weight / ops.sum(u * ops.matmul(matrix, v))
        return out

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return the value itself, which is assumed to be divided already."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value. Source: Miyato et al., arXiv:1802.05957."""
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    weight = getattr(module, name)
    return register_parametrization(module, name, SpectralNorm(weight, n_power_iterations, dim, eps))
