"""The table of training steps of PyTorch programs for docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.frameworks.pytorch_ways import TRACED, best_ms

_RECORDED = "recorded"
_FIRST_STEPS = {
    "first_s": "Seconds that the first four steps took in a new process without caches of kernels",
    "first_cpu_s": "Seconds of the processor in such a process, without those of processes that build kernels ahead",
    "again_s": "Seconds that they took in the next process, with the caches",
    "again_cpu_s": "Seconds of the processor in the next process, with the caches",
}
"""Titles of the tables of first steps, by the name of the figure in results."""


def torch_steps_table(result: dict[str, Any]) -> list[str]:
    """Time per step of every competitor, the speed of recorded steps relative to PyTorch's, and the first steps."""
    how = (
        "The processor's time on one core, so that other work on the machine does not count."
        if result.get("one_core")
        else "Time that passes until a step is done."
    )
    everyone = list(dict.fromkeys(who for row in result["rows"] for who in row["who"]))
    timed = [who for who in everyone if who != TRACED]
    head = ["model", "precision", "device", *timed, "best of PyTorch : recorded"]
    lines = [f"PyTorch {result['torch']}. {how}", "", _row(head), "|---|---|---|" + "---:|" * (len(head) - 3)]
    for row in result["rows"]:
        cells = [_time(row["who"].get(who)) for who in timed]
        lines.append(_row([row["what"], row["precision"], f"`{row['device']}`", *cells, _speedup(row)]))
    for name, title in _FIRST_STEPS.items():
        if any(name in t for row in result["rows"] for t in row["who"].values()):
            lines += ["", f"{title}:", "", _row(["model", *everyone]), "|---|" + "---:|" * len(everyone)]
            for row in result["rows"]:
                lines.append(_row([row["what"], *(_first(row["who"].get(who), name) for who in everyone)]))
    return lines


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _time(t: Mapping[str, Any] | None) -> str:
    if t is None:
        return ""
    spread = (t["high_ms"] - t["low_ms"]) / 2 / t["ms"]
    return f"{t['ms']:.2f} ms ±{spread:.1%}"


def _first(t: Mapping[str, Any] | None, name: str) -> str:
    return "" if t is None or name not in t else ", ".join(f"{s:.2f}" for s in t[name])


def _speedup(row: Mapping[str, Any]) -> str:
    """Return how many of PyTorch's fastest steps take as long as one recorded step: above 1 if recorded ones are faster."""
    best = best_ms(row["who"])
    return f"{best / row['who'][_RECORDED]['ms']:.2f}" if best and _RECORDED in row["who"] else ""
