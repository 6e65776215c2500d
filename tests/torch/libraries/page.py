"""Committed figures, and the page docs/torch-libraries.md generated from them."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tests.pytorch.page import version
from tests.torch.libraries.cases import MODES
from tests.torch.libraries.comparison import FACTOR, TOLERANCE
from tests.torch.libraries.measurement import RUNS, Result

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[3] / "docs" / "torch-libraries.md"
_DEVICES = {"opencl:intel": "Intel's OpenCL runtime", "numpy": "NumPy"}
_MAIN = "opencl:intel"
"""Device of the table."""
Program = tuple[str, str]
"""Library and name of a program."""


def load(path: Path = RESULTS) -> tuple[str, list[Result]]:
    """Return the version of PyTorch and the committed figures."""
    if not path.exists():
        return "", []
    data = json.loads(path.read_text(encoding="utf-8"))
    results = [Result(**r) for r in data["results"]]
    for r in results:
        r.from_exact = None if r.from_exact is None else (r.from_exact[0], r.from_exact[1])
    return data["pytorch"], results


def record(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Write figures, replacing figures of the same programs, devices and modes."""
    kept = {(r.library, r.name, r.device, MODES.index(r.mode)): r for r in [*load(path)[1], *results]}
    lines = ",\n".join(json.dumps(asdict(r)) for _, r in sorted(kept.items()))
    path.write_text(
        f'{{\n"pytorch": {json.dumps(torch.__version__)},\n"results": [\n{lines}\n]\n}}\n', encoding="utf-8"
    )


def page(committed: tuple[str, list[Result]]) -> str:
    """Return the text of the page."""
    pytorch, results = committed
    programs = sorted({(r.library, r.name) for r in results})
    libraries = len({library for library, _ in programs})
    text = f"""\
        {len(programs)} programs of {libraries} libraries as PyPI has them, with {version(pytorch)}: small models with random
        parameters, against the same program on PyTorch's CPU in float32. Most are four training steps with an optimizer;
        others compute, generate or sample. *Eager* runs op by op. *Recorded* is the whole step by `polyhal.torch.jit`,
        *compiled* the forward pass by `torch.compile` without a backend, both of [PyTorch programs](torch.md). A program
        agrees if the largest difference of each output of all steps, and of each gradient, parameter and buffer after them,
        is below {TOLERANCE:g} of the tensor's largest element, or of 1e-4 of the model's largest where that is more;
        integers, such as generated tokens, have to be equal. Where float32 is less exact than that, the device may be
        {FACTOR} times as far from float64 as the CPU is. `python -m tests.torch.libraries` runs them."""
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
    found = {(r.library, r.name, r.device, r.mode): r for r in results}
    yield from _wrapped(
        """The table is about Intel's OpenCL runtime, and its last column about NumPy. For each mode it has the largest
        difference, and the speed: the time of a step of PyTorch on the CPU, eager, with all cores, divided by the time of a
        step, from the fifth on. These models are small, so that the time of an eager step is mostly Python's. Native is the
        share of calls of ops that ran on the device when eager."""
    )
    yield ""
    columns = " | ".join(f"{mode} | speed" for mode in MODES)
    yield f"| library | program | native, % | {columns} | NumPy |"
    yield "|---|---|---:|" + "---:|---:|" * len(MODES) + "---|"
    for library, name in programs:
        of = {mode: found.get((library, name, _MAIN, mode)) for mode in MODES}
        others = [r for mode in MODES if (r := found.get((library, name, "numpy", mode)))]
        eager = of["eager"] or next((r for r in others if r.mode == "eager"), None)
        native = f"{100 * eager.native:.1f}" if eager and eager.calls else ""
        release = next((r.version for r in (*of.values(), *others) if r), "")
        agree = sum(r.state in RUNS for r in others)
        cells = " | ".join(_cell(of[mode]) for mode in MODES)
        numpy = "" if not others else "agrees" if agree == len(others) else f"{agree} of {len(others)} agree"
        yield f"| {library} {release} | {name} | {native} | {cells} | {numpy} |"


def _cell(r: Result | None) -> str:
    if r is None:
        return " | "
    speed = f"{r.speed:.2g}" if r.speed else ""
    if r.state != "agrees":
        return f"{r.state} | {speed}"
    largest = max(r.outputs, r.gradients, r.parameters)
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
