"""Weights of 4 bits that AWQ and GPTQ pack into words, as blocks of equal values.

A weight is `scale * (code - zero)`, with a float16 scale and an integer zero point for each group of inputs. Codes minus a
zero point of 8 are the codes of q4_0; minus any other they lie between -16 and 15, as the codes of q5_0 do. So blocks hold
them exactly.
Sources: Lin et al., arXiv:2306.00978 (AWQ); Frantar et al., arXiv:2210.17323 (GPTQ).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.serialize import LazyState

_AWQ_COLUMNS = np.array([0, 2, 4, 6, 1, 3, 5, 7])
"""Columns of the codes in a word, the lowest bits first."""
_BLOCK, _BITS, _CODES = 32, 4, 8


@dataclass(frozen=True, slots=True)
class Packing:
    """How a folder's weights are packed."""

    is_awq: bool
    group: int
    """Inputs of a group; -1 for all."""
    symmetric: bool
    """All zero points are 8."""
    reordered: bool
    """Groups are not neighbouring inputs."""
    zero_offset: int
    """Number that is added to stored zero points."""

    def format_for(self, width: int) -> str:
        """Return the format of rows of `width` weights: floats if groups do not fill blocks."""
        group = width if self.group == -1 else self.group
        if self.reordered or group % _BLOCK or width % group:
            return "f32"
        return "q4_0" if self.symmetric else "q5_0"


def packing_of(settings: Mapping[str, Any], folder: object) -> Packing:
    """Read `quantization_config`. Raises IncompatibleFileError, with the setting, for another kind."""
    method = settings.get("quant_method")

    def check(name: str, expected: tuple[Any, ...], default: Any) -> None:
        value = settings.get(name, default)
        if (value.lower() if isinstance(value, str) else value) not in expected:
            problem = f"{folder} has weights quantised by {method} with {name} {value!r}"
            known = " or ".join(map(str, expected))
            raise IncompatibleFileError(message("open_model", problem, expected=f"{known}; floats; or a GGUF file"))

    check("quant_method", ("awq", "gptq"), None)
    check("bits", (_BITS,), None)
    group = settings.get("group_size")
    if type(group) is not int or group == 0 or group < -1:
        problem = f"{folder} has group_size {group!r}"
        raise IncompatibleFileError(message("open_model", problem, expected="a positive number, or -1 for whole rows"))
    if method == "awq":
        check("version", ("gemm",), "gemm")
        check("zero_point", (True,), True)
        return Packing(True, group, False, False, 0)
    check("checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    offset = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    return Packing(False, group, bool(settings.get("sym", True)), bool(settings.get("desc_act", False)), offset)


class PackedWeights:
    """The packed weights of a folder, by the names of the weights that they encode."""

    def __init__(self, state: LazyState, packing: Packing) -> None:
        self._state, self._packing = state, packing

    def find(self, name: str) -> str | None:
        """Return the layer of a weight, if the folder has it packed."""
        layer = name.removesuffix(".weight")
        names = [n.removesuffix(".qweight") for n in (f"{layer}.qweight", f"model.{layer}.qweight") if n in self._state]
        return names[0] if names else None

    def shape(self, layer: str) -> tuple[int, int]:
        """Return the shape (out, in) of a layer's weight."""
        rows, columns = self._state.shape_of(f"{layer}.qweight") or (0, 0)
        return (columns * _CODES, rows) if self._packing.is_awq else (columns, rows * _CODES)

    def format(self, layer: str) -> str:
        """Return the format in which `read` returns a layer's weight."""
        return self._packing.format_for(self.shape(layer)[1])

    def nbytes(self, layer: str) -> int:
        """Return the bytes of a layer's tensors."""
        widths = {"qweight": 4, "qzeros": 4, "scales": 2}
        return sum(size * prod(self._state.shape_of(f"{layer}.{part}") or (0,)) for part, size in widths.items())

    def read(self, layer: str) -> np.ndarray:
        """Return a layer's weight: rows of blocks, or float32. Raises CorruptFileError for tensors that do not fit."""
        packing, shape = self._packing, self.shape(layer)
        codes, zeros, scales = self._codes(layer), self._zeros(layer), self._tensor(layer, "scales").T
        size = shape[1] if packing.group == -1 else packing.group
        groups = -(-shape[1] // size)
        for name, found in (("qzeros", zeros.shape), ("scales", scales.shape)):
            if found != (shape[0], groups):
                problem = f"{layer}.{name} is for {found[0]} outputs and {found[1]} groups"
                raise CorruptFileError(message("open_model", problem, expected=f"{shape[0]} and {groups}"))
        index = np.arange(shape[1]) // size
        if not packing.is_awq and f"{layer}.g_idx" in self._state:
            stored = self._tensor(layer, "g_idx").astype(np.int64)
            if stored.shape != index.shape or stored.min() < 0 or stored.max() >= groups:
                problem = f"{layer}.g_idx has groups outside of its {groups}, or not {shape[1]} inputs"
                raise CorruptFileError(message("open_model", problem))
            if not packing.reordered and not np.array_equal(stored, index):
                problem = f"{layer}.g_idx has another order of inputs"
                raise CorruptFileError(message("open_model", problem, expected="desc_act true in config.json"))
            index = stored
        values = codes - zeros[:, index]
        form = self.format(layer)
        if form == "f32":
            return np.asarray(values * scales.astype(np.float32)[:, index])
        return _blocks(values, scales, size, form, layer)

    def _tensor(self, layer: str, part: str) -> np.ndarray:
        name = f"{layer}.{part}"
        if name not in self._state:
            raise CorruptFileError(message("open_model", f"tensor {name} is missing"))
        return np.asarray(self._state[name].numpy())

    def _codes(self, layer: str) -> np.ndarray:
        """Return the codes (out, in) as int8."""
        words = self._tensor(layer, "qweight")
        if self._packing.is_awq:
            return _columns(words, _AWQ_COLUMNS).T
        return _columns(words.T, np.arange(_CODES))

    def _zeros(self, layer: str) -> np.ndarray:
        """Return the zero points (out, groups) as int8."""
        order = _AWQ_COLUMNS if self._packing.is_awq else np.arange(_CODES)
        zeros = _columns(self._tensor(layer, "qzeros"), order).T + np.int8(self._packing.zero_offset)
        if self._packing.symmetric and (zeros != 8).any():
            problem = f"{layer}.qzeros has zero points other than 8"
            raise CorruptFileError(message("open_model", problem, expected="sym false in config.json"))
        return zeros


def _columns(words: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the codes (rows, 8 n) of words (rows, n), whose codes are for the columns `order` of eight."""
    codes = np.empty((*words.shape, _CODES), np.int8)
    unsigned = np.ascontiguousarray(words).view(np.uint32)
    for place, column in enumerate(order):
        codes[..., column] = (unsigned >> np.uint32(_BITS * place)) & 15
    return codes.reshape(len(words), -1)


def _blocks(values: np.ndarray, scales: np.ndarray, group: int, form: str, layer: str) -> np.ndarray:
    """Return rows of blocks for integers (out, in) and scales (out, groups)."""
    halfs = np.ascontiguousarray(scales, np.float16)
    if not np.array_equal(halfs.astype(np.float32), scales.astype(np.float32)):
        problem = f"{layer}.scales are {scales.dtype} that float16 rounds"
        raise IncompatibleFileError(message("open_model", problem, expected="float16"))
    rows, width = values.shape
    q = (values + (8 if form == "q4_0" else 16)).astype(np.uint8).reshape(rows, width // _BLOCK, _BLOCK)
    d = np.repeat(halfs.view(np.uint8).reshape(rows, -1, 2), group // _BLOCK, 1)
    high = [] if form == "q4_0" else [np.packbits(q >> 4, axis=-1, bitorder="little")]
    low = q & 15
    packed = low[..., : _BLOCK // 2] | low[..., _BLOCK // 2 :] << 4
    return np.concatenate([d, *high, packed], -1).reshape(rows, -1)
