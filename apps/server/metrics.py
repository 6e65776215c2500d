"""Counters of a server, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ServerMetrics:
    """Counters since the server started. The thread of the event loop changes them."""

    responses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of responses by path and status."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    proposed_tokens: int = 0
    """Tokens that speculative decoding proposed."""
    accepted_tokens: int = 0
    cancelled: int = 0
    """Sequences that ended because their client vanished."""
    first_tokens: int = 0
    first_token_seconds: float = 0.0
    finished: int = 0
    seconds: float = 0.0
    """Durations of all finished sequences."""

    @property
    def mean_seconds(self) -> float:
        """Mean duration of a sequence, or 1 before the first one."""
        return self.seconds / self.finished if self.finished else 1.0

    def text(self, running: int, waiting: int, device_memory: int) -> str:
        """Return all values in Prometheus' text format."""
        lines = [
            "# HELP polyhal_responses_total Responses by path and status.",
            "# TYPE polyhal_responses_total counter",
        ]
        lines += [
            f'polyhal_responses_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.responses.items())
        ]
        for name, kind, note, value in (
            ("prompt_tokens_total", "counter", "Tokens of prompts.", self.prompt_tokens),
            ("generated_tokens_total", "counter", "Tokens of answers.", self.generated_tokens),
            ("proposed_tokens_total", "counter", "Tokens proposed by speculative decoding.", self.proposed_tokens),
            ("accepted_tokens_total", "counter", "Proposed tokens in answers.", self.accepted_tokens),
            ("cancelled_total", "counter", "Sequences whose client vanished.", self.cancelled),
            ("running", "gauge", "Sequences in the batch.", running),
            ("waiting", "gauge", "Sequences that wait for a place in the batch.", waiting),
            ("device_memory_bytes", "gauge", "Bytes in use on the model's device.", device_memory),
        ):
            lines += [f"# HELP polyhal_{name} {note}", f"# TYPE polyhal_{name} {kind}", f"polyhal_{name} {value}"]
        for name, note, total, count in (
            ("first_token_seconds", "Time to the first token.", self.first_token_seconds, self.first_tokens),
            ("sequence_seconds", "Time to the last token.", self.seconds, self.finished),
        ):
            lines += [f"# HELP polyhal_{name} {note}", f"# TYPE polyhal_{name} summary"]
            lines += [f"polyhal_{name}_sum {total:.6f}", f"polyhal_{name}_count {count}"]
        return "\n".join(lines) + "\n"
