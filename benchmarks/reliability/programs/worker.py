"""A process of the campaign: runs the programs of some seeds on a device, and prints a line of JSON for each."""

from __future__ import annotations

import json
import select
import sys
import traceback
import warnings
from collections import Counter
from typing import Any

import polyhal
from benchmarks.reliability.programs.generate import generate
from benchmarks.reliability.programs.known import explained
from benchmarks.reliability.programs.modes import MODES, Outcome, together
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.reduce import as_test, reduced

_TURNS = {
    "captured": (8, 1),
    "captured forward": (8, 5),
    "torch eager": (16, 2),
    "torch recorded": (32, 6),
    "torch compiled": (512, 14),
}
"""A program whose seed has this remainder also runs in the mode; every one runs eagerly."""
_TOGETHER = (16, 9)
"""A program whose seed has this remainder runs at the same time as the one before it, in another thread."""


def one(seed: int, device: polyhal.Device) -> dict[str, Any]:
    """Run the program of a seed in the modes whose turn it is. Returns counts and findings."""
    program = generate(seed, doubles=not device.name.startswith("wgpu"))
    modes = ["eager", *(m for m, (period, turn) in _TURNS.items() if seed % period == turn)]
    seen = {mode: _in_mode(program, mode, device) for mode in modes}
    findings = [text for mode, outcome in seen.items() if (text := _finding(program, mode, device, outcome))]
    if seed % _TOGETHER[0] == _TOGETHER[1] and not findings:
        before = generate(seed - 1, doubles=not device.name.startswith("wgpu"))
        seen["threads"], other = together([program, before], device)
        findings += [f"seed {seed}, threads: {d}" for d in seen["threads"].differences if not explained(program, d)][:1]
        findings += [f"seed {seed - 1}, threads: {d}" for d in other.differences if not explained(before, d)][:1]
    known = Counter(name for o in seen.values() for name in {explained(program, d) for d in o.differences} if name)
    return {
        "seed": seed,
        "statements": len(program.statements),
        "ops": sorted({s.op for s in program.statements}),
        "modes": {mode: 1 for mode, o in seen.items() if not o.refused},
        "refused": sum(bool(o.refused) for o in seen.values()),
        "known": known,
        "findings": findings,
    }


def _in_mode(program: Program, mode: str, device: polyhal.Device) -> Outcome:
    return MODES[mode](program, device)


def _finding(program: Program, mode: str, device: polyhal.Device, outcome: Outcome) -> str:
    """What differs, with the smallest program that shows it; empty if nothing does."""
    differences = [d for d in outcome.differences if not explained(program, d)]
    if not differences:
        return ""
    kind = differences[0].kind

    def fails(candidate: Program) -> bool:
        found = MODES[mode](candidate, device).differences
        return any(d.kind == kind and not explained(candidate, d) for d in found)

    small = reduced(program, fails, 400 if mode == "eager" else 60)
    return f"seed {program.seed}, {mode}: {differences[0]}\n{as_test(small)}"


def main() -> None:
    """Run the seeds of the command line, until standard input is closed."""
    warnings.simplefilter("ignore")
    device = polyhal.Device(sys.argv[1])
    for seed in range(int(sys.argv[2]), int(sys.argv[3])):
        if select.select([sys.stdin], [], [], 0)[0]:
            return
        try:
            line = one(seed, device)
        except Exception as error:
            trace = traceback.format_exc(limit=-3)
            line = {"seed": seed, "statements": 0, "ops": [], "modes": {}, "refused": 0, "known": {}}
            line["findings"] = [f"seed {seed}: {type(error).__name__} of the campaign itself: {trace}"]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
