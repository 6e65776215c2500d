"""The table of servers under load."""

from __future__ import annotations

from typing import Any


def serve_load_table(result: dict[str, Any]) -> list[str]:
    """Return throughput, latency and resources of a server under load, and how many answers were compared."""
    rows = [_serve_load_cells(row) for row in result["rows"]]
    lines = ["| " + " | ".join(rows[0]) + " |", "|---|---|" + "---:|" * (len(rows[0]) - 2)] if rows else []
    return [*lines, *("| " + " | ".join(cells.values()) + " |" for cells in rows)]


def _serve_load_cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a row by the heads of their columns."""
    held = [at["resident"] / 1e6 for at in row["course"].values()]
    times = {
        name: f"{row[key][0]:,.0f}, {row[key][2]:,.0f} ms"
        for name, key in (
            ("first token, median and 99 %", "first_token_ms"),
            ("per token", "between_tokens_ms"),
            ("answer", "answer_ms"),
        )
    }
    counts = {name: f"{row['counts'].get(name, 0):,}" for name in ("compared", "cancelled", "malformed")}
    pool = [at["device"] / 1e6 for at in row["course"].values()]
    return {
        "model": row["file"],
        "device": f"`{row['device']}`",
        "clients": str(row["clients"]),
        "slots": str(row["slots"]),
        "minutes": f"{row['minutes']:g}",
        "tokens/s": f"{row['tokens_per_s']:,.1f}",
        **times,
        **counts,
        "ties": str(row["ties"]),
        "resident, first and last": f"{held[0]:,.0f}, {held[-1]:,.0f} MB",
        "in the device's pool": f"{pool[0]:,.1f}, {pool[-1]:,.1f} MB",
        "findings": str(len(row["findings"])),
    }
