"""GGUF files in other formats: tensor by tensor, so that the host holds one at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.hal.quantization.formats import quantize as to_blocks
from polyhal.llm.blocks import dequantized
from polyhal.llm.files import GgufFile, GgufTensor, StoredWeight
from polyhal.llm.files.tensor_types import TYPES_BY_NAME
from polyhal.llm.mixtures import Mixture, ModelShape, format_for, mixture_named
from polyhal.utils.files import replacing

_FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_ROWS = 1 << 22
"""Minimum number of weights that are converted at a time."""


def quantize(
    source: Path, target: Path, kind: str, progress: Callable[[int, int, str], None] = lambda done, count, name: None
) -> None:
    """Write the GGUF file `target` with the weights of the GGUF file `source` in the formats of a type such as `q4_k_m`.

    Other tensors and all metadata are copied. `target` is replaced only when it is complete. Raises SettingError for an unknown
    type, IncompatibleFileError for one of several parts, and the errors of `GgufFile`. Shapes of tensors stay the same.
    """
    mixture = mixture_named(kind)
    file = GgufFile(source)
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise IncompatibleFileError(message("quantize", f"{source} is one of several parts", expected="one whole file"))
    gguf = _gguf()
    shape = _shape_of(file)
    formats = {name: _format_of(t, mixture, shape) for name, t in file.tensors.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as out:
        writer = gguf.GGUFWriter(out.name, str(file.metadata.get("general.architecture")))
        try:
            _write_metadata(gguf, writer, file, mixture)
            for name, tensor in file.tensors.items():
                _describe(gguf, writer, tensor, formats[name])
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for number, (name, tensor) in enumerate(file.tensors.items()):
                progress(number, len(file.tensors), name)
                writer.write_tensor_data(_converted(file, tensor, formats[name]))
            progress(len(file.tensors), len(file.tensors), "")
        finally:
            writer.close()


def _gguf() -> Any:
    try:
        import gguf
    except ImportError as error:
        fix = 'pip install "polyhal[llm]"'
        raise ImportError(message("quantize", "the library `gguf` is missing", fix=fix)) from error
    return gguf


def _shape_of(file: GgufFile) -> ModelShape:
    prefix = file.metadata.get("general.architecture")

    def number(key: str, default: int) -> int:
        value = file.metadata.get(f"{prefix}.{key}", default)
        return int(np.max(value)) if np.size(value) else default

    heads, keys = number("attention.head_count", 1), number("attention.head_count_kv", 0)
    tied = "output.weight" not in file.tensors
    return ModelShape(number("block_count", 0), heads // max(keys or heads, 1), number("expert_count", 0), tied)


def _format_of(tensor: GgufTensor, mixture: Mixture, model: ModelShape) -> str:
    return format_for(tensor.name, tensor.shape, mixture, model) or tensor.type.name


def _write_metadata(gguf: Any, writer: Any, file: GgufFile, mixture: Mixture) -> None:
    skipped = {"general.architecture", "general.file_type", "general.quantization_version", "general.alignment"}
    for key, value in file.metadata.items():
        if key in skipped:
            continue
        kind, items = file.types[key]
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        sub_type = None if items is None else gguf.GGUFValueType(items)
        writer.add_key_value(key, plain, gguf.GGUFValueType(kind), sub_type)
    writer.add_file_type(mixture.number)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _describe(gguf: Any, writer: Any, tensor: GgufTensor, form: str) -> None:
    kind = TYPES_BY_NAME[form]
    row = tensor.shape[-1] // kind.block * kind.block_bytes
    rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    plain = _FLOATS.get(form) in (np.float32, np.float16)
    shape = tensor.shape if plain else (*tensor.shape[:-1], row)
    dtype = np.dtype(_FLOATS[form]) if plain else np.dtype(np.uint8)
    raw = None if plain else gguf.GGMLQuantizationType(kind.number)
    writer.add_tensor_info(tensor.name, shape, dtype, rows * row, raw)


def _converted(file: GgufFile, tensor: GgufTensor, form: str) -> np.ndarray:
    """Return the bytes of a tensor in a format, converted a few rows at a time."""
    values = file.read(tensor.name)
    if form == tensor.type.name:
        return np.ascontiguousarray(values) if values.dtype in (np.float32, np.float16) else _bytes(values)
    width = tensor.shape[-1]
    flat = values.reshape(-1, values.shape[-1])
    step = max(1, _ROWS // width)
    parts = []
    for first in range(0, len(flat), step):
        rows = flat[first : first + step]
        stored = StoredWeight((len(rows), width), tensor.type.name, rows.nbytes, partial(np.asarray, rows))
        numbers = np.asarray(dequantized(stored), np.float32)
        parts.append(numbers.astype(_FLOATS[form]) if form in _FLOATS else to_blocks(numbers, form))
    whole = np.concatenate(parts).reshape(*tensor.shape[:-1], -1)
    return whole if whole.dtype in (np.float32, np.float16) else _bytes(whole)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8)
