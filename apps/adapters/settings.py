"""Settings of low-rank adapters, in the form of PEFT's `adapter_config.json`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from polyhal.hal.errors import IncompatibleFileError, message

ALL_LINEAR = "all-linear"

_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "bias": ("none", None),
    "corda_config": (None,),
    "eva_config": (None,),
    "kasa_config": (None,),
    "layer_replication": (None,),
    "layers_pattern": (None, []),
    "layers_to_transform": (None,),
    "loftq_config": ({}, None),
    "lora_bias": (False, None),
    "lora_ga_config": (None,),
    "megatron_config": (None,),
    "modules_to_save": (None, []),
    "monteclora_config": (None,),
    "peft_type": ("LORA",),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, []),
    "use_bdlora": (None, False),
    "use_dora": (False, None),
    "use_qalora": (False, None),
    "velora_config": (None,),
}
"""Supported values of settings for which PEFT supports more."""
_WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping",
        "ensure_weight_tying",
        "inference_mode",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "task_type",
    }
)


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """The linear layers that get adapters, and their ranks. The fields are named as in PEFT's `LoraConfig`.

    Source: Hu et al., arXiv:2106.09685; `use_rslora`: Kalajdzievski, arXiv:2312.03732. Raises ValueError.
    """

    r: int = 8
    """Rank."""
    lora_alpha: float = 8
    """The adapter's product is multiplied by `lora_alpha / r`."""
    lora_dropout: float = 0.0
    target_modules: tuple[str, ...] | str = ALL_LINEAR
    """Names of layers or ends of their paths; a regular expression for whole paths; or all linear layers but `lm_head`."""
    exclude_modules: tuple[str, ...] | str | None = None
    use_rslora: bool = False
    """Multiply by `lora_alpha / sqrt(r)`."""
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    """Ranks of single layers, by the end of their path, as a regular expression."""
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    init_lora_weights: bool | str = True
    """True for the initial values of a linear layer, "gaussian" for a normal distribution of deviation `1 / r`."""
    base_model_name_or_path: str | None = None
    fan_in_fan_out: bool | None = False
    """True if weights of the adapted layers are (in, out) in PyTorch's model, which changes nothing in adapters."""

    def __post_init__(self) -> None:
        ranks = (self.r, *self.rank_pattern.values())
        if any(type(r) is not int or r < 1 for r in ranks):
            raise ValueError(message("LoraSettings", f"ranks are {ranks}", expected="whole numbers of 1 or more"))
        if not 0 <= self.lora_dropout < 1:
            raise ValueError(message("LoraSettings", f"lora_dropout is {self.lora_dropout}", expected="0 to 1"))
        if self.init_lora_weights not in (True, "gaussian"):
            problem = f"init_lora_weights is {self.init_lora_weights!r}"
            raise ValueError(message("LoraSettings", problem, expected='True or "gaussian"'))
        for names in (self.target_modules, self.exclude_modules):
            if isinstance(names, str) and names != ALL_LINEAR:
                _compiled(names)
        for pattern in (*self.rank_pattern, *self.alpha_pattern):
            _compiled(pattern)

    def targets(self, path: str) -> bool:
        """Return whether the linear layer at a path gets an adapter."""
        if self.exclude_modules is not None and _named(path, self.exclude_modules):
            return False
        if self.target_modules == ALL_LINEAR:
            return path.split(".")[-1] != "lm_head"
        return _named(path, self.target_modules)

    def rank(self, path: str) -> int:
        """Return the rank of the adapter of a layer."""
        rank: int = _matching(self.rank_pattern, path, self.r)
        return rank

    def alpha(self, path: str) -> float:
        """Return the `lora_alpha` of a layer."""
        alpha: float = _matching(self.alpha_pattern, path, self.lora_alpha)
        return alpha

    def scale(self, path: str) -> float:
        """Return the factor of the adapter's product."""
        return self.alpha(path) / self.divisor(self.rank(path))

    def divisor(self, rank: int) -> float:
        """Return the number by which alpha is divided."""
        return math.sqrt(rank) if self.use_rslora else rank

    def of_layers(self, layers: Mapping[str, tuple[int, float]], paths: Collection[str]) -> LoraSettings:
        """Return settings of adapters of these layers among the layers of a model, with their ranks and alphas."""
        targets: set[str] = set()
        for path in layers:
            alike = [p for p in paths if _last(p) == _last(path)]
            targets.add(_last(path) if all(p in layers for p in alike) else path)
        ranks = _pattern({path: rank for path, (rank, _) in layers.items()}, self.r)
        alphas = _pattern({path: alpha for path, (_, alpha) in layers.items()}, self.lora_alpha)
        names = tuple(sorted(targets))
        return replace(self, target_modules=names, exclude_modules=None, rank_pattern=ranks, alpha_pattern=alphas)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as PEFT's `adapter_config.json` has them."""
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**own, "bias": "none", "inference_mode": True, "peft_type": "LORA"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoraSettings:
        """Read `adapter_config.json`, loaded as a dictionary.

        Raises IncompatibleFileError for a setting that is not supported or whose effect is unknown.
        """
        own = {f.name for f in fields(cls)}
        for name, value in {"peft_type": None, **data}.items():
            if name in _UNSUPPORTED and value not in _UNSUPPORTED[name]:
                expected = " or ".join(repr(v) for v in _UNSUPPORTED[name])
                raise IncompatibleFileError(message("LoraSettings", f"{name} is {value!r}", expected=expected))
        unknown = data.keys() - own - _UNSUPPORTED.keys() - _WITHOUT_EFFECT
        if unknown and any(data[name] for name in unknown):
            problem = f"unknown settings {', '.join(sorted(name for name in unknown if data[name]))}"
            raise IncompatibleFileError(message("LoraSettings", problem, expected=f"settings among {sorted(own)}"))
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in own}
        try:
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise IncompatibleFileError(message("LoraSettings", f"the settings are unusable: {error}")) from error


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _pattern(values: Mapping[str, Any], default: Any) -> dict[str, Any]:
    """Return values of layers by the last name if it determines them, else by path; without values that are the default."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        alike = {v for p, v in values.items() if _last(p) == _last(path)}
        if alike != {default}:
            found[_last(path) if len(alike) == 1 else re.escape(path)] = value
    return found


def _named(path: str, names: tuple[str, ...] | str) -> bool:
    if isinstance(names, str):
        return _compiled(names).fullmatch(path) is not None
    return any(path == name or path.endswith(f".{name}") for name in names)


def _matching(pattern: Mapping[str, Any], path: str, default: Any) -> Any:
    """Return the first value whose key matches the end of a path, from the beginning of a name in it."""
    for key, value in pattern.items():
        if _compiled(rf"(.*\.)?({key.removeprefix('^')})").fullmatch(path):
            return value
    return default


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        problem = f"{pattern!r} is no regular expression: {error}"
        raise ValueError(message("LoraSettings", problem, expected="a regular expression of paths")) from error
