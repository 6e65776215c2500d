"""Weights computed before each forward pass, as PyTorch's older functions do: `weight_norm`, `spectral_norm`.

Their state dicts have PyTorch's keys, `weight_g` and `weight_v`, or `weight_orig`, `weight_u` and `weight_v`. The functions of
the same names in `nn.utils.parametrizations` are the newer form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal import functions as ops
from polyhal import random
from polyhal.nn.functional import normalize
from polyhal.nn.hooks import HookHandle
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.nn.utils.parametrizations import length
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class _LengthAndDirection:
    """`g * v / |v|`."""

    handle: HookHandle

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def start(self, module: Module) -> None:
        """Replace the parameter by its length and direction."""
        weight = _taken(module, self.name)
        module.register_parameter(f"{self.name}_g", Parameter(length(weight, self.dim)))
        module.register_parameter(f"{self.name}_v", Parameter(weight))

    def weight(self, module: Module) -> Tensor:
        v = getattr(module, f"{self.name}_v")
        out: Tensor = v * (getattr(module, f"{self.name}_g") / length(v, self.dim))
        return out

    def forget(self, module: Module) -> None:
        delattr(module, f"{self.name}_g")
        delattr(module, f"{self.name}_v")

    def __call__(self, module: Module, args: Sequence[Tensor]) -> None:
        _set(module, self.name, self.weight(module))


class _LargestSingularValue:
    """A weight divided by its largest singular value, which power iteration follows in training."""

    handle: HookHandle

    def __init__(self, name: str, iterations: int, eps: float, dim: int) -> None:
        if iterations < 1:
            raise ValueError(f"n_power_iterations is {iterations}; expected 1 or more")
        self.name, self.iterations, self.eps, self.dim = name, iterations, eps, dim

    def start(self, module: Module) -> None:
        """Replace the parameter by one of another name and the two vectors of the iteration."""
        weight = _taken(module, self.name)
        module.register_parameter(f"{self.name}_orig", Parameter(weight))
        for part, size in zip("uv", self._matrix(weight).shape, strict=True):
            drawn = random.randn(size, device=weight.device).to(weight.dtype)
            module.register_buffer(f"{self.name}_{part}", normalize(drawn, dim=0, eps=self.eps))

    def _matrix(self, weight: Tensor) -> Tensor:
        order = (self.dim, *(i for i in range(weight.ndim) if i != self.dim))
        return ops.reshape(weight.permute(order), (weight.shape[self.dim], -1))

    def weight(self, module: Module) -> Tensor:
        original: Tensor = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self._matrix(original)
        if module.training:
            with no_grad():
                for _ in range(self.iterations):
                    v.copy_(normalize(ops.matmul(matrix.T, u), dim=0, eps=self.eps))
                    u.copy_(normalize(ops.matmul(matrix, v), dim=0, eps=self.eps))
        # Copies: the buffers change again before the backward pass if the layer is called twice.
        out: Tensor = original / ops.sum(u.clone() * ops.matmul(matrix, v.clone()))
        return out

    def forget(self, module: Module) -> None:
        for part in ("orig", "u", "v"):
            delattr(module, f"{self.name}_{part}")

    def __call__(self, module: Module, args: Sequence[Tensor]) -> None:
        _set(module, self.name, self.weight(module))


def _taken(module: Module, name: str) -> Tensor:
    """Return the value of a parameter, which is taken out of the module. Raises ValueError."""
    if name not in module._parameters or module.__dict__[name] is None:
        raise ValueError(f"{type(module).__name__} has no parameter {name!r} to compute")
    value: Tensor = module.__dict__[name].detach()
    delattr(module, name)
    return value


def _set(module: Module, name: str, value: Tensor) -> None:
    """Set an attribute that is recomputed in each call, which does not count as a change of the module's structure."""
    module.__dict__[name] = value


def _hooked(module: Module, computed: Any) -> Module:
    for other in module._hooks.before.values():
        if isinstance(other.function, type(computed)) and other.function.name == computed.name:
            raise RuntimeError(f"{computed.name!r} of {type(module).__name__} is computed so already")
    computed.start(module)
    with no_grad():
        _set(module, computed.name, computed.weight(module))
    computed.handle = module.register_forward_pre_hook(computed)
    return module


def _unhooked(module: Module, name: str, kind: type[_LengthAndDirection | _LargestSingularValue]) -> Module:
    for hook in tuple(module._hooks.before.values()):
        function: Any = hook.function
        if isinstance(function, kind) and function.name == name:
            with no_grad():
                value = function.weight(module).detach()
            function.handle.remove()
            function.forget(module)
            module.__dict__.pop(name, None)
            module.register_parameter(name, Parameter(value))
            return module
    raise ValueError(f"{name!r} of {type(module).__name__} is not computed so")


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn length (`weight_g`) and direction (`weight_v`) of a weight separately, per slice along `dim`, or of the whole.

    The weight is computed before each forward pass. Source: arXiv:1602.07868. Raises ValueError and RuntimeError.
    """
    return _hooked(module, _LengthAndDirection(name, dim))


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again. Raises ValueError."""
    return _unhooked(module, name, _LengthAndDirection)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value before each forward pass.

    In training, `n_power_iterations` steps of power iteration follow it first. Source: Miyato et al., arXiv:1802.05957.
    Raises ValueError and RuntimeError.
    """
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    return _hooked(module, _LargestSingularValue(name, n_power_iterations, eps, dim))


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight, as it is computed, an ordinary parameter again. Raises ValueError."""
    return _unhooked(module, name, _LargestSingularValue)


__all__: list[str] = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]
