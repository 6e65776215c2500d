"""Settings of fine-tuning, as plain data that is part of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.errors import message

_SCHEDULES = ("cosine", "linear", "constant")


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How adapters are trained, with AdamW. Raises ValueError.

    `lr` is the peak of the schedule; `clip` is the largest norm of the gradients, 0 for any.
    """

    steps: int
    batch_size: int = 4
    """Rows per batch."""
    accumulate: int = 1
    """Batches per step."""
    lr: float = 2e-4
    warmup: int = 0
    """Steps until the peak."""
    schedule: str = "cosine"
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    """Seed of the order of rows and of dropout."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(message("TuneOptions", f"{name} is {getattr(self, name)}", expected="1 or more"))
        for name in ("lr", "warmup", "weight_decay", "clip", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(message("TuneOptions", f"{name} is {getattr(self, name)}", expected="0 or more"))
        if self.schedule not in _SCHEDULES:
            raise ValueError(message("TuneOptions", f"schedule is {self.schedule!r}", expected=f"one of {_SCHEDULES}"))
