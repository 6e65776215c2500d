"""Writes docs/performance.md from the JSON files in benchmarks/results.

python -m benchmarks.report
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"

_HEAD = """# Performance

<!-- Written by `python -m benchmarks.report` from the files in benchmarks/results. Edit those, or benchmarks/report.py. -->

Every table comes from one run, in which the competitors took turns on the same data. Figures are medians; the spread in
brackets is from the lower to the upper quartile. Measure your own machine:

    python -m benchmarks.kernels --devices wgpu,opencl --json benchmarks/results/mine.json
    python -m benchmarks.train_gpt --json benchmarks/results/mine-train.json
    python -m benchmarks.report
"""


def page(results: Iterable[dict[str, Any]]) -> str:
    """The whole page."""
    parts = [_HEAD]
    for found in sorted(results, key=lambda r: (r["place"], r["benchmark"] != "kernels", r["date"])):
        parts.append(_kernels(found) if found["benchmark"] == "kernels" else _training(found))
    return "\n".join(parts)


def _heading(found: dict[str, Any], what: str) -> list[str]:
    lines = [f"## {found['place']}: {what}", ""]
    clock = " by the devices' own timestamps" if found.get("clock") == "device" else ""
    lines.append(f"{found['date']}{clock}, {found['cores']} cores of {found['processor']}. Devices:")
    lines += ["", *(f"- `{n}`: {d['name']}, {d['driver']}" for n, d in found["devices"].items()), ""]
    lines += [*(f"{line}" for line in found.get("notes", [])), ""] if found.get("notes") else []
    return lines


def _rate(row: dict[str, Any], seconds: float) -> str:
    if row["flops"]:
        value = row["flops"] / seconds / 1e9
        return f"{value / 1e3:.1f} TFLOP/s" if value >= 1000 else f"{value:.0f} GFLOP/s"
    return f"{row['nbytes'] / seconds / 1e9:.0f} GB/s"


def _kernels(found: dict[str, Any]) -> str:
    names = list(found["rows"][0]["seconds"])
    lines = _heading(found, "single ops")
    lines += ["| op | shapes | " + " | ".join(f"`{n}`" for n in names) + " |", "|---|---|" + "---:|" * len(names)]
    for row in found["rows"]:
        shapes = ", ".join("x".join(map(str, s)) for s in row["shapes"])
        cells = []
        for n in names:
            median, low, high = row["seconds"][n]
            cells.append(f"{_rate(row, median)} [{1e3 * low:.3g}-{1e3 * high:.3g} ms]")
        lines.append(f"| {row['case']} | {shapes} | " + " | ".join(cells) + " |")
    lines.append("")
    first = names[0]
    for other in names[1:]:
        ratio = statistics.median(r["seconds"][first][0] / r["seconds"][other][0] for r in found["rows"])
        lines.append(f"Median over the ops: `{first}` takes {ratio:.2f} times as long as `{other}`.")
    return "\n".join([*lines, ""])


def _training(found: dict[str, Any]) -> str:
    lines = _heading(found, "training a GPT, whole steps")
    lines += [
        "| device | model | tokens per step | tokens/s | step | PyTorch, tokens/s | ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        ours, theirs = row["polyhal"], row.get("torch")
        lines.append(
            f"| `{row['device']}` | {row['model']} | {row['tokens_per_step']} | {ours['tokens_per_s']:,.0f} "
            f"| {ours['ms']:.1f} ms [{ours['low_ms']:.1f}-{ours['high_ms']:.1f}] "
            + (f"| {theirs['tokens_per_s']:,.0f} | {row['ratio']:.2f} |" if theirs else "| | |")
        )
    return "\n".join([*lines, ""])


def results() -> list[dict[str, Any]]:
    """Every file of results. `place` is what a file says of its machine, else the file's name."""
    found = []
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        data.setdefault("place", path.stem)
        found.append(data)
    return found


def main() -> None:
    PAGE.write_text(page(results()), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
