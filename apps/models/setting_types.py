"""Types of settings in `config.json`, which follow from the defaults of an architecture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyhal.hal.errors import message

_LARGEST = 1 << 31
_LISTS = ("layer_types", "no_rope_layers", "mlp_only_layers")
_TEXTS = ("hidden_activation", "cache_implementation")
_OBJECTS = ("rope_scaling", "rope_parameters", "pruned_heads")


def check_types(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting whose value has another type than its default, or is absurdly large.

    Without a default it is a number, true or false, or of the form that is known of the setting.
    """
    for setting in given.keys() & defaults.keys():
        value, default = given[setting], defaults[setting]
        if value is None:
            continue
        expected, right = _expected(setting, value, default)
        if not right:
            raise ValueError(message(name, f"{setting} is {value!r:.80}", expected=expected))


def check_numbers(name: str, settings: Mapping[str, Any], lists: tuple[str, ...], others: tuple[str, ...]) -> None:
    """Raise ValueError for a setting that is not a number, or a list of numbers if it is in `lists`; `others` are free."""
    for setting, value in settings.items():
        if value is None or setting in others:
            continue
        numbers = value if setting in lists and isinstance(value, (list, tuple)) else [value]
        if not all(_is_number(v) for v in numbers):
            expected = "a list of numbers" if setting in lists else "a number"
            raise ValueError(message(name, f"{setting} is {value!r:.80}", expected=expected))


def _expected(setting: str, value: Any, default: Any) -> tuple[str, bool]:
    """Return the expected type of a setting in words, and whether a value has it."""
    if setting in _LISTS or isinstance(default, (list, tuple)):
        plain = isinstance(value, (list, tuple)) and all(isinstance(v, (str, int)) for v in value)
        return "a list of names or numbers", plain
    if setting in _OBJECTS or isinstance(default, Mapping):
        return "an object", isinstance(value, Mapping)
    if isinstance(default, bool):
        return "true or false", isinstance(value, bool)
    if isinstance(default, str):
        return "a text", isinstance(value, str)
    if isinstance(default, int):
        return f"an integer below {_LARGEST}", type(value) is int and abs(value) < _LARGEST
    if setting in _TEXTS or setting.startswith("summary_"):
        return "a text, a number, or true or false", isinstance(value, str) or _is_number(value)
    return f"a number below {_LARGEST}", _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < _LARGEST
