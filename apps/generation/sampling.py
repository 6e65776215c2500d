"""How the tokens of a request are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyhal.hal.errors import SettingError, message


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are sampled from logits, on the device: see `nn.functional.sample_tokens` and `nn.functional.penalize`.

    `temperature` 0 selects the most likely token. Equal seeds draw equal tokens; None takes one from the operating system.
    `logit_bias` is added to the logits of tokens; minus infinity excludes one.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, right, expected in (
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
            ("seed", self.seed is None or 0 <= self.seed < 2**63, "0 to 2**63 - 1"),
        ):
            if not right:
                raise SettingError(message("sampling", f"{name} is {getattr(self, name)}", expected=expected))

    @property
    def draws(self) -> bool:
        """True if tokens are drawn by chance."""
        return self.temperature > 0

    @property
    def penalizes(self) -> bool:
        """True if logits depend on earlier tokens."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)
