"""Division of a step among devices: data, tensor and pipeline parallelism, and sharding among model replicas."""

from __future__ import annotations

import re
from dataclasses import dataclass

from polyhal.hal.errors import message

SHARDINGS = ("none", "optimizer", "parameters")
"""State that is sharded among replicas of a model: none, the optimizer's (ZeRO), or also parameters and gradients (FSDP).

Sources: Rajbhandari et al., arXiv:1910.02054; Zhao et al., arXiv:2304.11277.
"""
_FORM = re.compile(r"(?P<name>[a-z_-]+)(?:=(?P<value>[a-z0-9]+))?")
_EXAMPLE = "data=8,tensor=4,pipeline=2,micro=1,shard=optimizer,recompute"


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to divide a step. It uses `data * tensor * pipeline` devices."""

    data: int = 1
    """Replicas of the model, each with a part of the batch."""
    tensor: int = 1
    """Devices among which each layer is split."""
    pipeline: int = 1
    """Stages of layers that process successive micro-batches (1F1B)."""
    micro_batch: int = 1
    """Samples in one pass."""
    passes: int = 1
    """Passes of each replica per step: micro-batches of a pipeline, or steps of gradient accumulation."""
    shard: str = "none"
    recompute: bool = False
    """True if layers keep only their inputs for the backward pass, and are recomputed."""

    @property
    def devices(self) -> int:
        """Number of devices in use."""
        return self.data * self.tensor * self.pipeline

    @property
    def batch(self) -> int:
        """Samples per step."""
        return self.data * self.micro_batch * self.passes

    def __str__(self) -> str:
        degrees = {"data": self.data, "tensor": self.tensor, "pipeline": self.pipeline}
        parts = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1]
        parts += [f"micro={self.micro_batch}", *([f"shard={self.shard}"] if self.shard != "none" else [])]
        return ",".join([*parts, *(["recompute"] if self.recompute else [])])


@dataclass(frozen=True, slots=True)
class Constraints:
    """Required properties of a strategy; None for unconstrained ones."""

    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    micro_batch: int | None = None
    shard: str | None = None
    recompute: bool | None = None

    def allows(self, strategy: Strategy) -> bool:
        """Return whether a strategy satisfies all constraints."""
        names = ("data", "tensor", "pipeline", "micro_batch", "shard", "recompute")
        return all(getattr(self, name) in (None, getattr(strategy, name)) for name in names)


_NAMES = {"data": "data", "tensor": "tensor", "pipeline": "pipeline", "micro": "micro_batch"}


def parse_constraints(text: str) -> Constraints:
    """Parse constraints such as `data=8,tensor=4,shard=optimizer`; others are None. Raises ValueError."""
    values: dict[str, int | str | bool] = {}
    for part in (p.strip() for p in text.split(",") if p.strip()):
        match = _FORM.fullmatch(part)
        name, value = (match["name"], match["value"]) if match else ("", None)
        if name in _NAMES and value is not None and value.isdigit() and int(value) > 0:
            values[_NAMES[name]] = int(value)
        elif name == "shard" and value in SHARDINGS:
            values[name] = value
        elif name in ("recompute", "no-recompute") and value is None:
            values["recompute"] = name == "recompute"
        else:
            expected = (
                f"{', '.join(f'{n}=NUMBER' for n in _NAMES)}, shard={'|'.join(SHARDINGS)}, recompute or no-recompute"
            )
            raise ValueError(message(None, f"invalid constraint {part!r}", expected=f"{expected}; as in {_EXAMPLE}"))
    return Constraints(**values)  # type: ignore[arg-type]
