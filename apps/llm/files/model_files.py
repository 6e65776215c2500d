"""The files of a language model, in one form for all formats."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, PolyhalError, message
from polyhal.text import PretrainedTokenizer


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A parameter of a decoder in a file.

    `read` returns its numbers, or for a format of blocks the rows of blocks: uint8 (..., rows, bytes of a row).
    """

    shape: tuple[int, ...]
    format: str
    """`f32`, `f16`, `bf16`, or the name of a format of blocks such as `q4_k`."""
    nbytes: int
    read: Callable[[], np.ndarray]

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Settings and weights of a language model. Weights are read when they are asked for, one at a time."""

    path: Path
    config: Mapping[str, Any]
    """`config.json` of Hugging Face's form; metadata of other formats are translated to it."""
    weights: Mapping[str, StoredWeight]
    """Parameters by the names of `polyhal.models.Decoder`."""
    load_tokenizer: Callable[[], PretrainedTokenizer]
    """Reads the tokenizer. Raises IncompatibleFileError or FileNotFoundError if there is none."""
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    """Templates by name; the usual one is `default`."""
    generation: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of generation, as in `generation_config.json`."""
    name: str = ""

    @property
    def parameters(self) -> int:
        """Number of parameters; a tied table is counted once."""
        tied = self.config.get("tie_word_embeddings") and "model.embed_tokens.weight" in self.weights
        return sum(w.count for n, w in self.weights.items() if not (tied and n == "lm_head.weight"))

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in the files."""
        tied = self.config.get("tie_word_embeddings") and "model.embed_tokens.weight" in self.weights
        return sum(w.nbytes for n, w in self.weights.items() if not (tied and n == "lm_head.weight"))

    @property
    def format(self) -> str:
        """The format of most bytes."""
        sizes: dict[str, int] = {}
        for weight in self.weights.values():
            sizes[weight.format] = sizes.get(weight.format, 0) + weight.nbytes
        return max(sizes, key=sizes.__getitem__, default="")


def open_model(path: str | os.PathLike[str]) -> ModelFiles:
    """Open the files of a model: a folder of Hugging Face's form, a GGUF file, or a folder with one.

    Nothing but headers and settings is read. Raises FileNotFoundError, CorruptFileError, and IncompatibleFileError, which also
    names settings that the decoder does not support.
    """
    place = Path(path)
    try:
        return _opened(place)
    except ValueError as error:
        if isinstance(error, PolyhalError):
            raise
        raise IncompatibleFileError(f"{error} (in {place})") from error


def _opened(place: Path) -> ModelFiles:
    from polyhal.llm.files.folder import open_folder
    from polyhal.llm.files.gguf_model import open_gguf

    if not place.exists():
        raise FileNotFoundError(message("open_model", f"{place} does not exist", expected="a folder or a GGUF file"))
    if place.is_file():
        return open_gguf(place)
    if (place / "config.json").is_file():
        return open_folder(place)
    files = sorted(place.glob("*.gguf"))
    firsts = [f for f in files if "-of-" not in f.name or "-00001-of-" in f.name]
    if len(firsts) == 1:
        return open_gguf(firsts[0])
    problem = f"{place} has no config.json and {len(firsts) or 'no'} GGUF file{'s' if firsts else ''}"
    listed = f"see `polyhal models {shlex.quote(str(place))}`"
    fix = f"name one of {', '.join(f.name for f in firsts[:5])}" if firsts else listed
    raise CorruptFileError(message("open_model", problem, expected="the files of one model", fix=fix))
