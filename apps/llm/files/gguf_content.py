"""The content of a GGUF file that is about to be written: the metadata and tensors of another file, or of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np

from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.llm.files.gguf_config import RULES, MetadataRule
from polyhal.llm.files.gguf_file import GgufFile
from polyhal.llm.files.gguf_metadata import (
    architecture_for,
    check_round_trip,
    metadata_of,
    rotary_tensors,
    within_plain_context,
)
from polyhal.llm.files.gguf_model import stored_tensors
from polyhal.llm.files.gguf_names import FUSED, layer_of, name_in_file, rows_of_pairs
from polyhal.llm.files.model_files import ModelFiles, StoredWeight
from polyhal.models import DecoderConfig
from polyhal.text import gguf_from_tokenizer

_UNSIGNED, _SIGNED, _FLOAT, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_SKIPPED = {"general.architecture", "general.file_type", "general.quantization_version", "general.alignment"}
"""Keys that the writer of files sets."""


@dataclass(frozen=True, slots=True)
class GgufContent:
    """Metadata and tensors in the order of a file. Tensors are read when they are used."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredWeight]
    """Tensors by name."""
    types: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Numbers of the types of values, and of the items of lists, where a file states them."""
    notes: Sequence[str] = ()
    """Properties of the source that the file cannot have."""

    @property
    def architecture(self) -> str:
        """The architecture that the file names."""
        return str(self.metadata["general.architecture"])

    def values(self) -> list[tuple[str, Any, int, int | None]]:
        """Return key, value, number of its type and of its items' type."""
        found = []
        for key, value in self.metadata.items():
            if key not in _SKIPPED:
                plain = value.tolist() if isinstance(value, np.ndarray) else value
                found.append((key, plain, *(self.types.get(key) or _type_of(plain))))
        return found


def content_of_file(file: GgufFile) -> GgufContent:
    """Return the content of a file. Raises IncompatibleFileError for one of several parts."""
    if file.metadata.get("split.count", 1) not in (0, 1):
        problem = f"{file.path} is one of several parts"
        raise IncompatibleFileError(message("quantize", problem, expected="one whole file"))
    return GgufContent(file.metadata, stored_tensors(file), file.types)


def content_of_model(files: ModelFiles) -> GgufContent:
    """Return the content for the model of a folder.

    Raises IncompatibleFileError, with the names of settings that the format cannot state, and for a tokenizer of another kind.
    """
    from polyhal.llm.blocks import dequantized

    architecture = architecture_for(files.config)
    full = DecoderConfig.from_json(files.config)
    config = within_plain_context(full, architecture)
    notes = []
    if config.max_position_embeddings < full.max_position_embeddings:
        length = config.max_position_embeddings
        notes.append(f"context {length}: the architecture's files have no sliding window")
    metadata = {**metadata_of(config, architecture), "general.type": "model", "general.name": files.name}
    tensors = {
        name: StoredWeight(values.shape, "f32", values.nbytes, partial(np.asarray, values))
        for name, values in rotary_tensors(config).items()
    }
    rule = RULES[architecture]
    for name, parameters in _parameters_by_tensor(files.weights, config, rule).items():
        parts = [files.weights[p] for p in parameters]
        shape = (sum(w.shape[0] for w in parts), *parts[0].shape[1:])
        if name.endswith("ffn_gate_inp_shexp.weight"):
            shape = shape[1:]

        def read(
            parts: Sequence[StoredWeight] = parts,
            parameters: Sequence[str] = parameters,
            shape: tuple[int, ...] = shape,
        ) -> np.ndarray:
            found = [_stored_form(p, dequantized(w), config, rule) for p, w in zip(parameters, parts, strict=True)]
            return (found[0] if len(found) == 1 else np.concatenate(found)).reshape(shape)

        kind = parts[0].format if parts[0].format in ("f32", "f16", "bf16") else "f32"
        tensors[name] = StoredWeight(shape, kind, prod(shape) * (4 if kind == "f32" else 2), read)
    check_round_trip(config, metadata, tensors, str(files.path))
    metadata |= _vocabulary(files, config, notes) | _texts(files)
    return GgufContent(metadata, tensors, {}, notes)


def _parameters_by_tensor(
    weights: Mapping[str, StoredWeight], config: DecoderConfig, rule: MetadataRule
) -> dict[str, list[str]]:
    """Return the parameters of each tensor, in the order of their rows."""
    found: dict[str, list[str]] = {}
    for parameter in weights:
        if parameter == "lm_head.weight" and config.tie_word_embeddings:
            continue
        found.setdefault(name_in_file(parameter, config, rule.fused), []).append(parameter)
    for name, parameters in found.items():
        if len(parameters) > 1:
            order = FUSED[name.split(".")[-2]]
            parameters.sort(key=lambda p, order=order: order.index(layer_of(p)))  # type: ignore[misc]
    return found


def _stored_form(parameter: str, values: np.ndarray, config: DecoderConfig, rule: MetadataRule) -> np.ndarray:
    """Return a parameter's values as files of an architecture have them."""
    if rule.neighbours_rotate and layer_of(parameter) in ("q_proj", "k_proj"):
        rows = rows_of_pairs(0, len(values), config.head_width)
        return values[np.argsort(rows)]
    if rule.norms_plus_one and "norm" in parameter and parameter.endswith(".weight"):
        return values.astype(np.float32) + np.float32(1)
    return values


def _vocabulary(files: ModelFiles, config: DecoderConfig, notes: list[str]) -> dict[str, Any]:
    try:
        tokenizer = files.load_tokenizer()
    except FileNotFoundError:
        notes.append("no vocabulary: the folder has no tokenizer.json")
        return {"tokenizer.ggml.model": "no_vocab"}
    found = gguf_from_tokenizer(tokenizer, config.vocab_size)
    stated = files.generation.get("eos_token_id")
    ends = [e for e in (stated if isinstance(stated, list) else [stated]) if type(e) is int]
    others = [e for e in ends if e != found.get("tokenizer.ggml.eos_token_id")]
    return found | {f"tokenizer.ggml.{role}_token_id": end for role, end in zip(("eot", "eom"), others, strict=False)}


def _texts(files: ModelFiles) -> dict[str, Any]:
    """Return the chat templates."""
    named = {name: text for name, text in files.chat_templates.items() if name != "default"}
    found = {f"tokenizer.chat_template.{name}": text for name, text in named.items()}
    if named:
        found["tokenizer.chat_templates"] = list(named)  # type: ignore[assignment]
    if "default" in files.chat_templates:
        found["tokenizer.chat_template"] = files.chat_templates["default"]
    return found


def _type_of(value: Any) -> tuple[int, int | None]:
    """Return the number of a value's type, and of the type of a list's items."""
    if isinstance(value, list):
        return _ARRAY, _type_of(value[0])[0] if not isinstance(value[0], int) else _SIGNED
    for kind, number in ((bool, _BOOL), (int, _UNSIGNED), (float, _FLOAT), (str, _STRING)):
        if isinstance(value, kind):
            return number, None
    raise TypeError(f"metadata of type {type(value).__name__}")
