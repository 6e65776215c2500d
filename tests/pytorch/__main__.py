"""Replay PyTorch's databases on a device: `python -m tests.pytorch --device numpy --only softmax`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch

from polyhal import Device
from tests.pytorch.database import POLYHAL_DTYPES, entries
from tests.pytorch.replay import Outcome, replay, summary


def main() -> int:
    """Print every disagreement and a summary; return 0 if all sensible cases agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch", description=__doc__)
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--only", default="", help="entries whose name contains this text; several by commas")
    parser.add_argument("--dtypes", default=",".join(str(d).removeprefix("torch.") for d in POLYHAL_DTYPES))
    parser.add_argument("--limit", type=int, help="sample calls per entry and dtype")
    parser.add_argument("--exact", action="store_true", help="`--only` gives whole names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quiet", action="store_true", help="one line per entry that disagrees")
    arguments = parser.parse_args()
    device = Device(arguments.device)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    for only in arguments.only.split(","):
        for entry in entries(only):
            if arguments.exact and entry.name != only:
                continue
            for dtype in arguments.dtypes.split(","):
                new = list(replay(entry, getattr(torch, dtype), device, limit=arguments.limit))
                outcomes += new
                _report(new, arguments.quiet)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    print(f"{summary(outcomes)} ({time.perf_counter() - begin:.0f} s)")
    return int(any(o.verdict not in ("agrees", "senseless") for o in outcomes))


def _report(outcomes: list[Outcome], quiet: bool) -> None:
    bad = [o for o in outcomes if o.verdict not in ("agrees", "senseless")]
    if bad and quiet:
        counts = ", ".join(f"{n} {v}" for v, n in Counter(o.verdict for o in outcomes).items())
        print(f"{bad[0].name} {bad[0].dtype}: {counts}; {bad[0].detail[:120]}")
    elif bad:
        absent = [o for o in bad if o.verdict == "missing"]
        if absent:
            print(f"{absent[0].name} {absent[0].dtype} missing: {len(absent)} cases")
        for o in bad:
            if o.verdict == "missing":
                continue
            print(f"{o.name} {o.dtype} {o.verdict}: ({o.call}) {o.detail}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
