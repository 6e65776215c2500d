"""The campaign of programs: processes that run the programs of ascending seeds on a device, and their findings.

Results are kept in benchmarks/results/programs.json, and a later campaign goes on with the next seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import result_files
from benchmarks.reliability.processes import ROOT
from benchmarks.reliability.programs.workers import results
from polyhal.hal.system.discovery import processor

RESULT = ROOT / "benchmarks" / "results" / "programs.json"
DEVICES = ("numpy", "opencl:intel", "opencl:pocl", "wgpu")
_SEED = re.compile(r"seed (\d+)")
_SHOWN_EACH = 60.0
"""Seconds after which results are written, so that a campaign that is stopped loses little."""


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
        "--again",
        action="store_true",
        help="run only the programs of earlier findings, and drop findings that are mended",
    )
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
        if options.again:
            found += again(name, counts, options.jobs)
            _with_page({"runs": _read().get("runs", {}) | {name: counts}})
            continue
        new: list[str] = []
        for _ in run(
            name, 60 * options.minutes / len(devices), counts, new, options.jobs, options.programs, options.seed
        ):
            _with_page({"runs": _read().get("runs", {}) | {name: counts}})
        found += len(new)
        print(
            f"{name}: {counts['programs']:,} programs, {counts['rate']} a second, {len(new)} new findings",
            *new,
            sep="\n\n",
        )
    return 1 if found else 0


def _nothing() -> dict[str, Any]:
    return {
        "programs": 0,
        "statements": 0,
        "next_seed": 0,
        "seconds": 0.0,
        "rate": 0.0,
        "modes": {},
        "refused": 0,
        "known": {},
        "ops": [],
        "findings": [],
    }


def run(
    device: str,
    seconds: float,
    counts: dict[str, Any],
    new: list[str],
    jobs: int,
    programs: int,
    first: int | None = None,
) -> Iterator[None]:
    """Run programs on a device until the time is over, and add to its counts and findings. Yields each minute and last."""
    begin, before, earlier = time.monotonic(), counts["programs"], list(counts["findings"])
    seeds = itertools.count(counts["next_seed"] if first is None else first)
    wanted = itertools.islice(seeds, max(0, programs - before))
    ops = set(counts["ops"])
    until, shown = counts["seconds"], begin
    for result in results(device, itertools.takewhile(lambda _: time.monotonic() - begin < seconds, wanted), jobs):
        new += _add(counts, ops, result)
        counts["next_seed"] = max(counts["next_seed"], result["seed"] + 1)
        spent = time.monotonic() - begin
        counts |= {
            "machine": f"{os.cpu_count()} cores of {processor.model()}",
            "ops": sorted(ops),
            "findings": earlier + new,
            "seconds": round(until + spent, 1),
            "rate": round((counts["programs"] - before) / spent / jobs, 1),
        }
        if time.monotonic() - shown > _SHOWN_EACH:
            shown = time.monotonic()
            yield
    yield


def again(device: str, counts: dict[str, Any], jobs: int) -> int:
    """Run the programs of a device's findings again, and replace the findings. Returns the number that are left."""
    seeds = sorted({int(found[1]) for text in counts["findings"] if (found := _SEED.match(text))})
    before, counts["findings"] = len(counts["findings"]), []
    for result in results(device, iter(seeds), jobs):
        counts["findings"] += result["findings"]
        counts["known"] = dict(Counter(counts["known"]) + Counter(result["known"]))
    left = len(counts["findings"])
    counts["mended"] = counts.get("mended", 0) + before - left
    print(f"{device}: {before} findings again, {left} left", *counts["findings"], sep="\n\n")
    return left


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
