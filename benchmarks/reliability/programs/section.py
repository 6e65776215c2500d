"""The section of docs/reliability.md on random programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.reliability.programs.known import KNOWN

_ABOUT = """## Random programs

Seeded random programs of 5 to 60 statements run on every device, and their values, dtypes, gradients, aliasing and errors
are compared with PyTorch's. Statements are drawn from all families of ops, by their declarations; tensors are used many
times, viewed, written to in place, sliced, broadcast, promoted, empty, without axes, NaN and infinite; modules share
parameters; there are
`no_grad`, `detach`, checkpoints, hooks, control flow on shapes, several backward passes, second gradients and optimizers. A
program runs eagerly, and some also captured (three calls with other data), with a backward pass outside, by PyTorch on
`torch.device("polyhal")` (eagerly, recorded, compiled), and together with another one in a second thread. Values may be as
far from PyTorch's in float64 as several times the error of PyTorch in the program's own dtypes. Beyond, the program's
condition is measured, by up to two dozen runs in float64 with errors of some units in the last place after each statement:
elements in which these runs disagree are not judged. A failing program is reduced automatically to a few lines. A process
that dies is a finding with the mode and the stacks of its threads.

    python -m benchmarks.reliability fuzz --minutes 30                      # goes on with the next seeds
    python -m benchmarks.reliability fuzz --again                           # only the programs with findings
    python -m benchmarks.reliability fuzz --mutations --minutes 30
"""

_COLUMNS = (
    *("device", "programs", "statements", "kinds", "programs/s per process", "refused", "known differences"),
    *("mended or named since", "unexplained", "machine"),
)


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the section."""
    yield _ABOUT
    runs = result.get("runs", {})
    if runs:
        yield f"{result['date']}. A program that differed was run again when the cause was mended or named:"
        yield ""
        yield f"| {' | '.join(_COLUMNS)} |"
        yield f"|---|{'---:|' * (len(_COLUMNS) - 1)}"
        for name, c in runs.items():
            known = sum(c["known"].values())
            yield (
                f"| `{name}` | {c['programs']:,} | {c['statements']:,} | {len(c['ops'])} | {c['rate']} | {c['refused']:,} "
                f"| {known:,} | {c.get('mended', 0):,} | {len(c['findings']):,} | {c['machine']} |"
            )
        yield ""
        modes = list(dict.fromkeys(m for c in runs.values() for m in c["modes"]))
        yield f"| programs that ran | {' | '.join(modes)} |"
        yield f"|---|{'---:|' * len(modes)}"
        for name, c in runs.items():
            yield f"| `{name}` | {' | '.join(format(c['modes'].get(m, 0), ',') for m in modes)} |"
        yield ""
    yield "Refused are programs in modes that do not take them, such as a captured one whose shapes depend on values."
    yield "Differences that are meant:"
    yield ""
    for k in KNOWN:
        yield f"- {k.name}: {k.reason}"
    mutations = result.get("mutations", {})
    if mutations:
        yield ""
        yield "Faults planted into Polyhal, and how many programs found them:"
        yield ""
        yield "| fault | mode | found by program |"
        yield "|---|---|---:|"
        for name, m in mutations.items():
            yield f"| {name} | {m['mode']} | {m['found'] if m['found'] else 'not in ' + format(m['tried'], ',')} |"
