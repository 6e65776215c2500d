"""GGUF files of models in folders and in other GGUF files: tensor by tensor, so that the host holds one at a time."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from polyhal.hal.errors import SettingError, message
from polyhal.hal.quantization.formats import quantize as to_blocks
from polyhal.llm.blocks import dequantized
from polyhal.llm.files import GgufFile, StoredWeight, open_model
from polyhal.llm.files.gguf_content import GgufContent, content_of_file, content_of_model
from polyhal.llm.files.tensor_types import TYPES_BY_NAME
from polyhal.llm.memory import gib
from polyhal.llm.mixtures import ModelShape, format_for, mixture_named
from polyhal.utils.files import replacing

_FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_ROWS = 1 << 22
"""Minimum number of weights that are converted at a time."""
_ALIGNMENT = 32


def quantize(
    source: Path, target: Path, kind: str, progress: Callable[[int, int, str], None] = lambda done, count, name: None
) -> Sequence[str]:
    """Write the GGUF file `target` with the weights of a model in the formats of a type such as `q4_k_m`.

    `source` is a GGUF file, whose other tensors and metadata are copied, or a folder of Hugging Face's form, whose settings,
    tokenizer and chat templates become metadata. `target` is replaced only when it is complete. Returns notes: properties of
    the source that the file cannot have, and formats that are quantised twice. Raises SettingError for an unknown type and for
    a target that is the source or a folder, IncompatibleFileError for a model that the format cannot describe, the errors of
    `open_model`, and OSError if the disk has less room than the file needs.
    """
    mixture = mixture_named(kind)
    if target.is_dir():
        raise SettingError(message("quantize", f"{target} is a folder", expected="the name of a file to write"))
    if target.exists() and source.exists() and target.samefile(source):
        problem = f"{target} is the source, and quantised weights cannot be restored"
        raise SettingError(message("quantize", problem, expected="another file"))
    content = content_of_model(open_model(source)) if source.is_dir() else content_of_file(GgufFile(source))
    gguf = _gguf()
    shape = _shape_of(content)
    formats = {n: format_for(n, t.shape, mixture, shape) or _kept(t, source) for n, t in content.tensors.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    _check_room(target, sum(_bytes_in(t.shape, formats[name]) for name, t in content.tensors.items()))
    with replacing(target) as out:
        writer = gguf.GGUFWriter(out.name, content.architecture)
        try:
            for key, value, number, items in content.values():
                sub_type = None if items is None else gguf.GGUFValueType(items)
                writer.add_key_value(key, value, gguf.GGUFValueType(number), sub_type)
            writer.add_file_type(mixture.number)
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
            for name, tensor in content.tensors.items():
                _describe(gguf, writer, name, tensor, formats[name])
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for number, (name, tensor) in enumerate(content.tensors.items()):
                progress(number, len(content.tensors), name)
                writer.write_tensor_data(_converted(tensor, formats[name]))
            progress(len(content.tensors), len(content.tensors), "")
        finally:
            writer.close()
    return [*content.notes, *_quantised_twice(content, formats)]


def _quantised_twice(content: GgufContent, formats: Mapping[str, str]) -> list[str]:
    before = {
        t.format
        for name, t in content.tensors.items()
        if not {t.format, formats[name]} & _FLOATS.keys() and t.format != formats[name]
    }
    return (
        [f"weights in {', '.join(sorted(before))} are quantised twice: a source in floats gives less error"]
        if before
        else []
    )


def _gguf() -> Any:
    try:
        import gguf
    except ImportError as error:
        fix = 'pip install "polyhal[llm]"'
        raise ImportError(message("quantize", "the library `gguf` is missing", fix=fix)) from error
    return gguf


def _shape_of(content: GgufContent) -> ModelShape:
    def number(key: str, default: int) -> int:
        value = content.metadata.get(f"{content.architecture}.{key}", default)
        return int(np.max(value)) if np.size(value) else default

    heads, keys = number("attention.head_count", 1), number("attention.head_count_kv", 0)
    tied = "output.weight" not in content.tensors
    return ModelShape(number("block_count", 0), heads // max(keys or heads, 1), number("expert_count", 0), tied)


def _kept(tensor: StoredWeight, source: Path) -> str:
    """Return the format of a tensor that is not converted. Readers expect float32 where folders have 16 bits."""
    return "f32" if source.is_dir() else tensor.format


def _check_room(target: Path, size: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if size > free:
        problem = f"{target} needs {gib(size)}, and its disk has {gib(free)}"
        raise OSError(errno.ENOSPC, message("quantize", problem, fix="free some space, or choose a type of fewer bits"))


def _bytes_in(shape: tuple[int, ...], form: str) -> int:
    """Return the bytes of a tensor in a format, with padding."""
    kind = TYPES_BY_NAME[form]
    return -(-(prod(shape) // kind.block * kind.block_bytes) // _ALIGNMENT) * _ALIGNMENT


def _describe(gguf: Any, writer: Any, name: str, tensor: StoredWeight, form: str) -> None:
    kind = TYPES_BY_NAME[form]
    row = tensor.shape[-1] // kind.block * kind.block_bytes
    rows = prod(tensor.shape[:-1])
    plain = _FLOATS.get(form) in (np.float32, np.float16)
    shape = tensor.shape if plain else (*tensor.shape[:-1], row)
    dtype = np.dtype(_FLOATS[form]) if plain else np.dtype(np.uint8)
    raw = None if plain else gguf.GGMLQuantizationType(kind.number)
    writer.add_tensor_info(name, shape, dtype, rows * row, raw)


def _converted(tensor: StoredWeight, form: str) -> np.ndarray:
    """Return the bytes of a tensor in a format, converted a few rows at a time."""
    values = tensor.read()
    if form == tensor.format and (form not in _FLOATS or values.dtype == _FLOATS[form]):
        return np.ascontiguousarray(values) if values.dtype in (np.float32, np.float16) else _bytes(values)
    width = tensor.shape[-1]
    flat = values.reshape(-1, values.shape[-1])
    step = max(1, _ROWS // width)
    parts = []
    for first in range(0, len(flat), step):
        rows = flat[first : first + step]
        stored = StoredWeight((len(rows), width), tensor.format, rows.nbytes, partial(np.asarray, rows))
        numbers = np.asarray(dequantized(stored), np.float32)
        parts.append(numbers.astype(_FLOATS[form]) if form in _FLOATS else to_blocks(numbers, form))
    whole = np.concatenate(parts).reshape(*tensor.shape[:-1], -1)
    return whole if whole.dtype in (np.float32, np.float16) else _bytes(whole)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8)
