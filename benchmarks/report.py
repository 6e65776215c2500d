"""Writes docs/performance.md from the JSON files in benchmarks/results.

python -m benchmarks.report

Besides figures, a file may have `place`, the heading of its section, and `notes`, paragraphs that say why a figure is what
it is; whoever measures adds them to the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"

_HEAD = """# Performance

<!-- Written by `python -m benchmarks.report` from the files in benchmarks/results. Edit those, or benchmarks/report.py. -->

Every table comes from one run, in which the competitors took turns on the same data. Figures are medians; the number after
± is half the distance between the quartiles. Beside each of our figures stands its share of what the device can do, which
the same run measured (copies for what memory bounds, multiply-adds of registers for products), and how many times as fast
it is as the fastest other framework in the row. Where the figures fall short of what was aimed at, notes say why.
Measure your own machine:

    python -m benchmarks.kernels --json benchmarks/results/mine.json
    python -m benchmarks.training --json benchmarks/results/mine-training.json
    python -m benchmarks.decode --json benchmarks/results/mine-decode.json
    python -m benchmarks.replay --json benchmarks/results/mine-replay.json
    python -m benchmarks.overlap --json benchmarks/results/mine-overlap.json
    python -m benchmarks.startup --json benchmarks/results/mine-startup.json
    python -m benchmarks.report
"""

Section = Callable[[dict[str, Any]], list[str]]


def page(results: Iterable[dict[str, Any]]) -> str:
    """The whole page: by place, and within a place in the order of `_SECTIONS`."""
    order = list(_SECTIONS)
    parts = [_HEAD]
    for found in sorted(results, key=lambda r: (r["place"], order.index(r["benchmark"]), r["date"])):
        title, section = _SECTIONS[found["benchmark"]]
        parts.append("\n".join([*_heading(found, title), *section(found), ""]))
    return "\n".join(parts)


def _heading(found: dict[str, Any], what: str) -> list[str]:
    lines = [f"## {found['place']}: {what}", ""]
    clock = ", by the devices' own timestamps" if found.get("clock") == "device" else ""
    lines.append(f"{found['date']}{clock}, {found['cores']} cores of {found['processor']}. Devices:")
    lines += [
        "",
        *(f"- {_device(name, d, found.get('limits', {}).get(name))}" for name, d in found["devices"].items()),
        "",
    ]
    return [*lines, *found["notes"], ""] if found.get("notes") else lines


def _device(name: str, device: Mapping[str, str], limit: Mapping[str, float] | None) -> str:
    text = f"`{name}`: {device['name']}, {device['driver']}"
    if limit:
        text += f"; copies {limit['bytes_per_s'] / 1e9:,.0f} GB/s"
        if limit["flops_per_s"]:
            text += f", multiplies and adds {_flops(limit['flops_per_s'])}"
    return text


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.1f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.0f} GFLOP/s"


def _spread(low: float, median: float, high: float) -> str:
    return f"±{(high - low) / 2 / median:.1%}"


def _rate(row: Mapping[str, Any], timing: tuple[float, float, float]) -> str:
    median, low, high = timing
    if row["wall"]:
        text = f"{median * 1e6:.1f} µs"
    elif row["flops"]:
        text = _flops(row["flops"] / median)
    else:
        text = f"{row['nbytes'] / median / 1e9:,.0f} GB/s"
    return f"{text} {_spread(low, median, high)}"


def _share(row: Mapping[str, Any], median: float, limit: Mapping[str, float]) -> str:
    possible = limit["flops_per_s"] if row["flops"] else limit["bytes_per_s"]
    return f"{(row['flops'] or row['nbytes']) / median / possible:.0%}" if possible and row["limited"] else ""


def _kernels(found: dict[str, Any]) -> list[str]:
    limits = found["limits"]
    names = list(dict.fromkeys(n for row in found["rows"] for n in (*row["seconds"], *row["left_out"])))
    ours, peers = [n for n in names if n in limits], [n for n in names if n not in limits]
    head = ["op", "shapes", *(c for n in ours for c in (f"`{n}`", "of limit", "times the fastest")), *peers]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for row in found["rows"]:
        seconds = row["seconds"]
        best = min((seconds[n][0] for n in peers if n in seconds), default=None)
        cells = [row["name"], ", ".join("x".join(map(str, s)) for s in row["shapes"])]
        for n in ours:
            if n in seconds:
                median = seconds[n][0]
                cells += [
                    _rate(row, seconds[n]),
                    _share(row, median, limits[n]),
                    f"{best / median:.2f}" if best else "",
                ]
            else:
                cells += ["-", "", ""]
        cells += [_rate(row, seconds[n]) if n in seconds else "-" for n in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _step(row: Mapping[str, Any], who: str) -> str:
    if who not in row["who"]:
        return ""
    t = row["who"][who]
    time = f"{t['ms']:.2f} ms" if t["ms"] >= 1 else f"{t['ms'] * 1e3:.0f} µs"
    text = f"{time} {_spread(t['low_ms'], t['ms'], t['high_ms'])}"
    return f"{row['items'] / t['ms'] * 1e3:,.0f} tokens/s, {text}" if row["tokens"] else text


def _mebibytes(row: Mapping[str, Any], who: str) -> str:
    peak = row["who"].get(who, {}).get("peak")
    return f"{peak / 2**20:,.0f}" if peak else ""


def _training(found: dict[str, Any]) -> list[str]:
    everyone = list(dict.fromkeys(who for row in found["rows"] for who in row["who"]))
    head = ["model", "precision", "device", *everyone, "times PyTorch", "peak MiB", "PyTorch's", "first step"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for row in found["rows"]:
        best = row["who"].get("captured", row["who"].get("eager"))
        peer = row["who"].get("PyTorch")
        cells = [
            row["what"], row["precision"], f"`{row['device']}`", *(_step(row, who) for who in everyone),
            f"{peer['ms'] / best['ms']:.2f}" if peer else "", _mebibytes(row, "captured"), _mebibytes(row, "PyTorch"),
            f"{best['first_s']:.2f} s" if "first_s" in best else "",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _decoding(found: dict[str, Any]) -> list[str]:
    lines = ["| device | dtype | tokens/s | from the prompt on | PyTorch, eager |", "|---|---|---:|---:|---:|"]
    for row in found["rows"]:
        us = row["polyhal"]
        theirs = f"{1 / row['torch']['seconds'][0]:.0f}" if "torch" in row else ""
        rates = f"{1 / us['seconds'][0]:.0f} | {1 / us['whole']:.0f} | {theirs}"
        lines.append(f"| `{row['device']}` | {row['dtype']} | {rates} |")
    return lines


def _main_job(found: dict[str, Any]) -> list[str]:
    lines = [
        "| device | captured, tokens/s | `--eager`, tokens/s | first step, captured | first step, `--eager` |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        rates = " | ".join(_median(row[mode]["tokens_per_s"], ",.0f") for mode in ("captured", "eager"))
        firsts = " | ".join(_median(row[mode]["first_s"], ".2f") + " s" for mode in ("captured", "eager"))
        lines.append(f"| `{row['device']}` | {rates} | {firsts} |")
    return lines


def _median(values: Sequence[float], form: str) -> str:
    median, low, high = values
    return f"{median:{form}} {_spread(low, median, high)}"


def _replay(found: dict[str, Any]) -> list[str]:
    lines = [
        "| device | launches | captured step, µs a launch | bare calls of the driver | eager step | above the driver |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        bare = next(name for name in row["who"] if name.startswith("bare"))
        rates = " | ".join(_median(row["who"][who], ".2f") for who in ("captured step", bare, "eager step"))
        lines.append(f"| `{row['device']}` | {row['launches']} | {rates} | {row['above']:.2f} |")
    return lines


def _overlap(found: dict[str, Any]) -> list[str]:
    lines = [
        "| device | batches | copies, ms | kernels | both at once | loop, read ahead | loop, read when asked |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        spans = " | ".join(f"{row[part] * 1e3:.1f}" for part in ("copies", "kernels", "both"))
        loops = " | ".join(_median([t * 1e3 for t in times], ".0f") for times in row["loops"].values())
        lines.append(f"| `{row['device']}` | {row['batches']} of {row['megabytes']} MiB | {spans} | {loops} |")
    return lines


def _startup(found: dict[str, Any]) -> list[str]:
    lines = ["| who | state of the caches | seconds from process start to the first finished step |", "|---|---|---:|"]
    for row in found["rows"]:
        median, low, high = row["seconds"]
        lines.append(f"| {row['name']} | {row['state']} | {median:.2f} {_spread(low, median, high)} |")
    return lines


_SECTIONS: dict[str, tuple[str, Section]] = {
    "kernels": ("single ops", _kernels),
    "training": ("whole training steps", _training),
    "main_job": ("`polyhal train`", _main_job),
    "decode": ("generating text with a GPT-2 of 124 million parameters", _decoding),
    "replay": ("the host's time per replayed launch", _replay),
    "overlap": ("copies beside kernels in a loop bound by its loader", _overlap),
    "startup": ("time to the first training step of a digits classifier", _startup),
}


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
