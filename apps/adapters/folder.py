"""Folders with adapters in PEFT's form: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from polyhal import Tensor, no_grad, tensor
from polyhal.adapters.fused import Layers, join, split
from polyhal.adapters.lora import adapters, add_lora, target_layers
from polyhal.adapters.settings import LoraSettings
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.models import Stored
from polyhal.nn import Module
from polyhal.serialize import load
from polyhal.utils.files import parse_json, replacing, write_json

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""PEFT's prefix of the paths of a model's layers."""


def save_adapter(
    model: Module,
    folder: str | os.PathLike[str],
    settings: LoraSettings,
    stored: Mapping[str, Stored] | None = None,
) -> Path:
    """Write the adapters of a model, with the settings that they were made with, and return the folder.

    PEFT loads the folder with `PeftModel.from_pretrained`, if the layers of its model have the same paths.
    `stored`, the result of `checkpoint_names`, has the paths of the files of a decoder, whose layers may be fused. Raises
    ValueError for a model without adapters.
    """
    layers: Layers = {
        path: (layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy()) for path, layer in adapters(model)
    }
    if not layers:
        raise ValueError(message("save_adapter", "the model has no adapters", fix="add_lora(model, settings) first"))
    if stored is not None:
        layers, settings = join(layers, settings, stored)
    arrays = {key: values for path, pair in layers.items() for key, values in zip(_keys(path), pair, strict=True)}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with replacing(target / WEIGHTS) as file:
        file.write(save(arrays, metadata={"format": "pt"}))
    write_json(target / SETTINGS, settings.to_json())
    return target


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """The adapters in a folder: `lora_A` (rank, in) and `lora_B` (out, rank) in float32, by the path of the layer."""

    settings: LoraSettings
    layers: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def shape(self, path: str) -> tuple[int, int]:
        """Return the shape (out, in) of a layer's weight."""
        first, second = self.layers[path]
        return second.shape[0], first.shape[1]

    def product(self, path: str) -> np.ndarray:
        """Return `scale * B @ A` (out, in) of a layer, in float32."""
        first, second = self.layers[path]
        product: np.ndarray = (second @ first) * np.float32(self.settings.scale(path))
        return product


def read_adapter(folder: str | os.PathLike[str], stored: Mapping[str, Stored] | None = None) -> AdapterWeights:
    """Read the adapters in a folder of PEFT's or of `save_adapter`; with `stored`, of `checkpoint_names`, by a decoder's paths.

    Raises FileNotFoundError, CorruptFileError, and IncompatibleFileError for settings that are not supported.
    """
    source = Path(folder)
    missing = [name for name in (SETTINGS, WEIGHTS) if not (source / name).is_file()]
    if missing:
        problem = f"{source} has no {' and no '.join(missing)}" if source.is_dir() else f"{source} is not a folder"
        inside = [*source.glob(f"*/{SETTINGS}"), *source.glob(f"*/*/{SETTINGS}")]  # for example a run's last/adapter
        fix = f"use {inside[0].parent}" if inside else ""
        written = "a folder that `polyhal finetune` or PEFT's `save_pretrained` wrote"
        raise FileNotFoundError(message("adapter", problem, expected=written, fix=fix))
    data = parse_json((source / SETTINGS).read_bytes(), source / SETTINGS)
    if not isinstance(data, dict):
        raise CorruptFileError(message("adapter", f"{source / SETTINGS} is not a JSON object", expected="settings"))
    settings = LoraSettings.from_json(data)
    state = load(source / WEIGHTS, device="numpy")
    if not isinstance(state, dict) or not all(isinstance(x, Tensor) for x in state.values()):
        raise CorruptFileError(message("adapter", f"{source / WEIGHTS} has no names", expected="a state"))
    arrays = {str(key): value.to(float32).numpy() for key, value in state.items()}
    paths = sorted({_path(key) for key in arrays})
    expected = {key for path in paths for key in _keys(path)}
    for keys, problem in ((expected - arrays.keys(), "lacks"), (arrays.keys() - expected, "has")):
        if keys:
            text = f"{source / WEIGHTS} {problem} {min(keys)} and {len(keys) - 1} more"
            raise IncompatibleFileError(message("adapter", text, expected="lora_A and lora_B of layers"))
    layers = {}
    for path in paths:
        first, second = (arrays[key] for key in _keys(path))
        rank = settings.rank(path)
        if (first.ndim, second.ndim) != (2, 2) or (first.shape[0], second.shape[1]) != (rank, rank):
            text = f"the weights of {path} in {source / WEIGHTS} are {first.shape} and {second.shape}"
            raise IncompatibleFileError(message("adapter", text, expected=f"({rank}, in) and (out, {rank})"))
        layers[path] = first, second
    if stored is not None:
        layers, settings = split(layers, settings, stored)
    return AdapterWeights(settings, layers)


def load_adapter(
    model: Module, folder: str | os.PathLike[str], stored: Mapping[str, Stored] | None = None
) -> LoraSettings:
    """Add the adapters in a folder of PEFT's or of `save_adapter` to a model, and return their settings.

    `stored` is an argument of `read_adapter`. Raises the errors of `read_adapter`, IncompatibleFileError for adapters that do
    not fit the model, and ValueError if the model has adapters; then the model is as before.
    """
    found = read_adapter(folder, stored)
    targets = target_layers(model, found.settings)
    for paths, problem in (
        (targets.keys() - found.layers.keys(), "lacks"),
        (found.layers.keys() - targets.keys(), "has"),
    ):
        if paths:
            text = f"{folder} {problem} an adapter of {min(paths)}, and of {len(paths) - 1} more layers"
            expected = f"adapters of {len(targets)} layers"
            raise IncompatibleFileError(message("load_adapter", text, expected=expected))
    for path, base in targets.items():
        shape, own = found.shape(path), (base.out_features, base.in_features)
        if shape != own:
            text = f"the adapter of {path} is for a layer (out, in) of {shape}"
            raise IncompatibleFileError(message("load_adapter", text, expected=f"{own}"))
    add_lora(model, found.settings)
    for path, layer in adapters(model):
        for target, values in zip((layer.lora_A, layer.lora_B), found.layers[path], strict=True):
            with no_grad():
                target.weight.copy_(tensor(values, device=target.weight.device))
    return found.settings


def _keys(path: str) -> tuple[str, str]:
    return f"{_PREFIX}{path}.lora_A.weight", f"{_PREFIX}{path}.lora_B.weight"


def _path(key: str) -> str:
    """Return the path of the layer to which a weight belongs."""
    return key.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")[0]
