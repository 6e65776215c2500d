"""Committed figures, and the page docs/torch-libraries.md generated from them."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.pytorch.page import version
from tests.torch.libraries.cases import MODES
from tests.torch.libraries.comparison import FACTOR, LIMIT, TOLERANCE
from tests.torch.libraries.measurement import RUNS, STATES, Result

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[3] / "docs" / "torch-libraries.md"
_DEVICES = {"opencl:intel": "Intel's OpenCL runtime", "numpy": "NumPy"}
_TIMED = "opencl:intel"
"""Device of the speeds."""
Program = tuple[str, str]
"""Library and name of a program."""


def load(path: Path = RESULTS) -> list[Result]:
    """Return the committed figures."""
    if not path.exists():
        return []
    results = [Result(**r) for r in json.loads(path.read_text(encoding="utf-8"))]
    for r in results:
        r.from_exact = None if r.from_exact is None else (r.from_exact[0], r.from_exact[1])
    return results


def record(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Write figures, replacing figures of the same programs, devices and modes."""
    kept = {(r.library, r.name, r.device, MODES.index(r.mode)): r for r in [*load(path), *results]}
    lines = ",\n".join(json.dumps(asdict(r)) for _, r in sorted(kept.items()))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def page(results: list[Result]) -> str:
    """Return the text of the page."""
    programs = sorted({(r.library, r.name) for r in results})
    libraries = len({library for library, _ in programs})
    releases = " and ".join(sorted({version(r.pytorch) for r in results}))
    text = f"""\
        {len(programs)} programs of {libraries} libraries as PyPI has them, with {releases}: small models with
        random parameters, against the same program on PyTorch's CPU in float32. Most are four training steps with an optimizer;
        others compute, generate or sample. *Eager* runs op by op. *Recorded* is the whole step by `polyhal.torch.jit`,
        *compiled* the forward pass by `torch.compile` without a backend, both of [PyTorch programs](torch.md). A program
        agrees if the largest difference of each output of all steps, and of each gradient, parameter and buffer after them,
        is below {TOLERANCE:g} of the tensor's largest element, or of 1e-4 of the model's largest where that is more;
        integers, such as generated tokens, have to be equal. Where float32 is less exact than that, the device may be
        {FACTOR} times as far from float64 as the CPU is, if that is at most {LIMIT:g}. `python -m tests.torch.libraries` runs
        them."""
    return "\n".join(
        [
            "# Libraries on PyTorch's device",
            "",
            *_wrapped(text),
            "",
            *_totals(results),
            "",
            *_table(programs, results),
            "",
            *_notes(results),
        ]
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)


def _totals(results: Sequence[Result]) -> Iterator[str]:
    yield "| device | mode | programs | agree | of them run eagerly | refused | fail or differ | median speed |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for device, title in _DEVICES.items():
        for mode in MODES:
            chosen = [r for r in results if r.device == device and r.mode == mode]
            if not chosen:
                continue
            states = [r.state for r in chosen]
            agree = sum(s in RUNS for s in states)
            speeds = [r.speed for r in chosen if r.speed is not None and r.state == "agrees"]
            speed = f"{statistics.median(speeds):.2g}" if speeds else ""
            counts = [
                states.count("runs eagerly"),
                states.count("refused"),
                len(states) - agree - states.count("refused"),
            ]
            share = f"{agree} ({100 * agree / len(states):.0f} %)"
            yield f"| {title} | {mode} | {len(chosen)} | {share} | {' | '.join(map(str, counts))} | {speed} |"


def _table(programs: Sequence[Program], results: Sequence[Result]) -> Iterator[str]:
    yield from _wrapped(
        f"""For each mode the table has the largest difference on these devices, and the speed on {_DEVICES[_TIMED]}, where it
        was measured: the processor's time for an eager step of PyTorch on the CPU, divided by its time for a step, both on one
        core. These models are small, so that the time of an eager step is mostly Python's. Native is the share of calls of
        ops that ran on the device when eager."""
    )
    yield ""
    columns = " | ".join(f"{mode} | speed" for mode in MODES)
    yield f"| library | program | native, % | {columns} |"
    yield "|---|---|---:|" + "---:|---:|" * len(MODES)
    for library, name in programs:
        found = [r for r in results if (r.library, r.name) == (library, name)]
        shares = [r.native for r in found if r.mode == "eager" and r.calls]
        native = f"{100 * min(shares):.1f}" if shares else ""
        cells = " | ".join(_cell([r for r in found if r.mode == mode]) for mode in MODES)
        yield f"| {library} {found[0].version} | {name} | {native} | {cells} |"


def _cell(found: Sequence[Result]) -> str:
    """Return difference and speed of a program in a mode on all devices."""
    if not found:
        return " | "
    worst = max(found, key=lambda r: STATES.index(r.state))
    speed = next((f"{r.speed:.2g}" for r in found if r.device == _TIMED and r.speed), "")
    if worst.state != "agrees":
        return f"{worst.state} | {speed}"
    largest = max(max(r.outputs, r.gradients, r.parameters) for r in found)
    return f"{f'{largest:.0e}' if largest else 'equal'} | {speed}"


def _notes(results: Sequence[Result]) -> Iterator[str]:
    groups = {
        "Ops on the CPU": [(r, ", ".join(r.on_cpu)) for r in results if r.on_cpu],
        "Eagerly after all": [(r, r.detail) for r in results if r.state == "runs eagerly"],
        "Refused": [(r, r.detail) for r in results if r.state == "refused"],
        "Failing or different": [
            (r, r.detail or f"difference {max(r.outputs, r.gradients, r.parameters):.0e}{_distance(r)}")
            for r in results
            if r.state in ("fails", "differs")
        ],
        "Less exact than float32 usually is": [
            (r, _distance(r).lstrip("; ")) for r in results if r.from_exact and r.state == "agrees"
        ],
    }
    for title, notes in groups.items():
        if notes:
            yield from (f"## {title}", "", "| program | reason |", "|---|---|", *sorted(set(_rows(notes))), "")


def _rows(notes: Iterable[tuple[Result, str]]) -> Iterator[str]:
    """Return a line for each program and reason, with its modes and devices."""
    places: dict[tuple[str, str], list[str]] = {}
    for r, reason in notes:
        text = reason.replace("|", "/").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")
        places.setdefault((f"{r.library} {r.name}", text), []).append(f"{r.mode} on {_DEVICES[r.device]}")
    for (program, reason), modes in places.items():
        yield f"| {program}, {', '.join(modes)} | {reason} |"


def _distance(r: Result) -> str:
    return f"; from float64 {r.from_exact[0]:.0e}, the CPU {r.from_exact[1]:.0e}" if r.from_exact else ""
