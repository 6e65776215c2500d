"""Adapters of a decoder's layers as adapters of a checkpoint's layers, which may compute several of the decoder's at once.

In the adapter of a fused layer, parts share `lora_A` and have rows of `lora_B`. Parts with different `lora_A` become
an adapter whose rank is the sum of theirs, with `lora_B` in blocks. Products are equal both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from polyhal.adapters.settings import LoraSettings
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.models import Stored, find_name

Layers = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""`lora_A` (rank, in) and `lora_B` (out, rank), by the path of the layer."""


def split(
    layers: Layers, settings: LoraSettings, stored: Mapping[str, Stored]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], LoraSettings]:
    """Return the adapters of a decoder's layers and their settings, for adapters of a checkpoint's layers.

    `stored` is the result of `checkpoint_names`. Paths of the decoder's own are allowed, too. Raises IncompatibleFileError for
    a layer that the decoder lacks.
    """
    named = {f"{path}.weight": path for path in layers}
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    alphas: dict[str, float] = {}
    used, places = set(), _layers(stored)
    for path, place in places.items():
        theirs = path if path in layers else named.get(find_name(place.names[0], named) or "")
        if theirs is None or len(place.names) > 1:
            continue
        first, second = layers[theirs]
        if theirs == path or place.size is None:
            found[path] = first, second
        else:
            expected = _rows(place.size * (len(second) // (place.period or 1)), place, places)
            if len(second) != expected:
                text = f"the adapter of {theirs} has {len(second)} rows"
                raise IncompatibleFileError(message("adapter", text, expected=str(expected)))
            found[path] = first, second[place.rows(len(second))]
        alphas[path] = settings.alpha(theirs)
        used.add(theirs)
    if unknown := sorted(layers.keys() - used):
        problem = f"{unknown[0]} and {len(unknown) - 1} more layers have adapters"
        raise IncompatibleFileError(message("adapter", problem, expected="linear layers of the model, except experts"))
    if used == found.keys():  # the same layers in both
        return found, settings
    return found, settings.of_layers({p: (len(a), alphas[p]) for p, (a, _) in found.items()}, places)


def join(
    layers: Layers, settings: LoraSettings, stored: Mapping[str, Stored]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], LoraSettings]:
    """Return the adapters of a checkpoint's layers and their settings, for adapters of a decoder's layers."""
    groups: dict[str, list[str]] = {}
    members = _layers(stored)
    for path in layers:
        place = members.get(path)
        if place is None or len(place.names) > 1:
            problem = f"{path} has an adapter"
            raise IncompatibleFileError(message("adapter", problem, expected="linear layers of the model's files"))
        groups.setdefault(place.names[0].removesuffix(".weight"), []).append(path)
    if all(paths == [theirs] for theirs, paths in groups.items()):
        return dict(layers), settings
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    stated: dict[str, tuple[int, float]] = {}
    for theirs, paths in groups.items():
        places = [members[path] for path in paths]
        factors = [layers[path][0] for path in paths]
        scales = [settings.scale(path) for path in paths]
        same = all(np.array_equal(a, factors[0]) for a in factors) and len(set(scales)) == 1
        if places[0].size is None:
            found[theirs] = layers[paths[0]]
        else:
            first = factors[0] if same else np.concatenate(factors)
            rows = _rows(len(layers[paths[0]][1]), places[0], members)
            second = np.zeros((rows, len(first)), np.float32)
            column = 0
            for path, place, scale in zip(paths, places, scales, strict=True):
                part = layers[path][1] * np.float32(scale / scales[0])
                second[place.rows(len(second)), column : column + part.shape[1]] = part
                column += 0 if same else part.shape[1]
            found[theirs] = first, second
        rank = len(found[theirs][0])
        stated[theirs] = rank, scales[0] * settings.divisor(rank)
    names = {place.names[0].removesuffix(".weight") for place in members.values()}
    transposed = any(members[path].transposed for path in layers)
    return found, replace(settings.of_layers(stated, names), fan_in_fan_out=transposed)


def _layers(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return places by the path of the layer. Among them are norms and tables of tokens."""
    found = {name.removesuffix(".weight"): place for name, place in stored.items() if name.endswith(".weight")}
    if found["lm_head"].names == found["model.embed_tokens"].names:  # weights are shared, adapters are not
        found["lm_head"] = Stored(("lm_head.weight",))
    return found


def _rows(part: int, place: Stored, places: Mapping[str, Stored]) -> int:
    """Return the rows of a fused layer, of which one part has `part` rows at a place."""
    if place.size is not None and place.period is not None:
        return part // place.size * place.period
    return max(other.start + (other.size or 0) for other in places.values() if other.names == place.names)
