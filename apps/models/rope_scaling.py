"""Rotary frequencies for contexts longer than in training, named as in Hugging Face's configurations.

Sources: Chen et al., arXiv:2306.15595 (linear); Peng et al., arXiv:2309.00071 (yarn); Meta's Llama 3.1 (llama3); Ding et al.,
arXiv:2402.13753 (longrope).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from polyhal.hal.errors import message
from polyhal.models.setting_types import check_numbers

_NEEDED: dict[str, tuple[str, ...]] = {
    "linear": (),
    "dynamic": (),
    "llama3": ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": ("original_max_position_embeddings",),
    "longrope": ("original_max_position_embeddings", "short_factor", "long_factor"),
}
"""Settings that each kind requires in addition to `factor`."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rule for rotary frequencies other than `theta**(-2 i / dim)`. The fields are named as in Hugging Face's `config.json`.

    Raises ValueError for another `rope_type`, and for settings that do not fit it.
    """

    rope_type: str
    factor: float
    original_max_position_embeddings: int | None = None
    """Number of positions in training; for llama3, yarn and longrope."""
    low_freq_factor: float | None = None
    """For llama3: wavelengths above the original context divided by this are stretched by `factor`."""
    high_freq_factor: float | None = None
    """For llama3: wavelengths below the original context divided by this remain."""
    beta_fast: float = 32.0
    """For yarn: frequencies with more turns than this in the original context remain."""
    beta_slow: float = 1.0
    """For yarn: frequencies with fewer turns than this are divided by `factor`."""
    attention_factor: float | None = None
    """For yarn and longrope: the factor of cosines and sines; by default it follows from `factor`."""
    mscale: float | None = None
    mscale_all_dim: float | None = None
    """For yarn, if both are given: their quotient of logarithms is the factor of cosines and sines."""
    truncate: bool = True
    """For yarn: whether the ends of the transition are whole numbers."""
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None
    """For longrope: divisors of the frequencies of sequences up to the original context, and of longer ones."""

    def __post_init__(self) -> None:
        if self.rope_type not in _NEEDED:
            expected = f"one of {', '.join(_NEEDED)}"
            raise ValueError(message("RopeScaling", f"rope_type is {self.rope_type!r}", expected=expected))
        missing = [name for name in _NEEDED[self.rope_type] if getattr(self, name) is None]
        if missing or self.factor < 1:
            problem = f"{', '.join(missing)} is missing" if missing else f"factor is {self.factor}"
            raise ValueError(message("RopeScaling", problem, expected=f"all settings of {self.rope_type}, factor >= 1"))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], max_positions: int, original: int | None = None) -> RopeScaling | None:
        """Read `rope_scaling` or `rope_parameters` of a configuration; None for plain frequencies. Raises ValueError.

        `original` is the number of positions in training, if another setting states it.
        """
        settings = {k: v for k, v in data.items() if k not in ("rope_theta", "type", "partial_rotary_factor")}
        kind = settings.setdefault("rope_type", data.get("type"))
        if kind == "su":  # the first name of longrope
            settings["rope_type"] = kind = "longrope"
        unknown = settings.keys() - {f.name for f in fields(cls)}
        if unknown:
            problem = f"rotary settings {', '.join(sorted(unknown))}"
            raise ValueError(message("DecoderConfig", problem, expected=", ".join(f.name for f in fields(cls))))
        check_numbers("RopeScaling", settings, ("short_factor", "long_factor"), ("rope_type", "truncate"))
        if kind is not None and not isinstance(kind, str):
            raise ValueError(message("RopeScaling", f"rope_type is {kind!r:.80}", expected="a text"))
        if kind == "default" or not (settings.keys() - {"rope_type"} or kind):
            return None
        if kind in ("yarn", "longrope", "llama3"):
            trained = original or settings.get("original_max_position_embeddings") or max_positions
            settings["original_max_position_embeddings"] = trained
            if settings.get("factor") is None:
                settings["factor"] = max(max_positions / trained, 1.0)
        if kind is None or settings.get("factor") is None:
            raise ValueError(message("DecoderConfig", f"rotary settings {dict(data)}", expected="rope_type and factor"))
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in settings.items() if v is not None
        }
        return cls(**given)

    def frequencies(self, dim: int, theta: float) -> tuple[np.ndarray, float]:
        """Return the angles per position (dim/2,) in float64, and the factor of cosines and sines.

        "dynamic" scales only contexts longer than `max_position_embeddings`, which a decoder refuses. "longrope" returns the
        angles of sequences up to the original context (see `for_long_sequences`).
        """
        plain = theta ** (-np.arange(0, dim, 2) / dim)
        if self.rope_type == "dynamic":
            return plain, 1.0
        if self.rope_type == "linear":
            return plain / self.factor, 1.0
        if self.rope_type == "llama3":
            return self._by_wavelength(plain), 1.0
        if self.rope_type == "longrope":
            return plain / self._divisors("short_factor", dim), self._magnitude()
        return self._by_turns(plain, dim, theta), self._magnitude()

    @property
    def for_long_sequences(self) -> RopeScaling | None:
        """Rule for sequences longer than the original context; None if it is the same."""
        return replace(self, short_factor=self.long_factor) if self.rope_type == "longrope" else None

    def _divisors(self, name: str, dim: int) -> np.ndarray:
        divisors = np.array(getattr(self, name))
        if divisors.shape != (dim // 2,):
            problem = f"{name} has {divisors.size} numbers"
            raise ValueError(message("RopeScaling", problem, expected=f"{dim // 2}, half of the rotated features"))
        return divisors

    def _by_wavelength(self, plain: np.ndarray) -> np.ndarray:
        length, low, high = self.original_max_position_embeddings, self.low_freq_factor, self.high_freq_factor
        assert length is not None
        assert low is not None
        assert high is not None
        turns = length * plain / (2 * math.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        result: np.ndarray = plain * (share + (1 - share) / self.factor)
        return result

    def _by_turns(self, plain: np.ndarray, dim: int, theta: float) -> np.ndarray:
        assert self.original_max_position_embeddings is not None

        def pair_with(turns: float) -> float:
            """Return the index, not rounded, of the pair of features that makes `turns` turns in the original context."""
            length = self.original_max_position_embeddings or 0
            return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

        first, last = pair_with(self.beta_fast), pair_with(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, dim - 1)
        width = last - first or 0.001
        stretched = np.clip((np.arange(dim // 2) - first) / width, 0, 1)
        result: np.ndarray = plain * (1 - stretched + stretched / self.factor)
        return result

    def _magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.rope_type == "longrope":
            length = self.original_max_position_embeddings or 0
            return math.sqrt(1 + math.log(self.factor) / math.log(length))
        if self.mscale and self.mscale_all_dim:
            return logarithmic(self.factor, self.mscale) / logarithmic(self.factor, self.mscale_all_dim)
        return logarithmic(self.factor, 1.0)


def logarithmic(factor: float, scale: float) -> float:
    """Return yarn's factor of attention for contexts stretched by `factor`."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0
