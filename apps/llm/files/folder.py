"""Folders of Hugging Face's form: config.json, generation_config.json, tokenizer and safetensors, also in shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from polyhal import load
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.llm.files.generation_settings import checked_generation
from polyhal.llm.files.model_files import ModelFiles, StoredWeight
from polyhal.llm.files.packed import PackedWeights, packing_of
from polyhal.models import Stored, checkpoint_names, find_name
from polyhal.serialize import LazyState
from polyhal.text import PretrainedTokenizer, text_of
from polyhal.utils.files import parse_json

_FORMATS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_MORE_TEMPLATES = "additional_chat_templates"


def open_folder(folder: Path) -> ModelFiles:
    """Open a folder. Raises CorruptFileError, with the name of a missing file or tensor, and ValueError for its settings."""
    config = read_object(folder / "config.json")
    packing = packing_of(config["quantization_config"], folder) if config.get("quantization_config") else None
    config.pop("quantization_config", None)
    try:
        state = load(folder, "numpy", lazy=True)
    except FileNotFoundError:
        expected = "model.safetensors, or an index of shards"
        raise CorruptFileError(message("open_model", f"{folder} has no weights", expected=expected)) from None
    _check_layers(config, len(state), folder)
    kind = _format_of(config, state)
    packed = None if packing is None else PackedWeights(state, packing)
    weights = {name: _weight(name, s, state, packed, folder, kind) for name, s in checkpoint_names(config).items()}
    generation = folder / "generation_config.json"
    return ModelFiles(
        folder,
        config,
        weights,
        partial(PretrainedTokenizer.from_folder, folder),
        _templates(folder),
        checked_generation(read_object(generation), generation) if generation.is_file() else {},
        str(config.get("_name_or_path") or folder.resolve().name),
    )


def _check_layers(config: Mapping[str, Any], tensors: int, folder: Path) -> None:
    """Raise CorruptFileError for more layers than tensors, before a list of the layers is made."""
    inner = config.get("text_config")
    for settings in (config, inner if isinstance(inner, Mapping) else {}):
        for name in ("num_hidden_layers", "n_layer"):
            layers = settings.get(name)
            if type(layers) is int and layers > tensors:
                problem = f"{name} of {folder} is {layers}"
                raise CorruptFileError(
                    message("open_model", problem, expected=f"at most {tensors}, the number of tensors")
                )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises CorruptFileError."""
    found = parse_json(path.read_bytes(), path)
    if not isinstance(found, dict):
        raise CorruptFileError(message("open_model", f"{path} has a {type(found).__name__}", expected="an object"))
    return found


def _weight(
    name: str, stored: Stored, state: LazyState, packed: PackedWeights | None, folder: Path, kind: str
) -> StoredWeight:
    layer = None if packed is None else packed.find(stored.names[0])
    if packed is not None and layer is not None:
        return _packed_weight(name, stored, packed, folder)
    sources = []
    for theirs in stored.names:
        found = find_name(theirs, state)
        if found is None:
            raise CorruptFileError(message("open_model", f"{folder} has no tensor {theirs}", expected=f"{name}"))
        sources.append(found)
    shape = _shape(stored, state.shape_of(sources[0]) or ())
    by_their_name = dict(zip(stored.names, sources, strict=True))

    def read() -> np.ndarray:
        return stored.read(lambda theirs: np.asarray(state[by_their_name[theirs]].numpy()))

    return StoredWeight(shape, kind, prod(shape) * {"f32": 4, "f64": 8}.get(kind, 2), read)


def _packed_weight(name: str, stored: Stored, packed: PackedWeights, folder: Path) -> StoredWeight:
    layers = {theirs: packed.find(theirs) for theirs in stored.names}
    known = {theirs: layer for theirs, layer in layers.items() if layer is not None}
    if len(known) < len(layers):
        missing = next(theirs for theirs, layer in layers.items() if layer is None)
        raise CorruptFileError(message("open_model", f"{folder} has no packed tensor {missing}", expected=f"{name}"))
    first = known[stored.names[0]]
    if stored.transposed:
        problem = f"{folder} has {first}.qweight with packed rows of a transposed weight"
        raise IncompatibleFileError(message("open_model", problem, expected="a GGUF file of this model"))
    whole = packed.shape(first)
    shape = _shape(stored, whole)
    nbytes = packed.nbytes(first) * prod(shape) // prod(whole)
    return StoredWeight(shape, packed.format(first), nbytes, lambda: stored.read(lambda n: packed.read(known[n])))


def _shape(stored: Stored, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a parameter that is stored in tensors of the shape `whole`."""
    shape = whole[::-1] if stored.transposed else whole
    if stored.size is not None:
        shape = (stored.size * (shape[0] // stored.period if stored.period else 1), *shape[1:])
    return (len(stored.names), *shape) if len(stored.names) > 1 else shape


def _format_of(config: Mapping[str, Any], state: LazyState) -> str:
    """Return the format of the weights as the settings state it, or else the format of the smallest tensor."""
    stated = config.get("dtype") or config.get("torch_dtype")
    if isinstance(stated, str) and stated in _FORMATS:
        return _FORMATS[stated]
    smallest = min(state, key=lambda name: prod(state.shape_of(name) or (1 << 62,)), default=None)
    dtype = None if smallest is None else state[smallest].dtype
    return _FORMATS.get(str(dtype), "f32")


def _templates(folder: Path) -> dict[str, str]:
    """Return the chat templates of a folder by name."""
    found: dict[str, str] = {}
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        found |= named_templates(read_object(settings).get("chat_template"))
    for path in (folder / "chat_template.jinja", *sorted((folder / _MORE_TEMPLATES).glob("*.jinja"))):
        if path.is_file():
            found["default" if path.parent == folder else path.stem] = text_of(path)
    return found


def named_templates(template: object) -> dict[str, str]:
    """Return the templates of a setting: one text, or a list of texts with names."""
    if isinstance(template, str):
        return {"default": template}
    rows = template if isinstance(template, list) else []
    return {
        str(row["name"]): row["template"]
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("template"), str) and isinstance(row.get("name"), str)
    }
