"""The table of results in browsers, for docs/performance.md."""

from __future__ import annotations

from typing import Any

from benchmarks.tables import median_text


def web_steps_table(result: dict[str, Any]) -> list[str]:
    """Return milliseconds per inference of each runtime, and seconds from loading to the first result."""
    packages = ", ".join(f"{name} {version}" for name, version in result["packages"].items())
    lines = [
        f"The browser's adapter is {result['adapter']}; {packages or 'no other runtime'}.",
        "",
        "| model | runtime | ms per inference | first result after, s | difference |",
        "|---|---|---:|---:|---:|",
    ]
    for row in result["rows"]:
        for who, times in row["who"].items():
            first, difference = row["first"].get(who), row["difference"].get(who)
            cells = [f"{first:.2f}" if first is not None else "", f"{difference:.0e}" if difference is not None else ""]
            lines.append(
                f"| {row['model']} | {who} | {median_text([1e3 * t for t in times], '.1f')} | {' | '.join(cells)} |"
            )
    return lines
