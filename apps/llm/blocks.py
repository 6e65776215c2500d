"""Numbers of weights that files store in formats of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.hal.quantization.formats import FORMATS, dequantize
from polyhal.llm.files import StoredWeight

BLOCK_FORMATS = FORMATS
"""Formats in which devices multiply, by name."""
FLOAT_FORMATS = ("f32", "f16", "bf16", "f64")


def dequantized(weight: StoredWeight) -> np.ndarray:
    """Read a weight as numbers. Raises IncompatibleFileError for a format that nothing here can read."""
    values = weight.read()
    if weight.format in FLOAT_FORMATS:
        return values
    if weight.format in BLOCK_FORMATS:
        return dequantize(values, weight.format).reshape(weight.shape)
    return _by_library(values, weight)


def _by_library(values: np.ndarray, weight: StoredWeight) -> np.ndarray:
    """Dequantise formats without kernels by the `gguf` package."""
    gguf = _gguf()
    kind = getattr(gguf.GGMLQuantizationType, weight.format.upper(), None)
    try:
        numbers: np.ndarray = gguf.quants.dequantize(values, kind)
    except (NotImplementedError, ValueError, AttributeError) as error:
        expected = f"{', '.join((*FLOAT_FORMATS, *BLOCK_FORMATS))}"
        raise IncompatibleFileError(message("load", f"weights of format {weight.format}", expected=expected)) from error
    return numbers.reshape(weight.shape)


def _gguf() -> Any:
    """Return the package. Raises ImportError, with the command that installs it."""
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        fix = 'pip install "polyhal[llm]"'
        raise ImportError(message("load", "the library `gguf` is missing", fix=fix)) from error
    return gguf
