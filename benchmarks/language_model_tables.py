"""Tables of language models: decoding, files of others, and the command `polyhal train`."""

from __future__ import annotations

from typing import Any

from benchmarks.tables import median_text


def decode_table(result: dict[str, Any]) -> list[str]:
    """Return tokens per second, with and without the prompt."""
    lines = ["| device | dtype | tokens/s | including the prompt | PyTorch, eager |", "|---|---|---:|---:|---:|"]
    for row in result["rows"]:
        us = row["polyhal"]
        theirs = f"{1 / row['torch']['seconds'][0]:.0f}" if "torch" in row else ""
        rates = f"{1 / us['seconds'][0]:.0f} | {1 / us['whole']:.0f} | {theirs}"
        lines.append(f"| `{row['device']}` | {row['dtype']} | {rates} |")
    return lines


def language_models_table(result: dict[str, Any]) -> list[str]:
    """Return tokens per second of prompts and of generation, and the share of the memory's speed."""
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["who"]))
    lines = [
        "| file | bytes per token | " + " | ".join(f"{n}, prompt | {n}, generated | of memory" for n in names) + " |",
        "|---|---:|" + "---:|" * (3 * len(names)),
    ]
    fastest = max(result["reads"].values())
    for row in result["rows"]:
        cells = [row["file"], f"{row['bytes'] / 1e6:,.0f} MB"]
        for name in names:
            who, rate = row["who"].get(name, {}), result["reads"].get(name, fastest)
            cells.append(f"{who['prefill'][0]:,.0f}" if "prefill" in who else "")
            cells += (
                [median_text(d, ",.1f"), f"{d[0] * row['bytes'] / rate:.0%}"] if (d := who.get("decode")) else ["", ""]
            )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def train_command_table(result: dict[str, Any]) -> list[str]:
    """Return tokens per second and the first step, captured and eager."""
    lines = [
        "| device | captured, tokens/s | `--eager`, tokens/s | first step, captured | first step, `--eager` |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        rates = " | ".join(median_text(row[mode]["tokens_per_s"], ",.0f") for mode in ("captured", "eager"))
        firsts = " | ".join(median_text(row[mode]["first_s"], ".2f") + " s" for mode in ("captured", "eager"))
        lines.append(f"| `{row['device']}` | {rates} | {firsts} |")
    return lines
