"""Replay PyTorch's database of ops on the device "polyhal": `python -m tests.torch.database --only softmax`.

Without `--only` and `--dtype` it replays everything, writes tests/torch/database/results.json and the page
docs/torch-coverage.md, and takes some minutes. With them, it prints calls that are not wholly on the device; `--record` adds
them to the figures and the page as well.
`page` writes the page from the committed figures. POLYHAL_DEVICE selects the device.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from polyhal import Device, set_default_device
from tests.pytorch.database import full_name, op_database
from tests.torch.database.core_opset import core_opset
from tests.torch.database.page import PAGE, page
from tests.torch.database.replay import SAMPLES, replay
from tests.torch.database.results import load, record
from tests.torch.database.states import STATES, EntryOutcome, Outcome

_SECONDS_PER_ENTRY = 120


def main() -> int:
    """Replay, print and record; return 1 if a result differs from the CPU's."""
    arguments = _parse(sys.argv[1:])
    outcomes: list[EntryOutcome] = []
    if not arguments.page:
        begin = time.perf_counter()
        outcomes += _replayed(arguments)
        for o in outcomes:
            _print(o)
        counts = Counter(o.function.state for o in outcomes if not o.kind)
        print(", ".join(f"{counts[s]} {s}" for s in STATES), f"({time.perf_counter() - begin:.0f} s)")
        if _is_whole(arguments) or arguments.record:
            record(outcomes, core_opset(), arguments.limit, whole=not arguments.only)
    if arguments.page or arguments.record or _is_whole(arguments):
        PAGE.write_text(page(load()), encoding="utf-8")
    return int(any(o.function.state == "differs" for o in outcomes))


def _is_whole(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments select the complete database, as the figures require."""
    return not arguments.only and not arguments.dtype


def _replayed(arguments: argparse.Namespace) -> Iterator[EntryOutcome]:
    os.environ["POLYHAL_FALLBACK"] = "allow"
    torch.set_num_threads(1)
    torch.set_printoptions(profile="short")
    words = arguments.only.split(",")
    names = [n for n in map(full_name, op_database()) if any(n == w if arguments.exact else w in n for w in words)]
    jobs = [(name, arguments.limit, arguments.dtype) for name in names]
    # Importing the database is slow and done once; each process opens the device itself.
    with multiprocessing.get_context("fork").Pool(
        arguments.processes, _open, (os.environ.get("POLYHAL_DEVICE"),)
    ) as pool:
        for outcome in pool.imap(_replay, jobs):
            if outcome is not None:
                yield outcome


def _open(device: str | None) -> None:
    set_default_device(Device(device or "numpy"))


def _replay(job: tuple[str, int, str]) -> EntryOutcome | None:
    name, limit, dtype = job
    entry = next(e for e in op_database() if full_name(e) == name)

    def give_up(*_: Any) -> None:
        raise TimeoutError(f"no end after {_SECONDS_PER_ENTRY} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS_PER_ENTRY)
    try:
        return replay(entry, limit, getattr(torch, dtype) if dtype else None)
    except Exception as error:
        return EntryOutcome(name, "", "", Outcome("refused", (), f"{type(error).__name__}: {error}"))
    finally:
        signal.alarm(0)


def _print(o: EntryOutcome) -> None:
    for form in ("function", "in_place", "out"):
        found = getattr(o, form)
        if found is not None and found.state != "device":
            which = "" if form == "function" else f" {form}"
            print(f"{o.name}{which} {found.state} {o.kind}: {', '.join(found.ops)}{found.detail}")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch.database", description=__doc__)
    parser.add_argument("page", nargs="?", choices=["page"], help="write the page alone")
    parser.add_argument("--only", default="", help="entries whose name contains this text; several by commas")
    parser.add_argument("--exact", action="store_true", help="`--only` gives whole names")
    parser.add_argument(
        "--dtype", default="", help="print how entries do in this dtype, such as int64, and record nothing"
    )
    parser.add_argument("--limit", type=int, default=SAMPLES, help="samples per entry")
    parser.add_argument("--record", action="store_true", help="write figures and page also with `--only`")
    parser.add_argument("-n", "--processes", type=int, default=2)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
