"""A process of the campaign: runs the programs of the seeds that it reads on a device, and prints a line of JSON for each."""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable

import polyhal
from benchmarks.reliability.programs.generate import generate
from benchmarks.reliability.programs.modes import MODES, Outcome, together
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.reduce import as_test, reduced
from benchmarks.reliability.programs.workers import LIFE, PATIENCE, Result, nothing

_TURNS = {
    "captured": (8, 1),
    "captured forward": (8, 5),
    "torch eager": (16, 2),
    "torch recorded": (32, 6),
    "torch compiled": (512, 14),
}
"""A program whose seed has this remainder also runs in the mode; every one runs eagerly."""
_COMPILED_PERIOD = 32
"""Minimum period of modes on devices that compile kernels: a captured program needs several that no other program has."""
_TOGETHER = (16, 9)
"""A program whose seed has this remainder runs at the same time as the one before it, in another thread."""


def one(seed: int, device: polyhal.Device, begins: Callable[[str], object] = lambda mode: None) -> Result:
    """Run the program of a seed in the modes whose turn it is, each announced by `begins`. Returns counts and findings."""
    program = generate(seed, device.name)
    modes = ["eager", *(m for m, turn in _TURNS.items() if _is_turn(seed, *turn, device))]
    seen = {}
    for mode in modes:
        begins(mode)
        seen[mode] = MODES[mode](program, device)
    findings = [text for mode, outcome in seen.items() if (text := _finding(program, mode, device, outcome))]
    if seed % _TOGETHER[0] == _TOGETHER[1] and not findings:
        begins("threads")
        before = generate(seed - 1, device.name)
        seen["threads"], other = together([program, before], device)
        findings += [f"seed {seed}, threads: {d}" for d in seen["threads"].findings()][:1]
        findings += [f"seed {seed}, threads, program of seed {seed - 1}: {d}" for d in other.findings()][:1]
    return nothing(seed) | {
        "statements": len(program.statements),
        "ops": sorted({s.op for s in program.statements}),
        "modes": {mode: 1 for mode, o in seen.items() if not o.refused},
        "refused": sum(bool(o.refused) for o in seen.values()),
        "known": Counter(name for o in seen.values() for name in o.known()),
        "findings": findings,
    }


def _is_turn(seed: int, period: int, turn: int, device: polyhal.Device) -> bool:
    """Return whether the program of a seed runs in the mode of this turn."""
    return seed % (period if device.name.startswith("numpy") else max(period, _COMPILED_PERIOD)) == turn


def _finding(program: Program, mode: str, device: polyhal.Device, outcome: Outcome) -> str:
    """Describe the first difference, with the smallest program that shows it; empty if nothing differs."""
    differences = outcome.findings()
    if not differences:
        return ""
    kind = differences[0].kind

    def fails(candidate: Program) -> bool:
        return any(d.kind == kind for d in MODES[mode](candidate, device).findings())

    small = reduced(program, fails, 400 if mode == "eager" else 60)
    return f"seed {program.seed}, {mode}: {differences[0]}\n{as_test(small)}"


def main() -> None:
    """Run the seeds of standard input, one a line, until it is closed or the process has run enough of them."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    device = polyhal.Device(sys.argv[1])
    for number, line in enumerate(sys.stdin, 1):
        seed = int(line)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            result = one(seed, device, lambda mode: print(mode, flush=True))
        except Exception as error:
            trace = traceback.format_exc(limit=-3)
            found = f"seed {seed}: {type(error).__name__} of the campaign itself: {trace}"
            result = nothing(seed) | {"findings": [found]}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(result | {"last": number == LIFE}), flush=True)
        if number == LIFE:
            return


if __name__ == "__main__":
    main()
