"""Folders with adapters in PEFT's form: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from polyhal import Tensor, no_grad
from polyhal.adapters.lora import adapters, add_lora
from polyhal.adapters.settings import LoraSettings
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.nn import Module
from polyhal.serialize import load
from polyhal.utils.files import parse_json, replacing, write_json

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""PEFT's prefix of the paths of a model's layers."""


def save_adapter(model: Module, folder: str | os.PathLike[str], settings: LoraSettings) -> Path:
    """Write the adapters of a model, with the settings that they were made with, and return the folder.

    PEFT loads the folder with `PeftModel.from_pretrained`, if the layers of its model have the same paths. Raises ValueError
    for a model without adapters.
    """
    arrays: dict[str, np.ndarray] = {}
    for path, layer in adapters(model):
        for name in ("lora_A", "lora_B"):
            arrays[f"{_PREFIX}{path}.{name}.weight"] = getattr(layer, name).weight.numpy()
    if not arrays:
        raise ValueError(message("save_adapter", "the model has no adapters", fix="add_lora(model, settings) first"))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with replacing(target / WEIGHTS) as file:
        file.write(save(arrays, metadata={"format": "pt"}))
    write_json(target / SETTINGS, settings.to_json())
    return target


def load_adapter(model: Module, folder: str | os.PathLike[str]) -> LoraSettings:
    """Add the adapters in a folder of PEFT's or of `save_adapter` to a model, and return their settings.

    Raises FileNotFoundError, CorruptFileError, IncompatibleFileError for settings that are not supported, and for adapters
    that do not fit the model, and ValueError if the model has adapters.
    """
    source = Path(folder)
    data = parse_json((source / SETTINGS).read_bytes(), source / SETTINGS)
    if not isinstance(data, dict):
        raise CorruptFileError(message("load_adapter", f"{source / SETTINGS} is no JSON object", expected="settings"))
    settings = LoraSettings.from_json(data)
    state = load(source / WEIGHTS, device="numpy")
    add_lora(model, settings)
    expected: dict[str, Tensor] = {}
    for path, layer in adapters(model):
        for name in ("lora_A", "lora_B"):
            expected[f"{_PREFIX}{path}.{name}.weight"] = getattr(layer, name).weight
    _check(source, state, expected)
    with no_grad():
        for key, weight in expected.items():
            weight.copy_(state[key].to(float32))
    return settings


def _check(source: Path, state: object, expected: dict[str, Tensor]) -> None:
    if not isinstance(state, dict):
        raise CorruptFileError(message("load_adapter", f"{source / WEIGHTS} has no names", expected="a state"))
    for names, problem in ((expected.keys() - state.keys(), "lacks"), (state.keys() - expected.keys(), "has")):
        if names:
            text = f"{source / WEIGHTS} {problem} {sorted(names)[0]} and {len(names) - 1} more"
            raise IncompatibleFileError(message("load_adapter", text, expected=f"{len(expected)} weights of adapters"))
    for key, weight in expected.items():
        if tuple(state[key].shape) != tuple(weight.shape):
            text = f"{key} is {tuple(state[key].shape)}"
            raise IncompatibleFileError(message("load_adapter", text, expected=str(tuple(weight.shape))))
