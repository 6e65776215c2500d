"""A profile as text, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyhal.hal.byte_sizes import size_text
from polyhal.hal.launch_resources import LaunchResources
from polyhal.profiler.rows import Row, gaps

if TYPE_CHECKING:
    from polyhal.profiler.profile import Profile

WIDTH = 80
_GAPS = 3
"""Number of gaps that are listed."""
_LONG_GAP = 100_000
"""Minimum nanoseconds of a gap that is listed."""


def table(profile: Profile, limit: int) -> str:
    """Return all tables of a profile."""
    return "\n".join(line[:WIDTH].rstrip() for line in _lines(profile, limit))


def _lines(profile: Profile, limit: int) -> Iterator[str]:
    yield summary(profile)
    timed = bool(profile.launches)
    order = (lambda row: -row.device) if timed else (lambda row: -row.total)
    ops = sorted(profile.ops.values(), key=order)
    yield ""
    if not ops and not profile.launches and not profile.copies:
        yield "no op ran"
        return
    yield from _columns(
        ("op", "calls", "host ms", "wait ms", "device ms", "%", "GFLOP/s", "GB/s"),
        [
            (r.name, str(r.calls or ""), _ms(r.total), _ms(r.waited), _ms(r.device), _share(r, ops, timed), *_rates(r))
            for r in ops[:limit]
        ],
        len(ops) - limit,
    )
    if profile.kernels:
        kernels = sorted(profile.kernels.values(), key=lambda r: -r.total)
        yield ""
        yield from _columns(
            ("kernel", "launches", "device ms", "%", "mean us", "max us", "group", "regs", "local", "occ"),
            [
                (
                    r.name,
                    str(r.calls),
                    _ms(r.total),
                    _share(r, kernels, True),
                    f"{r.total / r.calls / 1e3:.1f}",
                    f"{r.slowest / 1e3:.1f}",
                    *_facts(r.facts),
                )
                for r in kernels[:limit]
            ],
            len(kernels) - limit,
        )
    modules = [
        Row(_end(row.name, WIDTH - 32), row.calls, row.total, waited=row.waited, device=row.device)
        for row in profile.modules.values()
    ]
    yield from _places("module", modules, limit, timed)
    lines = [
        Row(short_line(row.name), row.calls, row.total, waited=row.waited, device=row.device)
        for row in profile.lines.values()
    ]
    yield from _places("line of the program", lines, limit, timed)
    if profile.copies:
        yield ""
        yield from _columns(
            ("copy", "calls", "host ms", "wait ms", "bytes", "GB/s"),
            [
                (r.name, str(r.calls), _ms(r.total), _ms(r.waited), size_text(r.nbytes), _rate(r.nbytes, r.total))
                for r in profile.copies.values()
            ],
            0,
        )
    yield from _gap_lines(profile)
    if profile.host_work:
        yield ""
        yield "in NumPy on the host, because the device has no kernel:"
        for op, (calls, nbytes) in sorted(profile.host_work.items()):
            yield f"  {op}: {calls} calls, {size_text(nbytes)} moved"


def summary(profile: Profile) -> str:
    """Return a line with the time of the block and the shares of the host and the devices in it."""
    records = profile.records
    text = f"{profile.elapsed / 1e6:.2f} ms"
    if profile.is_virtual and profile.launches:
        text += f", device {profile.busy / 1e6:.2f} ms (virtual) in {len(profile.launches):,} launches"
    elif profile.launches:
        share = 100 * profile.busy / (profile.elapsed or 1)
        text += f", device busy {share:.0f}% in {len(profile.launches):,} launches"
    waited = sum(c.waited for c in records.calls) + sum(c.waited for c in records.copies)
    peak = max((m.used for m in records.memory), default=0)
    return text + f", waited {waited / 1e6:.2f} ms, peak {size_text(peak)}"


def _places(title: str, rows: Iterable[Row], limit: int, timed: bool) -> Iterator[str]:
    found = sorted(rows, key=lambda r: -(r.device if timed else r.total))
    if len(found) < 2 and title == "module":
        return
    yield ""
    yield from _columns(
        (title, "host ms", "device ms", "%"),
        [(r.name or "-", _ms(r.total), _ms(r.device), _share(r, found, timed)) for r in found[:limit]],
        len(found) - limit,
    )


def _gap_lines(profile: Profile) -> Iterator[str]:
    """Yield the longest times in which the device waited for the host."""
    long = [gap for gap in gaps(profile.launches, _GAPS) if gap[0] >= _LONG_GAP]
    if long:
        yield ""
        yield "longest times without a launch on the device:"
    for nanoseconds, before, after in long:
        at = after.location
        where = f" at {Path(at.file).name}:{at.line}" if at.file else ""
        text = f"  {nanoseconds / 1e6:.2f} ms before {after.kernel}{where}"
        previous = f", after {before.kernel}"
        yield text + previous if len(text + previous) <= WIDTH else text


def _columns(titles: Sequence[str], rows: Sequence[Sequence[str]], more: int) -> Iterator[str]:
    """Yield a table. The first column is shortened until a line fits, the others align right, empty ones are left out."""
    shown = [k for k in range(len(titles)) if k == 0 or any(row[k] for row in rows)]
    cells = [[row[k] for k in shown] for row in (titles, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(shown))]
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(shown) - 1))
    for row in cells:
        first = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 1] + "…"
        yield "  ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
    if more > 0:
        yield f"... and {more} more"


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f}" if nanoseconds else ""


def _share(row: Row, rows: Iterable[Row], timed: bool) -> str:
    """Return the percentage that a row has of all, on the device if it has timestamps."""
    mine, whole = (row.device, sum(r.device for r in rows)) if timed else (row.total, sum(r.total for r in rows))
    return f"{100 * mine / whole:.1f}" if whole else ""


def _rates(row: Row) -> tuple[str, str]:
    nanoseconds = row.device or row.total
    return _rate(row.flops, nanoseconds), _rate(row.nbytes, nanoseconds)


def _rate(count: int, nanoseconds: int) -> str:
    return f"{count / nanoseconds:.3g}" if count and nanoseconds else ""


def _facts(facts: LaunchResources | None) -> tuple[str, str, str, str]:
    if facts is None:
        return "", "", "", ""
    group = "x".join(str(n) for n in facts.group) if facts.group else ""
    while group.endswith("x1"):
        group = group.removesuffix("x1")
    local = size_text(facts.local_memory) if facts.local_memory else ""
    registers = "" if facts.registers is None else str(facts.registers)
    return group, registers, local, "" if facts.occupancy is None else f"{100 * facts.occupancy:.0f}%"


def short_line(line: str) -> str:
    """Return a line of the program with its file's name in place of the path."""
    path, _, rest = line.partition(":")
    return f"{Path(path).name}:{rest}"


def _end(text: str, width: int) -> str:
    """Return the end of a path that is too long."""
    return text if len(text) <= width else "…" + text[1 - width :]


__all__ = ["WIDTH", "short_line", "summary", "table"]
