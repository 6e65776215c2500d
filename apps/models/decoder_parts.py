"""Layers that a `Decoder` is made of. A loader replaces `Parts` to put other layers in their places, such as quantised ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.models.decoder_config import DecoderConfig
from polyhal.nn import Embedding, LayerNorm, Linear, Module, Parameter, RMSNorm, init
from polyhal.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, "tanh"),
    "relu": F.relu,
}


class Parts:
    """Makes layers with weights on a device. `name` is the path of the layer in the decoder, without a trailing dot."""

    def __init__(self, device: Device | str | None = None, dtype: object = None) -> None:
        self.device = device
        self.dtype = dtype

    def linear(self, name: str, in_features: int, out_features: int, bias: bool) -> Any:
        """Make an affine layer."""
        return Linear(in_features, out_features, bias, self.device, self.dtype)

    def tied(self, name: str, table: Any) -> Module:
        """Make the layer of logits with the weights of a table of tokens."""
        layer = Linear(table.embedding_dim, 0, False, self.device, self.dtype)
        layer.out_features, layer.weight = table.num_embeddings, table.weight
        return layer

    def embedding(self, name: str, rows: int, width: int) -> Module:
        """Make a table of rows by token or position."""
        return Embedding(rows, width, device=self.device, dtype=self.dtype)

    def experts(self, name: str, count: int, in_features: int, out_features: int) -> Module:
        """Make a linear layer per expert."""
        return ExpertLinear(count, in_features, out_features, self.device, self.dtype)

    def norm(self, name: str, width: int, config: DecoderConfig, eps: float | None = None) -> Module:
        """Make the norm of a configuration."""
        eps = config.norm_eps if eps is None else eps
        if config.norm == "layer":
            return LayerNorm(width, eps, device=self.device, dtype=self.dtype)
        made = RMSNorm if config.norm == "rms" else ShiftedRMSNorm
        return made(width, eps, device=self.device, dtype=self.dtype)


class ShiftedRMSNorm(RMSNorm):
    """RMS norm times 1 + `weight`, which starts at 0. Source: Gemma Team, arXiv:2403.08295."""

    def __init__(
        self, normalized_shape: int, eps: float, device: Device | str | None = None, dtype: object = None
    ) -> None:
        super().__init__(normalized_shape, eps, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weights to 0."""
        assert self.weight is not None
        init.zeros_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        y = F.rms_norm(input, self.normalized_shape, None, self.eps)
        return y + y * self.weight  # exact near 1, unlike 1 + weight, in half precision


class ExpertLinear(Module):
    """A matrix for each expert: `weight` (experts, out, in)."""

    def __init__(
        self,
        count: int,
        in_features: int,
        out_features: int,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.weight = Parameter(ph.empty((count, out_features, in_features), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = self.weight.shape[2] ** -0.5
        init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Multiply x (T, 1 or k, in) by the matrices of `chosen` experts (T, k): (T, k, out). It gathers the matrices."""
        tokens, selected = chosen.shape
        matrices = self.weight[ph.reshape(chosen, (-1,))]
        columns = ph.broadcast_to(x, (tokens, selected, x.shape[-1])).reshape((tokens * selected, x.shape[-1], 1))
        result: Tensor = ph.matmul(matrices, columns).reshape((tokens, selected, self.weight.shape[1]))
        return result

    def every(self, x: Tensor) -> Tensor:
        """Multiply x (T, in) or (experts, T, in) by the matrices of all experts: (experts, T, out)."""
        result: Tensor = ph.matmul(x, ph.transpose(self.weight))
        return result
