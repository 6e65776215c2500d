"""Layers over weights that stay in the blocks of a quantised format, as files of GGUF have them."""

from __future__ import annotations

from typing import Self

import numpy as np

from polyhal.creation import arange, tensor
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.layout.regions import stack
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

    It is made of rows of blocks (out_features, bytes of a row) as a file has them, or of floats by `quantize`.
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
    """Rows of a quantised table by index: integers (...) to (..., embedding_dim), in `dtype`.

    It is made of rows of blocks (num_embeddings, bytes of a row) as a file has them.
    """

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

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = quantized_rows(self.blocks, input, format=self.format, in_tiles=True, dtype=self.dtype)
        return out


class QuantizedExperts(QuantizedTable):
    """A quantised matrix for each expert, of blocks (experts, out_features, bytes of a row) as a file has them."""

    def __init__(
        self,
        blocks: np.ndarray,
        format: str,  # noqa: A002
        in_features: int,
        device: Device | str | None = None,
    ) -> None:
        self.experts, self.out_features = blocks.shape[:2]
        self.padded = self.out_features + -self.out_features % TILE  # so that no tile has rows of two experts
        whole = np.pad(blocks, ((0, 0), (0, self.padded - self.out_features), (0, 0)))
        super().__init__(whole.reshape(-1, blocks.shape[-1]), format, in_features, device)
        self.in_features = in_features

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Multiply x (T, 1 or k, in) by the matrices of `chosen` experts (T, k): (T, k, out). Only their bytes are read."""
        tokens, selected = chosen.shape
        count = tokens * selected
        rows = chosen.reshape((count, 1)) * self.padded + arange(self.padded, dtype=chosen.dtype, device=chosen.device)
        matrices: Tensor = quantized_rows(self.blocks, rows, format=self.format, in_tiles=True, dtype=x.dtype)
        columns = x.broadcast_to((tokens, selected, self.in_features)).reshape((count, self.in_features, 1))
        out: Tensor = (matrices @ columns).reshape((tokens, selected, self.padded))
        return out if self.padded == self.out_features else out[..., : self.out_features]

    def every(self, x: Tensor) -> Tensor:
        """Multiply x (T, in) or (experts, T, in) by the matrices of all experts: (experts, T, out)."""
        outs = []
        for i in range(self.experts):
            part = self.blocks[i * self.padded : (i + 1) * self.padded]
            outs.append(quantized_matmul(x if x.ndim == 2 else x[i], part, format=self.format, in_tiles=True))
        out: Tensor = stack(outs)
        return out if self.padded == self.out_features else out[..., : self.out_features]
