"""Run libraries from PyPI on the device "polyhal", in three modes: `python -m tests.torch.libraries --only Llama`.

Each is run if it is installed. The outcome is printed as JSON, a line for each program and mode. `--record` merges it into
tests/torch/libraries/results.json and writes the page docs/torch-libraries.md. POLYHAL_DEVICE selects the device. `--timed`
measures speed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict

from tests.torch.libraries.cases import MODES, Case
from tests.torch.libraries.measurement import RUNS, Result
from tests.torch.libraries.page import PAGE, load, page, record
from tests.torch.libraries.processes import files, run_files


def main() -> int:
    """Run, print and record; return 1 if a program fails or differs."""
    arguments = _parse(sys.argv[1:])
    device = os.environ.setdefault("POLYHAL_DEVICE", "numpy")
    os.environ["HF_HUB_OFFLINE"] = "1"
    words = arguments.only.split(",")

    def is_chosen(case: Case) -> bool:
        return any(word in f"{case.library} {case.name}" for word in words)

    names = [n for n in files() if any(word in n for word in arguments.files.split(","))]
    modes = arguments.modes.split(",")
    results: list[Result] = []
    for result in run_files(names, is_chosen, modes, device, arguments.timed) if not arguments.page else ():
        results.append(result)
        print(json.dumps({**asdict(result), "native": round(result.native, 4)}), flush=True)
        if arguments.record:
            record([result])
    if arguments.record or arguments.page:
        PAGE.write_text(page(load()), encoding="utf-8")
    return int(any(r.state not in RUNS for r in results))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch.libraries", description=__doc__)
    parser.add_argument("page", nargs="?", choices=["page"], help="write the page alone")
    parser.add_argument("--files", default="", help="files whose name contains this text; several by commas")
    parser.add_argument("--only", default="", help="programs whose library or name contains it; several by commas")
    parser.add_argument("--modes", default=",".join(MODES), help="modes, by commas")
    parser.add_argument("--record", action="store_true", help="write figures and page")
    parser.add_argument("--timed", action="store_true", help="measure speed")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
