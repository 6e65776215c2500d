"""Fault points of a program: every allocation, build, command, transfer and callback of a run without faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from polyhal.backends.sim.faults import FaultKind, FaultPlan, InjectedFault


class FaultPoint(NamedTuple):
    """A kind of fault, and the allocation, build or command that it hits."""

    kind: FaultKind
    at: int
    name: str


@dataclass(slots=True, eq=False)
class FaultObserver(FaultPlan):
    """A plan without faults, which records all fault points."""

    points: list[FaultPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.planned.append(InjectedFault(FaultKind.DEVICE_LOST, at=-1))  # an empty plan is not queried

    def strike(self, kind: FaultKind, number: int, name: str) -> None:
        with self._lock:
            self.points.append(FaultPoint(kind, number, name))


def sampled(points: Sequence[FaultPoint], each: int | None, seed: int) -> list[FaultPoint]:
    """Return `each` points of each kind, all of them by default. Equal seeds result in equal points."""
    chosen: list[FaultPoint] = []
    for kind in FaultKind:
        of_kind = [p for p in points if p.kind is kind]
        take = len(of_kind) if each is None else min(each, len(of_kind))
        chosen += sorted(Random(f"{seed}/{kind}").sample(of_kind, take), key=lambda p: p.at)
    return chosen
