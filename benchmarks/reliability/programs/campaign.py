"""The campaign of programs: processes that run the programs of ascending seeds on a device, and what they found.

Results are kept in benchmarks/results/programs.json, and a later campaign goes on with the next seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks import result_files
from benchmarks.reliability.processes import ROOT
from benchmarks.reliability.programs.workers import results

RESULT = ROOT / "benchmarks" / "results" / "programs.json"
DEVICES = ("numpy", "opencl:intel", "opencl:pocl", "wgpu")


def main(arguments: Sequence[str]) -> int:
    """Run the campaign that the command line describes. Returns 1 if it found something."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability fuzz", description="Random programs on devices."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, for all devices together (default: 10)")
    parser.add_argument("--programs", type=int, default=10**9, help="stop a device at so many programs in all")
    parser.add_argument("--devices", default=",".join(DEVICES), help="devices, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--seed", type=int, help="the first seed (default: after the last one that ran)")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results of these devices")
    parser.add_argument(
        "--mutations", action="store_true", help="plant faults instead, and count programs until one is found"
    )
    options = parser.parse_args(arguments)
    if options.mutations:
        from benchmarks.reliability.programs.mutations import hunt_all

        return _with_page({"mutations": hunt_all(60 * options.minutes)})
    devices = options.devices.split(",")
    earlier = {} if options.fresh else dict(_read().get("runs", {}))
    found = 0
    for name in devices:
        counts = earlier.get(name) or _nothing()
        new = run(name, 60 * options.minutes / len(devices), counts, options.jobs, options.programs, options.seed)
        found += len(new)
        print(
            f"{name}: {counts['programs']:,} programs, {counts['rate']} a second, {len(new)} new findings",
            *new,
            sep="\n\n",
        )
        _with_page({"runs": _read().get("runs", {}) | {name: counts}})
    return 1 if found else 0


def _nothing() -> dict[str, Any]:
    return {
        "programs": 0, "statements": 0, "next_seed": 0, "seconds": 0.0, "rate": 0.0, "modes": {}, "refused": 0, "known": {},
        "ops": [], "findings": [],
    }  # fmt: skip


def run(
    device: str, seconds: float, counts: dict[str, Any], jobs: int, programs: int, first: int | None = None
) -> list[str]:
    """Run programs on a device until the time is over, and add to its counts. Returns the new findings."""
    begin, before = time.monotonic(), counts["programs"]
    seeds = itertools.count(counts["next_seed"] if first is None else first)
    wanted = itertools.islice(seeds, max(0, programs - before))
    new: list[str] = []
    ops = set(counts["ops"])
    for result in results(device, itertools.takewhile(lambda _: time.monotonic() - begin < seconds, wanted), jobs):
        new += _add(counts, ops, result)
        counts["next_seed"] = max(counts["next_seed"], result["seed"] + 1)
    spent = time.monotonic() - begin
    counts["ops"] = sorted(ops)
    counts["findings"] += new
    counts["seconds"] = round(counts["seconds"] + spent, 1)
    counts["rate"] = round((counts["programs"] - before) / spent / jobs, 1)
    return new


def _add(counts: dict[str, Any], ops: set[str], line: dict[str, Any]) -> list[str]:
    """Add one program's results. Returns its findings."""
    counts["programs"] += 1
    counts["statements"] += line["statements"]
    ops |= set(line["ops"])
    counts["modes"] = dict(Counter(counts["modes"]) + Counter(line["modes"]))
    counts["refused"] += line["refused"]
    counts["known"] = dict(Counter(counts["known"]) + Counter(line["known"]))
    found: list[str] = line["findings"]
    return found


def _read() -> dict[str, Any]:
    return dict(json.loads(RESULT.read_text(encoding="utf-8"))) if RESULT.exists() else {}


def _with_page(new: dict[str, Any]) -> int:
    """Add results to the file, and write the page again."""
    from benchmarks.reliability.page import PAGE, page
    from benchmarks.reliability.page import RESULT as CAMPAIGNS

    kept = {k: v for k, v in _read().items() if k in ("runs", "mutations")}
    result_files.write(RESULT, {"benchmark": "programs", **result_files.describe_machine(()), **kept, **new})
    PAGE.write_text(page(json.loads(CAMPAIGNS.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0
