"""The command line of the replays of layers and optimizers."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import polyhal.torch
from polyhal.hal.device import Device
from tests.torch.placement import LEAST_SHARE, Case, figures_of, record


def run(database: str, replay_database: Callable[[str, int | None], Iterator[Case]]) -> int:
    """Replay, print cases that are not on the device and a summary; return 0 if enough cases agree."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.torch.{database}")
    parser.add_argument("--device", default="numpy", help="the device of Polyhal")
    parser.add_argument("--only", default="", help="entries whose name contains this text")
    parser.add_argument("--limit", type=int, help="cases per entry")
    parser.add_argument("--json", type=Path, help="write every case to this file")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/torch/placement.json")
    arguments = parser.parse_args()
    if arguments.record and (arguments.only or arguments.limit):
        parser.error("--record writes the figures of whole databases; leave --only and --limit out")
    polyhal.set_default_device(Device(arguments.device))
    os.environ["POLYHAL_FALLBACK"] = "allow"
    begin, cases = time.perf_counter(), []
    for case in replay_database(arguments.only, arguments.limit):
        cases.append(case)
        if case.outcome is not None and case.outcome.state != "device":
            print(
                f"{case.name}{case.text}: {case.outcome.state} {', '.join(case.outcome.ops)}{case.outcome.detail}",
                flush=True,
            )
    figures = figures_of(database, arguments.device, cases)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(c) for c in cases], indent=1))
    if arguments.record:
        record(figures)
    seconds = time.perf_counter() - begin
    print(
        f"{figures.total} cases: {figures.states}, {figures.share:.2f} % agree ({seconds:.0f} s on {arguments.device})"
    )
    return int(figures.share < LEAST_SHARE)
