"""Linear layers with low-rank adapters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from polyhal import Tensor, no_grad, tensor
from polyhal.adapters.settings import LoraSettings
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import message
from polyhal.hal.quantization.formats import dequantize
from polyhal.nn import Dropout, Linear, Module, Parameter, QuantizedLinear, init

_LINEAR = (Linear, QuantizedLinear)


class LoraLinear(Module):
    """A frozen linear layer, also a quantised one, plus a product of thin matrices: `base(x) + scale * dropout(x) @ A.T @ B.T`.

    The adapter computes in float32 and has float32 weights, `lora_A` (rank, in) and `lora_B` (out, rank); the sum is rounded
    to the dtype of the base's result. `lora_B` is 0 at the beginning. Source: Hu et al., arXiv:2106.09685.
    """

    def __init__(
        self, base: Linear | QuantizedLinear, rank: int, scale: float, dropout: float = 0.0, gaussian: bool = False
    ) -> None:
        super().__init__()
        device = base.weight.device if isinstance(base, Linear) else base.blocks.device
        self.base_layer = base.requires_grad_(False)
        self.scale = scale
        self.lora_dropout = Dropout(dropout)
        self.lora_A = Linear(base.in_features, rank, False, device, float32)
        self.lora_B = Linear(rank, base.out_features, False, device, float32)
        if gaussian:
            init.normal_(self.lora_A.weight, std=1 / rank)
        else:
            init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        init.zeros_(self.lora_B.weight)

    @property
    def in_features(self) -> int:
        """Width of the input."""
        return self.base_layer.in_features

    @property
    def out_features(self) -> int:
        """Width of the result."""
        return self.base_layer.out_features

    def forward(self, input: Tensor) -> Tensor:
        out = self.base_layer(input)
        low = self.lora_A(self.lora_dropout(input.to(float32)))
        result: Tensor = (out + self.lora_B(low) * self.scale).to(out.dtype)
        return result

    def product(self) -> Tensor:
        """Return `scale * B @ A` (out, in), in float32."""
        result: Tensor = (self.lora_B.weight @ self.lora_A.weight) * self.scale
        return result

    def merged(self) -> Linear:
        """Return a layer whose weight includes the adapter: the base, or a float32 one in place of a quantised base."""
        base = self.base_layer
        if isinstance(base, QuantizedLinear):
            return self._in_floats(base)
        with no_grad():  # a new parameter: the weight may be a table of tokens, too
            weight = (base.weight.to(float32) + self.product()).to(base.weight.dtype)
        base.weight = Parameter(weight, requires_grad=False)
        return base

    def _in_floats(self, base: QuantizedLinear) -> Linear:
        device = base.blocks.device
        layer = Linear(base.in_features, base.out_features, base.bias is not None, device, float32)
        with no_grad():
            weight = tensor(dequantize(base.file_blocks(), base.format), dtype=float32, device=device)
            layer.weight.copy_(weight + self.product())
            if base.bias is not None and layer.bias is not None:
                layer.bias.copy_(base.bias)
        return layer.requires_grad_(False)

    def extra_repr(self) -> str:
        return f"rank={self.lora_A.out_features}, scale={self.scale:g}"


def adapters(model: Module) -> Iterator[tuple[str, LoraLinear]]:
    """Yield the layers that have adapters, with their paths."""
    for path, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield path, module


def add_lora(model: Module, settings: LoraSettings) -> list[str]:
    """Freeze a model, add adapters to linear layers, and return their paths.

    Afterwards `model.parameters()` that require gradients are the adapters'. Raises the errors of `target_layers`.
    """
    chosen = target_layers(model, settings)
    model.requires_grad_(False)
    gaussian = settings.init_lora_weights == "gaussian"
    for path, base in chosen.items():
        layer = LoraLinear(base, settings.rank(path), settings.scale(path), settings.lora_dropout, gaussian)
        layer.train(model.training)
        model.set_submodule(path, layer)
    return list(chosen)


def target_layers(model: Module, settings: LoraSettings) -> dict[str, Linear | QuantizedLinear]:
    """Return the linear layers that get adapters, by path. Raises ValueError for none, or if the model has adapters."""
    if next(adapters(model), None) is not None:
        raise ValueError(message("add_lora", "the model has adapters", fix="merge_lora(model) first"))
    linear = {path: module for path, module in model.named_modules() if isinstance(module, _LINEAR)}
    chosen = {path: module for path, module in linear.items() if settings.targets(path)}
    if not chosen:
        problem = f"target_modules {settings.target_modules!r} match no linear layer"
        raise ValueError(message("add_lora", problem, expected=f"names among {_last_names(linear)}"))
    return chosen


def merge_lora(model: Module) -> list[str]:
    """Add all adapters to the weights of their layers, which become ordinary layers again; return their paths."""
    merged = list(adapters(model))
    for path, layer in merged:
        model.set_submodule(path, layer.merged())
    return [path for path, _ in merged]


def _last_names(paths: Iterable[str]) -> str:
    return ", ".join(sorted({path.split(".")[-1] for path in paths})) or "none: the model has no linear layer"
