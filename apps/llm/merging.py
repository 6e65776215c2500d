"""Models with low-rank adapters merged into their weights, as folders of Hugging Face's form, written tensor by tensor."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from polyhal import load as load_state
from polyhal.adapters import AdapterWeights, read_adapter
from polyhal.hal.errors import IncompatibleFileError, SettingError, message
from polyhal.llm.blocks import dequantized
from polyhal.llm.files import ModelFiles, open_model
from polyhal.models import Stored, checkpoint_names, find_name
from polyhal.utils.files import write_json

_DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
_BY_FORMAT = {"f32": "float32", "f64": "float32", "f16": "float16", "bf16": "bfloat16"}
_SHARD = 2 << 30
"""Largest number of bytes of a file of weights; the host holds the tensors of one."""
_COPIED = (".json", ".txt", ".model", ".jinja", ".tiktoken")
_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the written folder."""

    name: str
    nbytes: int
    """Bytes in the source, or of float16 in place of blocks."""
    read: Callable[[], np.ndarray]


def merge_adapter(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    target: str | os.PathLike[str],
    dtype: str | None = None,
    *,
    shard_bytes: int = _SHARD,
    progress: Callable[[int, int, str], None] = lambda done, count, name: None,
) -> Path:
    """Write a model with an adapter merged into its weights as a folder of Hugging Face's form, and return the folder.

    Floats keep the dtype of the source, unless `dtype` is given; weights in formats of blocks become float16. Settings and
    tokenizer are copied. `config.json` is written last: without it, the folder is not a model. Raises SettingError for a
    folder with files or an unknown dtype, IncompatibleFileError for an adapter that does not fit, and the errors of
    `open_model`.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise SettingError(message("merge", f"dtype {dtype}", expected=" or ".join(_DTYPES)))
    files, folder = open_model(model), Path(target)
    check_target(folder)
    added = read_adapter(adapter, checkpoint_names(files.config))
    _check(files, added)
    tensors = _of_folder(files, added, dtype) if files.path.is_dir() and _has_config(files) else None
    if tensors is None:
        tensors = _of_parameters(files, added, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = _write_shards(folder, tensors, shard_bytes, progress)
    _write_texts(files, folder)
    config = {k: v for k, v in files.config.items() if k not in ("dtype", "torch_dtype")}
    write_json(folder / "config.json", {**config, "dtype": max(kinds, key=kinds.count)})
    return folder


def check_target(folder: Path) -> None:
    """Raise SettingError for a folder that has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError(message("merge", f"{folder} exists", expected="a new or an empty folder"))


def _has_config(files: ModelFiles) -> bool:
    return (files.path / "config.json").is_file()


def _check(files: ModelFiles, added: AdapterWeights) -> None:
    """Raise IncompatibleFileError for an adapter of layers that the model lacks."""
    for path in added.layers:
        weight = files.weights.get(f"{path}.weight")
        found = None if weight is None else weight.shape
        if found != added.shape(path):
            problem = f"{path} has an adapter of shape {added.shape(path)}"
            raise IncompatibleFileError(message("merge", problem, expected=f"{found} as in {files.path}"))
    if "lm_head" in added.layers and files.config.get("tie_word_embeddings"):
        problem = "lm_head has an adapter, and its weights are the table of tokens"
        raise IncompatibleFileError(message("merge", problem, fix="use --adapter without merging"))


def _of_folder(files: ModelFiles, added: AdapterWeights, dtype: str | None) -> list[_Tensor]:
    """Return all tensors of a folder, also tensors that the decoder does not use."""
    state = load_state(files.path, "numpy", lazy=True)
    changes: dict[str, list[tuple[Stored, str]]] = {}
    for name, stored in checkpoint_names(files.config).items():
        if name.removesuffix(".weight") in added.layers:
            theirs = find_name(stored.names[0], state)
            changes.setdefault(theirs or stored.names[0], []).append((stored, name.removesuffix(".weight")))

    def tensor(name: str) -> _Tensor:
        def read() -> np.ndarray:
            stored_values = np.asarray(state[name].numpy())
            values = stored_values.astype(np.float32) if name in changes else stored_values
            for stored, path in changes.get(name, ()):
                stored.write(values, stored.part(values) + added.product(path))
            is_float = str(stored_values.dtype) in _DTYPES
            return values.astype(_DTYPES[dtype] if dtype is not None and is_float else stored_values.dtype, copy=False)

        return _Tensor(name, prod(state.shape_of(name) or ()) * size, read)

    size = 4 if files.format in ("f32", "f64") else 2
    return [tensor(name) for name in state]


def _of_parameters(files: ModelFiles, added: AdapterWeights, dtype: str | None) -> list[_Tensor]:
    """Return the tensors of a checkpoint, made of the decoder's parameters."""
    members: dict[str, list[tuple[str, Stored, int]]] = {}
    for name, stored in checkpoint_names(files.config).items():
        if not (name == "lm_head.weight" and files.config.get("tie_word_embeddings")):
            for i, theirs in enumerate(stored.names):
                members.setdefault(theirs, []).append((name, stored, i))

    def values_of(name: str, stored: Stored, index: int) -> np.ndarray:
        values = dequantized(files.weights[name]).astype(np.float32)
        path = name.removesuffix(".weight")
        if path in added.layers:
            values = values + added.product(path)
        return values if len(stored.names) == 1 else values[index]

    def tensor(theirs: str, parts: list[tuple[str, Stored, int]]) -> _Tensor:
        shapes = [files.weights[n].shape[len(s.names) > 1 :] for n, s, _ in parts]
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        shape = shape[::-1] if parts[0][1].transposed else shape
        kind = np.dtype(_DTYPES[dtype or _BY_FORMAT.get(files.weights[parts[0][0]].format, "float16")])

        def read() -> np.ndarray:
            whole = np.empty(shape, np.float32)
            for name, stored, index in parts:
                stored.write(whole, values_of(name, stored, index))
            return whole.astype(kind, copy=False)

        return _Tensor(theirs, prod(shape) * kind.itemsize, read)

    return [tensor(theirs, parts) for theirs, parts in members.items()]


def _write_shards(
    folder: Path, tensors: list[_Tensor], limit: int, progress: Callable[[int, int, str], None]
) -> list[str]:
    """Write files of weights, with an index if there are several. Returns the dtypes of all tensors."""
    shards = list(_shards(tensors, limit))
    places: dict[str, str] = {}
    kinds: list[str] = []
    total = 0
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        arrays: dict[str, np.ndarray] = {}
        for t in shard:
            progress(len(kinds), len(tensors), t.name)
            arrays[t.name] = np.ascontiguousarray(t.read())
            kinds.append(str(arrays[t.name].dtype))
            total += arrays[t.name].nbytes
        save_file(arrays, folder / file, {"format": "pt"})
        places |= dict.fromkeys(arrays, file)
    if len(shards) > 1:
        write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": places})
    progress(len(tensors), len(tensors), "")
    return kinds


def _shards(tensors: list[_Tensor], limit: int) -> Iterator[list[_Tensor]]:
    """Divide tensors among files of at most `limit` bytes; a larger tensor has a file of its own."""
    shard: list[_Tensor] = []
    used = 0
    for t in tensors:
        if shard and used + t.nbytes > limit:
            yield shard
            shard, used = [], 0
        shard.append(t)
        used += t.nbytes
    yield shard


def _write_texts(files: ModelFiles, folder: Path) -> None:
    """Copy the tokenizer, chat templates and defaults of generation, or write them from a GGUF file's."""
    if files.path.is_dir() and _has_config(files):
        for path in files.path.iterdir():
            if path.name != "config.json" and path.suffix in _COPIED and not path.name.endswith(".index.json"):
                shutil.copyfile(path, folder / path.name)
        if (files.path / _TEMPLATES).is_dir():
            shutil.copytree(files.path / _TEMPLATES, folder / _TEMPLATES)
        return
    if files.generation:
        write_json(folder / "generation_config.json", dict(files.generation))
    try:
        tokenizer = json.loads(files.load_tokenizer().to_json())
    except IncompatibleFileError:  # a file without a vocabulary
        return
    settings: Mapping[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer["settings"]}
    templates = [{"name": name, "template": text} for name, text in files.chat_templates.items()]
    if templates:
        settings = {**settings, "chat_template": templates[0]["template"] if len(templates) == 1 else templates}
    write_json(folder / "tokenizer.json", tokenizer["tokenizer"])
    write_json(folder / "tokenizer_config.json", settings)
