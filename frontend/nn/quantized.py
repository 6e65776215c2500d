"""Layers over weights that stay in the blocks of a quantised format, as files of GGUF have them."""

from __future__ import annotations

from typing import Self

import numpy as np

from polyhal.creation import tensor
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.quantized.dequantize import quantized_rows
from polyhal.hal.ops.quantized.matmul import quantized_matmul
from polyhal.hal.quantization import formats
from polyhal.hal.quantization.tiles import TILE, from_tiles, tiled
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class QuantizedTable(Module):
    """Base of layers with a table of quantised rows, the buffer `blocks`.

    On the device the bytes are in tiles of 16 rows, in which kernels read them; rows of zeros fill the last tile.
    """

    blocks: Tensor

    def __init__(
        self,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        width: int,
        device: Device | str | None,
    ) -> None:
        super().__init__()
        form = formats.format_named(format)
        if blocks.dtype != np.uint8 or blocks.ndim != 2 or blocks.shape[1] != form.row_bytes(width):
            raise ShapeError(
                message(
                    type(self).__name__,
                    f"blocks {blocks.dtype}{blocks.shape}",
                    expected=f"uint8 (rows, {form.row_bytes(width)}) for rows of {width} weights in {format}",
                )
            )
        self.format = format
        self.rows, self.width = blocks.shape[0], width
        padded = np.pad(blocks, ((0, -self.rows % TILE), (0, 0)))
        self.register_buffer("blocks", tensor(tiled(padded, form), device=device))

    def file_blocks(self) -> np.ndarray:
        """Return the rows of blocks in the order of a file."""
        form = formats.format_named(self.format)
        rows = from_tiles(self.blocks.numpy(), form, np.reshape, np.transpose, np.concatenate)
        return np.asarray(rows[: self.rows])

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.width}, format={self.format!r}"


class QuantizedLinear(QuantizedTable):
    """`input @ weight.T + bias` with a quantised weight: (..., in_features) to (..., out_features), in the input's dtype.

    Gradients flow to the input and to the bias. The weight itself is not trained.
    """

    def __init__(
        self,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        in_features: int,
        bias: Tensor | np.ndarray | None = None,
        device: Device | str | None = None,
    ) -> None:
        super().__init__(blocks, format, in_features, device)
        self.in_features, self.out_features = in_features, self.rows
        self.bias = None if bias is None else Parameter(tensor(bias, device=device))

    @classmethod
    def from_blocks(
        cls,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        in_features: int,
        bias: Tensor | np.ndarray | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make a layer of rows of blocks (out_features, bytes of a row) as a file has them."""
        return cls(blocks, format, in_features, bias, device)

    @classmethod
    def quantize(
        cls,
        weight: Tensor | np.ndarray,
        format: str,  # noqa: A002
        bias: Tensor | np.ndarray | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make a layer of a weight (out_features, in_features) of floats, which is quantised on the host."""
        values = weight.numpy() if isinstance(weight, Tensor) else weight
        return cls(formats.quantize(values, format), format, values.shape[1], bias, device)

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = quantized_matmul(input, self.blocks, format=self.format, in_tiles=True)
        out = out if out.shape[-1] == self.rows else out[..., : self.rows]
        return out if self.bias is None else out + self.bias.to(out.dtype)


class QuantizedEmbedding(QuantizedTable):
    """Rows of a quantised table by index: integers (...) to (..., embedding_dim), in `dtype`."""

    def __init__(
        self,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        embedding_dim: int,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(blocks, format, embedding_dim, device)
        self.num_embeddings, self.embedding_dim = self.rows, embedding_dim
        self.dtype = dtype or "float32"

    @classmethod
    def from_blocks(
        cls,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        embedding_dim: int,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> Self:
        """Make a table of rows of blocks (num_embeddings, bytes of a row) as a file has them."""
        return cls(blocks, format, embedding_dim, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = quantized_rows(self.blocks, input, format=self.format, in_tiles=True, dtype=self.dtype)
        return out
