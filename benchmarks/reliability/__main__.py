"""Run the campaigns in their long form: `python -m benchmarks.reliability [--only NAMES] [--minutes N]`, or `fuzz --minutes N`.

Each runs in its own process. The counts go to benchmarks/results/reliability.json, from which docs/reliability.md is
made.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import result_files
from benchmarks.reliability.campaigns import CAMPAIGNS
from benchmarks.reliability.page import PAGE, RESULT, page


def main(arguments: Sequence[str]) -> int:
    """Run the campaigns that `arguments` name. Returns the exit code: 0, or 1 if there are findings."""
    if arguments[:1] == ["fuzz"]:
        from benchmarks.reliability.programs import campaign

        return campaign.main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--only", default=",".join(CAMPAIGNS), help=f"campaigns, separated by commas: {', '.join(CAMPAIGNS)}"
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="how long to train in the campaign of soak (default: 30)"
    )
    parser.add_argument("--campaign", choices=CAMPAIGNS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.campaign:
        print(json.dumps(CAMPAIGNS[options.campaign].counts(options.minutes)))
        return 0
    names = options.only.split(",")
    unknown = [n for n in names if n not in CAMPAIGNS]
    if unknown:
        parser.error(f"there is no campaign {unknown[0]!r}; expected {', '.join(CAMPAIGNS)}")
    found = 0
    for name in names:
        counts = _run(name, options.minutes)
        print(f"{name}: {counts['seconds']:.0f} s, {len(counts['findings'])} findings", *counts["findings"], sep="\n  ")
        found += len(counts["findings"])
    PAGE.write_text(page(json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {RESULT} and {PAGE}")
    return 1 if found else 0


def _run(name: str, minutes: float) -> dict[str, Any]:
    """Run a campaign in its own process, and add its counts to the result file."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.reliability", "--campaign", name, "--minutes", str(minutes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    counts |= {"date": datetime.date.today().isoformat(), "seconds": round(time.monotonic() - begin, 1)}
    before = json.loads(RESULT.read_text(encoding="utf-8"))["campaigns"] if RESULT.exists() else {}
    campaigns = {n: counts if n == name else before[n] for n in CAMPAIGNS if n == name or n in before}
    result_files.write(
        RESULT, {"benchmark": "reliability", **result_files.describe_machine(()), "campaigns": campaigns}
    )
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
