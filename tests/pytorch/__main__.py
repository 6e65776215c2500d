"""Replay PyTorch's databases on a device: `python -m tests.pytorch ops --device numpy --only softmax`.

`ops` (the default) replays calls of functions, `modules` layers with their state dicts, `optimizers` steps with theirs.
`all` replays all three on several devices, writes the figures to tests/pytorch/results.json and prints them as a table;
`table` prints them without a replay. `page` writes docs/coming-from-pytorch.md. The exit status is 1 if less than 99 % of
the sensible cases agree, in any row of the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from polyhal import Device
from tests.pytorch import modules, ops, optimizers
from tests.pytorch.outcome import Outcome, report, summary
from tests.pytorch.page import PAGE, page
from tests.pytorch.results import Row, is_enough, load, record, rows_of, table

Replay = Callable[[str, bool, list[torch.dtype], Device, int | None], Iterator[list[Outcome]]]
"""From part of a name, whether it is the whole name, dtypes, device and a limit to the outcomes of each entry."""
DATABASES: dict[str, tuple[Replay, str]] = {
    "ops": (ops.replay_database, "float32,int64,bool"),
    "modules": (modules.replay_database, "float32"),
    "optimizers": (optimizers.replay_database, "float32"),
}
"""Function that replays a database, and its default dtypes."""
_ALL_DTYPES = "float32,float64,float16,bfloat16,int64,int32,uint8,bool"


def main() -> int:
    """Print every disagreement and a summary; return 0 if enough cases agree."""
    arguments = _parse(sys.argv[1:])
    if arguments.database == "page":
        PAGE.write_text(page())
        return 0
    if arguments.database == "table":
        rows = load()
    elif arguments.database == "all":
        rows = _replay_all(arguments.devices.split(","), arguments.limit)
    else:
        return _replay(arguments)
    print(table(rows))
    return int(not is_enough(rows))


def _replay(arguments: argparse.Namespace) -> int:
    replay, kinds = DATABASES[arguments.database]
    dtypes = _dtypes(arguments.dtypes or kinds)
    device = Device(arguments.device)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    for only in arguments.only.split(","):
        for new in replay(only, arguments.exact, dtypes, device, arguments.limit):
            outcomes += new
            report(new, arguments.quiet)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    rows = rows_of(arguments.database, arguments.device, arguments.limit, outcomes)
    if arguments.record:
        record(rows)
    print(f"{summary(outcomes)} ({time.perf_counter() - begin:.0f} s)")
    return int(not is_enough(rows))


def _replay_all(devices: Sequence[str], limit: int | None) -> list[Row]:
    """Replay every database: on the first device all calls in all dtypes, on the others at most `limit` calls in two."""
    for number, device in enumerate(devices):
        for database, (replay, kinds) in DATABASES.items():
            names = _ALL_DTYPES if database == "ops" else kinds
            if number:
                names = "float32,int64" if database == "ops" else kinds
            most = limit if number else None
            begin = time.perf_counter()
            outcomes = [o for new in replay("", False, _dtypes(names), Device(device), most) for o in new]
            print(f"{database} on {device}: {summary(outcomes)} ({time.perf_counter() - begin:.0f} s)", flush=True)
            record(rows_of(database, device, most, outcomes))
    return [row for row in load() if row.device in devices]


def _dtypes(names: str) -> list[torch.dtype]:
    return [getattr(torch, name) for name in names.split(",")]


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch", description=__doc__)
    commands = parser.add_subparsers(dest="database")
    for name, (_, kinds) in DATABASES.items():
        command = commands.add_parser(name)
        command.add_argument("--device", default="numpy")
        command.add_argument("--only", default="", help="entries whose name contains this text; several by commas")
        command.add_argument("--dtypes", default="", help=f"by commas; {kinds} unless given")
        command.add_argument("--limit", type=int, help="sample calls per entry and dtype")
        command.add_argument("--exact", action="store_true", help="`--only` gives whole names")
        command.add_argument("--json", type=Path, help="write every outcome to this file")
        command.add_argument("--record", action="store_true", help="write the figures to tests/pytorch/results.json")
        command.add_argument("--quiet", action="store_true", help="one line per entry that disagrees")
    command = commands.add_parser("all")
    command.add_argument("--devices", default="numpy", help="by commas; all calls on the first, some on the others")
    command.add_argument(
        "--limit", type=int, default=2, help="sample calls per entry and dtype, but on the first device"
    )
    commands.add_parser("table")
    commands.add_parser("page")
    if not words or words[0] not in (*commands.choices, "-h", "--help"):
        words = ["ops", *words]
    arguments = parser.parse_args(words)
    if getattr(arguments, "record", False) and arguments.only:
        parser.error("--record writes the figures of whole databases; leave --only out")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
