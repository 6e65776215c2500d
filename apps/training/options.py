"""The settings of a training run, validated, as plain data that is part of checkpoints."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from polyhal.hal.errors import IncompatibleFileError, SettingError, message
from polyhal.training.schedule import SCHEDULES

TOKENIZERS = ("char", "bpe")
COMPRESSIONS = ("none", "bfloat16", "float16")
_SMALLEST_BPE = 258


class OptionError(SettingError):
    """A setting is out of range, unknown or contradicts another one."""


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """All settings of a run: with the text, the seed and the device, they determine every number that it computes.

    Lengths are in tokens; `lr` is the peak of the schedule; `clip` 0 disables clipping; `sample_every` 0 disables samples.
    """

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    dropout: float = 0.0
    tokenizer: str = "char"
    vocabulary: int = 1024
    """Size of a BPE vocabulary; a character tokenizer has one token per character of the text."""
    batch_size: int = 16
    accumulate: int = 1
    """Batches whose gradients are averaged before each step."""
    steps: int = 1000
    lr: float = 3e-3
    weight_decay: float = 0.1
    warmup: int = 50
    schedule: str = "cosine"
    clip: float = 1.0
    compress: str = "none"
    """Dtype in which ranks exchange gradients; rounding errors are added in the next step."""
    val_split: float = 0.1
    """Fraction at the end of the text that is held out for validation."""
    seed: int = 0
    log_every: int = 10
    eval_every: int = 100
    sample_every: int = 200

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _typed(field.name, getattr(self, field.name), str(field.type)))
        self._check()

    def _check(self) -> None:
        for name in (
            "layers",
            "heads",
            "width",
            "context",
            "batch_size",
            "accumulate",
            "steps",
            "log_every",
            "eval_every",
        ):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("warmup", "seed", "sample_every", "clip", "weight_decay"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        _require(
            self.vocabulary >= _SMALLEST_BPE,
            "vocabulary",
            self.vocabulary,
            f"{_SMALLEST_BPE} or more: all bytes and two special tokens",
        )
        _require(self.seed < 2**63, "seed", self.seed, "less than 2**63")
        _require(self.lr > 0, "lr", self.lr, "more than 0")
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "from 0 up to, not including, 1")
        _require(0 <= self.val_split < 1, "val_split", self.val_split, "from 0 up to, not including, 1")
        _require(self.tokenizer in TOKENIZERS, "tokenizer", self.tokenizer, " or ".join(TOKENIZERS))
        _require(self.compress in COMPRESSIONS, "compress", self.compress, ", ".join(COMPRESSIONS))
        _require(self.schedule in SCHEDULES, "schedule", self.schedule, ", ".join(SCHEDULES))
        if self.width % self.heads:
            raise OptionError(
                message(
                    None,
                    f"--width {self.width} cannot be divided among --heads {self.heads}",
                    expected="a width that is a multiple of the heads",
                    fix=f"use --width {-(-self.width // self.heads) * self.heads}",
                )
            )

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens per optimizer step."""
        return self.batch_size * self.accumulate * self.context

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainOptions:
        """Read options of `to_json`. Raises IncompatibleFileError for settings of another version."""
        names = set(NAMES)
        if set(data) != names:
            odd = ", ".join(sorted(set(data) ^ names))
            raise IncompatibleFileError(
                message(
                    None,
                    f"the checkpoint was written with other settings ({odd})",
                    expected="the settings of this version",
                )
            )
        return cls(**data)

    def with_changes(self, **changes: Any) -> TrainOptions:
        """Return a validated copy with some settings changed."""
        return replace(self, **changes)


NAMES: tuple[str, ...] = tuple(f.name for f in fields(TrainOptions))


def flag(name: str) -> str:
    """Return the command-line option of a setting."""
    return "--" + name.replace("_", "-")


def unknown_name(name: str, known: Iterable[str], source: str) -> OptionError:
    """Return the error for a setting that does not exist, with close matches."""
    candidates = sorted(known)
    close = difflib.get_close_matches(name, candidates, 3, 0.5)
    fix = f"did you mean {' or '.join(close)}?" if close else f"known settings are {', '.join(candidates)}"
    return OptionError(message(None, f"{source} has an unknown setting {name!r}", fix=fix))


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise OptionError(message(None, f"{flag(name)} is {value}", expected=expected))


def _typed(name: str, value: Any, kind: str) -> Any:
    """Check and convert a value to the type of a setting; 3.0 is not a step count and "3" is not a number."""
    if kind == "str":
        if not isinstance(value, str):
            raise OptionError(message(None, f"{flag(name)} is {value!r}", expected="text"))
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind == "float" else int):
        raise OptionError(
            message(None, f"{flag(name)} is {value!r}", expected="a whole number" if kind == "int" else "a number")
        )
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        finite = False
    if not finite:
        raise OptionError(message(None, f"{flag(name)} is {value}", expected="a finite number"))
    return float(value) if kind == "float" else value
