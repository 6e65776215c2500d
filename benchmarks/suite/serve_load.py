"""`polyhal serve` under many clients: latency, throughput, memory; every answer must be that of a single run.

Clients ask for answers of random lengths to prompts, some of which have common beginnings, streamed and not. A third of the
clients leave at a random moment, and some requests are malformed. Answers at temperature 0 are compared with single runs.
A warm-up of a tenth of the time is repeated until nothing grows. After it nothing may grow. The exit code is 1 if there is a
finding.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.serving.load import Load, Tally
from benchmarks.serving.process import Held, ServerProcess
from benchmarks.serving.questions import Question, SingleRuns

_SLACK = {"resident": 16 << 20, "files": 32, "threads": 32}
"""Permitted growth: partially used pages of allocators, and threads of asyncio's pool with their files."""
_LAPS = 8
"""Maximum number of warm-ups: what a server compiles depends on which requests meet in a batch."""
_ROWS = 6
_SHOWN = 10


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("serve_load", __doc__)
    parser.add_argument("--files", default="", metavar="FILE,FILE", help="models; without it nothing is measured")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--queue", type=int, default=128)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--questions", type=int, default=64, help="number of different prompts")
    parser.add_argument("--tokens", type=int, default=48, help="the longest answer")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a request counts as hung")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    if not args.files:
        print("no --files are given: nothing is measured")
        return 0
    devices = open_devices(args.devices)
    rows = [_measure(Path(file), d.name, args) for file in args.files.split(",") for d in devices]
    for row in rows:
        _show(row)
    write(args.json, {"benchmark": "serve_load", **describe_machine(devices), "rows": rows})
    return 1 if any(row["findings"] for row in rows) else 0


def _measure(path: Path, device: str, args: Any) -> dict[str, Any]:
    """Load a server, and compare its answers."""
    single = SingleRuns(path, device, args.context)
    questions = single.questions(args.questions, args.tokens, args.seed)
    options = ["--slots", args.slots, "--queue", args.queue, "--context", args.context, "--device", device]
    with ServerProcess([str(path), *map(str, options)]) as server:
        load = Load(server, questions, args.clients, args.tokens, args.limit)
        asyncio.run(load.warm_up())
        before = asyncio.run(server.held())
        for lap in range(_LAPS):
            warm, since = asyncio.run(load.run(6 * args.minutes, args.seed + lap)), before
            before = asyncio.run(server.settled(since))
            if not _growth(since, before):
                break
        tally = asyncio.run(load.run(60 * args.minutes, args.seed + _LAPS))
        after = asyncio.run(server.settled(before))
        findings = [*warm.findings, *tally.findings, *_growth(before, after)]
        try:
            code = server.stop()
            findings += [f"the server ends by exit code {code}"] if code else []
        except subprocess.TimeoutExpired:
            findings.append("the server does not end")
        findings += [f"the server writes {text}" for text in server.complaints().splitlines()[:_SHOWN]]
    departures, wrong = _departures(single, [*warm.wrong, *tally.wrong])
    row = {"file": path.stem, "device": device, "clients": args.clients, "slots": args.slots, "minutes": args.minutes}
    row |= {"tokens_per_s": tally.tokens / tally.seconds, **departures}
    return row | _figures(tally) | {"findings": [*findings, *wrong]}


def _growth(before: Held, after: Held) -> list[str]:
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in Held._fields]
    return [f"{name} grew from {a:,} to {b:,}" for name, a, b in pairs if b - a > _SLACK.get(name, 0)]


def _departures(single: SingleRuns, wrong: Sequence[tuple[Question, str]]) -> tuple[dict[str, Any], list[str]]:
    """Return how many answers differ by the order of sums, with the largest lead, and the other differences."""
    leads: list[float] = []
    found: list[str] = []
    for question, text in wrong:
        d = single.departure(question, text)
        if d.is_tie:
            leads.append(d.lead / d.error if d.error else 0.0)
            continue
        expected = question.texts[-1]
        found.append(
            f"{text!r} departs from {expected!r} after {d.place} tokens, where the best leads by {d.lead:.3g} and "
            f"roundings are {d.error:.3g}"
        )
    return {"ties": len(leads), "largest_lead_in_errors": max(leads, default=0.0)}, found


def _figures(tally: Tally) -> dict[str, Any]:
    """Return counts, percentiles of times in milliseconds, and the course of resources."""
    row: dict[str, Any] = {"counts": dict(sorted(tally.counts.items()))}
    for name, seconds in (("first_token", tally.first), ("between_tokens", tally.between), ("answer", tally.whole)):
        values = 1000 * np.percentile(seconds, (50, 95, 99)) if seconds else np.zeros(3)
        row[f"{name}_ms"] = [round(float(v), 2) for v in values]
    waiting = [held.waiting for _, held in tally.course]
    row["waiting"] = [float(np.median(waiting)), max(waiting)]
    last = tally.course[-1][0]
    kept = [min(tally.course, key=lambda at: abs(at[0] - last * i / _ROWS)) for i in range(_ROWS + 1)]
    row["course"] = {f"{seconds:.0f} s": held._asdict() for seconds, held in kept}
    return row


def _show(row: dict[str, Any]) -> None:
    print(
        f"{row['file']} on {row['device']}: {row['clients']} clients, {row['slots']} slots, {row['minutes']:g} minutes"
    )
    print(f"  {row['tokens_per_s']:,.1f} tokens/s;", ", ".join(f"{n:,} {name}" for name, n in row["counts"].items()))
    print("  milliseconds (median, 95 %, 99 %):", end="")
    for name in ("first_token", "between_tokens", "answer"):
        print(f" {name.replace('_', ' ')} {', '.join(f'{v:,.1f}' for v in row[f'{name}_ms'])};", end="")
    print(
        f"\n  waiting: median {row['waiting'][0]:.0f}, at most {row['waiting'][1]}; {row['ties']} answers differ by a tie"
    )
    for moment, held in row["course"].items():
        figures = f"{held['resident'] / 1e6:,.0f} MB, device {held['device'] / 1e6:,.1f} MB, {held['files']} files"
        print(f"  {moment:>7}: {figures}, {held['threads']} threads, {held['running']} run, {held['waiting']} wait")
    for finding in row["findings"][:_SHOWN]:
        print(f"  FINDING: {finding}")
    if len(row["findings"]) > _SHOWN:
        print(f"  and {len(row['findings']) - _SHOWN} more")
