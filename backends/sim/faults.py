"""Fault injection: failures that real hardware refuses to produce on demand, planned before they happen.

    device.backend.faults.inject("device_lost", at=120)
    device.backend.faults.inject("corrupt_transfer", probability=0.01, seed=7, times=None)
    device.backend.faults.inject("wrong_result", name="matmul*")

A fault strikes where all of its conditions hold. With a probability, it also depends on the seed and the number of the
command, and on nothing else, so a run with faults can be repeated exactly. A TOML file may hold the entries as tables
`[[fault]]`, for `Device("sim:...,faults=FILE")`.
"""

from __future__ import annotations

import enum
import fnmatch
import math
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from polyhal.hal.core.settings import toml_schema
from polyhal.hal.core.settings.toml_schema import Key, Rule, TableSchema


class FaultKind(enum.StrEnum):
    """Kinds of faults, each with the unit that `at` counts (from 1)."""

    ALLOCATION_FAILURE = "allocation_failure"
    """`allocate` raises OutOfMemoryError. `at` counts allocations. The pool then frees its unused blocks and tries once more:
    the error reaches a program only with `times=2`."""
    BUILD_FAILURE = "build_failure"
    """A kernel does not build. `at` counts builds. With POLYHAL_STRICT=1 this raises KernelBuildError. Otherwise the op
    warns and falls back to a slower implementation, which raises KernelBuildError if its kernel does not build
    either."""
    DEVICE_LOST = "device_lost"
    """The device halts instead of executing the command. `at` counts commands, also for the kinds below."""
    SLOW_LINK = "slow_link"
    """A transfer takes `factor` times as long."""
    STALLED_QUEUE = "stalled_queue"
    """The command starts `seconds` late. Beyond the watchdog's limit: DeviceTimeoutError, and the device is reset."""
    CORRUPT_TRANSFER = "corrupt_transfer"
    """One bit of a transfer arrives inverted: TransferError."""
    WRONG_RESULT = "wrong_result"
    """A kernel writes one wrong element. It is not reported."""
    LATE_CALLBACK = "late_callback"
    """The callbacks of an event are called `seconds` late."""


@dataclass(slots=True, eq=False)
class InjectedFault:
    """An entry of a fault plan."""

    kind: FaultKind
    at: int | None = None
    """Number of the first of `times` consecutive allocations, builds or commands; None: any."""
    name: str = "*"
    """Pattern with `*` and `?` for the kernel's name, or for a transfer's, such as `host to device`."""
    probability: float = 1.0
    seed: int = 0
    times: int | None = 1
    """Maximum number of strikes; None: unlimited."""
    factor: float = 10.0
    """Slow-down of a slow link."""
    seconds: float | None = None
    """Delay of a stalled queue (None: indefinitely) or a late callback (None: 0.05)."""
    struck: int = 0
    """Number of strikes so far."""

    def matches(self, number: int, name: str) -> bool:
        """Return whether the fault strikes the allocation, build or command of this number and name."""
        if self.times is not None and self.struck >= self.times:
            return False
        if self.at is not None and not self.at <= number < self.at + (self.times or math.inf):
            return False
        if not fnmatch.fnmatchcase(name, self.name):
            return False
        return self.probability >= 1 or random.Random(f"{self.seed}/{self.kind}/{number}").random() < self.probability


class Strike(NamedTuple):
    """A fault that happened."""

    kind: FaultKind
    number: int
    name: str


@dataclass(slots=True, eq=False)
class FaultPlan:
    """Planned faults of one device, and faults that have happened. Methods may be called from any thread."""

    planned: list[InjectedFault] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, kind: FaultKind | str, **conditions: Any) -> InjectedFault:
        """Plan a fault; `conditions` are the fields of `InjectedFault`. Raises ValueError or TypeError if they are invalid."""
        if kind not in list(FaultKind):
            raise ValueError(f"{str(kind)!r} is not a valid FaultKind; expected one of {', '.join(FaultKind)}")
        fault = InjectedFault(FaultKind(kind), **conditions)
        if not 0 <= fault.probability <= 1:
            raise ValueError(f"got probability={fault.probability}; expected a number from 0 to 1")
        with self._lock:
            self.planned.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all planned faults."""
        with self._lock:
            self.planned.clear()

    def strike(self, kind: FaultKind, number: int, name: str) -> InjectedFault | None:
        """Return the planned fault that strikes now, and record it; None if none does."""
        if not self.planned:
            return None
        with self._lock:
            fault = next((f for f in self.planned if f.kind is kind and f.matches(number, name)), None)
            if fault is not None:
                fault.struck += 1
                self.strikes.append(Strike(kind, number, name))
            return fault


_NUMBER = Key(float, optional=True, zero=True)
_SCHEMA = TableSchema(
    {
        "fault": TableSchema(
            {
                "kind": Key(str, choices=tuple(FaultKind)),
                "name": Key(str, optional=True),
                **dict.fromkeys(("at", "times"), Key(int, optional=True)),
                "seed": Key(int, optional=True, zero=True),
                "probability": Key(
                    float, optional=True, zero=True, rule=Rule(lambda p: p <= 1, "a number from 0 to 1")
                ),
                **dict.fromkeys(("factor", "seconds"), _NUMBER),
            },
            many=True,
            optional=True,
        )
    }
)


def load_faults(path: str) -> FaultPlan:
    """Read a plan from a TOML file. Raises ValueError with all faults of the file, and OSError."""
    plan = FaultPlan()
    for entry in toml_schema.parse(path, Path(path).read_text(encoding="utf-8"), _SCHEMA).get("fault", []):
        plan.inject(**entry)
    return plan
