"""Layers with the weights of files: parameter by parameter to the device, so that the host holds about one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal import Device, tensor
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import CorruptFileError, message
from polyhal.llm.blocks import BLOCK_FORMATS, dequantized
from polyhal.llm.files import StoredWeight
from polyhal.models import DecoderConfig, Parts
from polyhal.nn import Embedding, Linear, Module, Parameter, QuantizedEmbedding, QuantizedExperts, QuantizedLinear

_PLAIN = {"f32": dtypes.float32, "f16": dtypes.float16, "bf16": dtypes.bfloat16}


class LoadedParts(Parts):
    """Makes the layers of a decoder with weights of files. Weights in formats of blocks stay in them where a layer exists.

    `dtype` is the dtype of all other weights.
    """

    def __init__(self, weights: Mapping[str, StoredWeight], device: Device, dtype: DType) -> None:
        super().__init__(device, dtype)
        self._weights = weights
        self._target, self._dtype = device, dtype
        self._loaded: set[str] = set()

    def linear(self, name: str, in_features: int, out_features: int, bias: bool) -> Module:
        """Make an affine layer, of blocks if the file has blocks."""
        weight = self._stored(f"{name}.weight", (out_features, in_features))
        added = self._floats(f"{name}.bias", (out_features,)) if bias else None
        if weight.format in BLOCK_FORMATS:
            return QuantizedLinear(weight.read(), weight.format, in_features, added, self._target)
        layer = Linear(in_features, 0, bias, self._target, self._dtype)  # without rows: no initial values are drawn
        layer.out_features = out_features
        layer.weight = self._parameter(weight)
        if added is not None:
            layer.bias = Parameter(tensor(added, dtype=self._dtype, device=self._target))
        return layer

    def tied(self, name: str, table: Any) -> Module:
        """Make the layer of logits with the weights of a table of tokens, which may be of blocks."""
        if not isinstance(table, QuantizedEmbedding):
            return super().tied(name, table)
        first = np.zeros((1, BLOCK_FORMATS[table.format].row_bytes(table.width)), np.uint8)
        layer = QuantizedLinear(first, table.format, table.width, None, self._target)
        layer.blocks = table.blocks
        layer.rows = layer.out_features = table.rows
        return layer

    def embedding(self, name: str, rows: int, width: int) -> Module:
        """Make a table of rows, of blocks if the file has blocks."""
        weight = self._stored(f"{name}.weight", (rows, width))
        if weight.format in BLOCK_FORMATS:
            return QuantizedEmbedding(weight.read(), weight.format, width, self._target, self._dtype)
        layer = Embedding(1, width, device=self._target, dtype=self._dtype)
        layer.num_embeddings = rows
        layer.weight = self._parameter(weight)
        return layer

    def experts(self, name: str, count: int, in_features: int, out_features: int) -> Module:
        """Make a linear layer per expert, of blocks if the file has blocks."""
        weight = self._stored(f"{name}.weight", (count, out_features, in_features))
        if weight.format in BLOCK_FORMATS:
            return QuantizedExperts(weight.read(), weight.format, in_features, self._target)
        layer = super().experts(name, 1, 1, 1)
        layer.weight = self._parameter(weight)
        return layer

    def norm(self, name: str, width: int, config: DecoderConfig, eps: float | None = None) -> Module:
        """Make the norm of a configuration."""
        layer = super().norm(name, width, config, eps)
        for kind in ("weight", "bias"):
            if f"{name}.{kind}" in self._weights:
                values = self._floats(f"{name}.{kind}", (width,))
                setattr(layer, kind, Parameter(tensor(values, dtype=self._dtype, device=self._target)))
        return layer

    def load_rest(self, model: Module) -> None:
        """Load the weights of layers that other code has made, such as the routers of experts."""
        for name, target in (*model.named_parameters(), *model.named_buffers()):
            if name in self._weights and name not in self._loaded:
                values = self._floats(name, target.shape)
                target.copy_(tensor(values, dtype=target.dtype, device=self._target))

    def _stored(self, name: str, shape: tuple[int, ...]) -> StoredWeight:
        """Return a weight. Raises CorruptFileError if it is missing, or has another shape."""
        found = self._weights.get(name)
        if found is None or found.shape != shape:
            problem = f"weight {name} is missing" if found is None else f"weight {name} has shape {found.shape}"
            raise CorruptFileError(message("load", problem, expected=f"{shape} by the settings"))
        self._loaded.add(name)
        return found

    def _floats(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        weight = self._stored(name, shape)
        return np.ascontiguousarray(dequantized(weight))

    def _parameter(self, weight: StoredWeight) -> Parameter:
        values = np.ascontiguousarray(dequantized(weight))
        return Parameter(tensor(values, dtype=self._dtype, device=self._target), requires_grad=False)
