"""Replay PyTorch's databases on a device: `python -m tests.pytorch ops --device numpy --only softmax`.

`ops` (the default) replays calls of functions, `modules` layers with their state dicts,
`optimizers` steps with theirs; `page` writes
docs/coming-from-pytorch.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from polyhal import Device
from tests.pytorch import modules, ops, optimizers
from tests.pytorch.outcome import Outcome, report, summary
from tests.pytorch.page import PAGE, page

Replay = Callable[[str, bool, list[torch.dtype], Device, int | None], Iterator[list[Outcome]]]
"""From part of a name, whether it is the whole name, dtypes, device and a limit to the outcomes of each entry."""
DATABASES: dict[str, tuple[Replay, str]] = {
    "ops": (ops.replay_database, "float32,int64,bool"),
    "modules": (modules.replay_database, "float32"),
    "optimizers": (optimizers.replay_database, "float32"),
}
"""What replays a database, and in which dtypes unless others are given."""


def main() -> int:
    """Print every disagreement and a summary; return 0 if all sensible cases agree."""
    if sys.argv[1:] == ["page"]:
        PAGE.write_text(page())
        return 0
    arguments = _parse(sys.argv[1:])
    replay, kinds = DATABASES[arguments.database]
    dtypes = [getattr(torch, name) for name in (arguments.dtypes or kinds).split(",")]
    device = Device(arguments.device)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    for only in arguments.only.split(","):
        for new in replay(only, arguments.exact, dtypes, device, arguments.limit):
            outcomes += new
            report(new, arguments.quiet)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    print(f"{summary(outcomes)} ({time.perf_counter() - begin:.0f} s)")
    return int(not all(o.is_fine for o in outcomes))


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
        command.add_argument("--json", type=Path)
        command.add_argument("--quiet", action="store_true", help="one line per entry that disagrees")
    if not words or words[0] not in (*DATABASES, "-h", "--help"):
        words = ["ops", *words]
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
