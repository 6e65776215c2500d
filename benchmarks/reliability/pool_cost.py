"""Cost of the memory pool: its fraction of training steps, by the number of blocks taken and the time of taking
one."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polyhal as ph
from benchmarks.reliability.trainings import RECIPES, Training

LIMIT = 5.0
"""Per cent of a step that the pool may cost."""
_STEPS, _BLOCKS, _ROUNDS = 20, 2000, 7


@dataclass(frozen=True, slots=True)
class PoolCostResult:
    """Counts of a campaign."""

    steps: int
    """Kinds of steps that were measured."""
    worst_percent: float
    shares: dict[str, dict[str, float]]
    findings: tuple[str, ...]


def pool_cost(names: Sequence[str], recipes: Sequence[str] = tuple(RECIPES)) -> PoolCostResult:
    """Measure steps on each device, eager and captured. They are small, so that the pool's share is large."""
    rows: dict[str, dict[str, float]] = {}
    for name in names:
        device = ph.Device(name)
        block = _seconds(lambda d=device: _take_and_give(d), _BLOCKS)  # type: ignore[misc]
        for recipe in recipes:
            for captured in (False, True):
                training = Training(RECIPES[recipe], device, captured=captured)
                for _ in range(5):  # captures, compiles, fills the pool
                    training.step()
                before = _taken(device)
                for _ in range(_STEPS):
                    training.step()
                blocks = (_taken(device) - before) / _STEPS
                step = _seconds(lambda t=training: [t.step() for _ in range(_STEPS)], _STEPS)  # type: ignore[misc]
                kind = f"{recipe}, {'captured' if captured else 'eager'}, {name}"
                rows[kind] = {
                    "blocks per step": round(blocks, 1),
                    "us per block": round(1e6 * block, 2),
                    "us per step": round(1e6 * step),
                    "per cent": round(100 * blocks * block / step, 2),
                }
    findings = [f"{kind}: {row['per cent']} % of a step" for kind, row in rows.items() if row["per cent"] >= LIMIT]
    return PoolCostResult(len(rows), max(row["per cent"] for row in rows.values()), rows, tuple(findings))


def _taken(device: ph.Device) -> int:
    stats = device.memory_stats()
    return stats.allocations + stats.reuses


def _take_and_give(device: ph.Device) -> None:
    take = device.pool.take
    for _ in range(_BLOCKS):
        take(1024)  # returned to the pool at once, since no reference remains


def _seconds(action: Callable[[], object], count: int) -> float:
    """Return the median time of one of `count` equal parts of an action."""
    times = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) / count)
    return statistics.median(times)


if __name__ == "__main__":
    print(pool_cost(sys.argv[1:]))
