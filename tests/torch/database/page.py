"""The page docs/torch-coverage.md, generated from the committed figures."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.pytorch.page import version
from tests.torch import placement
from tests.torch.database.core_opset import CPU, DECOMPOSED, KERNEL, PARTS
from tests.torch.database.results import Results
from tests.torch.database.states import STATES, EntryOutcome, Outcome, State

PAGE = Path(__file__).parents[3] / "docs" / "torch-coverage.md"
_TITLES: dict[State, str] = {
    "device": "on the device",
    "decomposed": "by decomposition",
    "cpu": "part on the CPU",
    "refused": "refused",
    "differs": "differs",
}
_MEANINGS: dict[State, str] = {
    "device": "Every op ran by a kernel of the device.",
    "decomposed": "PyTorch expressed an op by others, which all ran by kernels of the device.",
    "cpu": "An op ran on the CPU, with a warning: the ones in parentheses.",
    "refused": "The call raises an error.",
    "differs": "The result or the gradient is not the CPU's.",
}
_CORE = {
    KERNEL: "have a kernel of the device",
    PARTS: "run by code of PyTorch's for all devices, which calls others",
    DECOMPOSED: "run by PyTorch's decomposition",
    CPU: "run on the CPU",
}


def page(results: Results) -> str:
    """Return the text of the page."""
    entries = list(results.entries.values())
    common = [e for e in entries if not e.kind]
    lines = [
        "# What of PyTorch runs on Polyhal's device",
        "",
        *_wrapped(
            f'{version(results.pytorch)}\'s own database of ops (`op_db`), replayed with `torch.device("polyhal")` on the '
            f"NumPy device by `python -m tests.torch.database`: up to {results.samples} sample calls of each entry in float32, "
            "or in int64, bool or complex64 where it has no float32. Results are compared with the CPU's, and gradients; "
            "random numbers by shape, dtype and distribution. An entry has the state of its worst sample. "
            "[PyTorch programs](torch.md) explains the states."
        ),
        "",
        *_table(common),
        "",
        *(f"- {_TITLES[s]}: {_MEANINGS[s]}" for s in STATES),
        "",
        *_wrapped(
            f"{len(entries) - len(common)} more entries are about complex numbers, sparse or quantised tensors in all of "
            "their samples: [they are listed at the end](#complex-sparse-and-quantised)."
        ),
        "",
        "## The Core ATen opset",
        "",
        *_core(results.core),
        "",
        *placement.section(placement.load()),
    ]
    for state in STATES:
        chosen = [e for e in common if e.function.state == state]
        lines += ["", f"## {_capital(_TITLES[state])}", "", *_listed(chosen, lambda e: e.function)]
    lines += ["", "## In place and with `out=`", ""]
    lines += ["Where these forms run otherwise than the function itself:", ""]
    lines += _forms(common)
    lines += ["", "## Complex, sparse and quantised", ""]
    for state in STATES:
        chosen = [e for e in entries if e.kind and e.function.state == state]
        if chosen:
            lines += [f"{_capital(_TITLES[state])}: {', '.join(_name(e) for e in chosen)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False)


def _table(entries: Sequence[EntryOutcome]) -> Iterator[str]:
    forms: dict[str, list[Outcome]] = {
        "function and gradient": [e.function for e in entries],
        "in place": [e.in_place for e in entries if e.in_place],
        "`out=`": [e.out for e in entries if e.out],
    }
    yield f"| | entries | {' | '.join(_TITLES[s] for s in STATES)} | wholly on the device, % |"
    yield "|---|---:|" + "---:|" * (len(STATES) + 1)
    for title, outcomes in forms.items():
        counts = [sum(o.state == s for o in outcomes) for s in STATES]
        share = 100 * (counts[0] + counts[1]) / len(outcomes) if outcomes else 100
        yield f"| {title} | {len(outcomes)} | {' | '.join(map(str, counts))} | {share:.1f} |"


def _core(places: dict[str, str]) -> Iterator[str]:
    yield f"Of {len(places)} overloads that PyTorch tags as core:"
    yield ""
    for place, text in _CORE.items():
        names = [n.removesuffix(".default") for n, p in places.items() if p == place]
        shown = f": {', '.join(f'`{n}`' for n in names)}" if place != KERNEL and names else ""
        yield f"- {len(names)} {text}{shown}."


def _listed(entries: Sequence[EntryOutcome], outcome: Callable[[EntryOutcome], Outcome | None]) -> Iterator[str]:
    if not entries:
        yield "None."
        return
    if any((o := outcome(e)) is not None and o.detail for e in entries):
        for e in entries:
            found = outcome(e)
            yield f"- {_name(e)}: {_code(found.detail) if found else ''}"
        return
    yield ", ".join(_name(e) + _ops(outcome(e)) for e in entries) + "."


def _forms(entries: Sequence[EntryOutcome]) -> Iterator[str]:
    none = True
    for title, form in (("in place", "in_place"), ("`out=`", "out")):
        for state in STATES[1:]:
            chosen = [
                e
                for e in entries
                if (o := getattr(e, form)) is not None and o.state == state and e.function.state != state
            ]
            if chosen:
                none = False
                yield f"- {title}, {_TITLES[state]}: {', '.join(_name(e) + _ops(getattr(e, form)) for e in chosen)}."
    if none:
        yield "None."


def _name(entry: EntryOutcome) -> str:
    return f"`{entry.name}`"


def _ops(outcome: Outcome | None) -> str:
    return f" ({', '.join(outcome.ops)})" if outcome is not None and outcome.ops else ""


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"
