"""Ranking of devices: an order by memory, type of hardware and priority, in which a much faster device displaces a slow one.

All functions are pure functions of the candidates and their cached results; none opens or benchmarks a device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from textwrap import shorten
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.plugins.probing import Candidate, hardware_type
from polyhal.hal.system.discovery.benchmark_cache import MARGIN, BenchmarkCache, BenchmarkResult

_FILLER_WORDS = frozenset({"corporation", "corp", "inc", "ltd", "co", "graphics", "gpu"})
"""Words that only some drivers add to a card's name."""

ENOUGH_MEMORY = 512 << 20
"""Minimum bytes of memory of the default device, unless all devices have less."""

_TYPE_NAMES = {
    DeviceType.GPU: ("GPU", "GPUs"),
    DeviceType.INTEGRATED_GPU: ("integrated GPU", "integrated GPUs"),
    DeviceType.ACCELERATOR: ("accelerator", "accelerators"),
    DeviceType.CPU: ("CPU device", "CPU devices"),
}

_REASON = 160
"""Maximum number of characters of a failure's reason within a sentence."""

Lookup = Callable[[Candidate], BenchmarkResult | None]


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates in their order without measurements: the default device is the first, unless it is slow.

    Devices with a limitation come last, after devices of backends with a negative priority. Within each group, devices
    are sorted by type of hardware in the order of `DeviceType`, then by priority, memory and name.
    """
    return sorted(candidates, key=_place)


def _place(candidate: Candidate) -> tuple[Any, ...]:
    info, priority = candidate.info, candidate.backend.priority
    type_rank = list(DeviceType).index(hardware_type(info))
    name = (candidate.backend.name, info.selector.zfill(4))
    return (bool(limitation(info)), max(-priority, 0), type_rank, -priority, -info.memory, name)


def limitation(info: DeviceInfo) -> str:
    """Return a limitation of a device that breaks many programs, as the end of a sentence; empty without one."""
    if info.lacks:
        return f"has no {info.lacks}"
    # An unknown size is 0.
    return (
        f"has {info.memory / 2**20:.0f} MiB, less than {ENOUGH_MEMORY >> 20}" if 0 < info.memory < ENOUGH_MEMORY else ""
    )


def rank(candidates: Iterable[Candidate], lookup: Lookup) -> list[Candidate]:
    """Return the candidates, best first: `in_order`, except that a device `MARGIN` times as fast displaces an earlier one.

    Devices without a result keep their positions, and devices whose benchmark failed come last.
    """
    ordered = in_order(candidates)
    results = {c.name: lookup(c) for c in ordered}
    failed = [c for c in ordered if (r := results[c.name]) is not None and r.problem]
    waiting = [c for c in ordered if c not in failed]
    ranked: list[Candidate] = []
    while waiting:
        seconds = {c.name: r.seconds for c in waiting if (r := results[c.name]) is not None}
        most = MARGIN * min(seconds.values(), default=0.0)
        best = next(c for c in waiting if seconds.get(c.name, 0.0) <= most)
        waiting.remove(best)
        ranked.append(best)
    return ranked + failed


def group_by_card(ranked: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return the candidates grouped by physical card; groups and devices in them are sorted best first.

    Devices of two backends are one card if their ids are equal. Except for processors, equal names also match: the
    second card of a name in one backend is the second card of that name in another. Two drivers for one processor
    compute differently, so they are separate devices.
    """
    groups: dict[str, list[Candidate]] = {}
    for candidate in ranked:
        groups.setdefault(candidate.info.id, []).append(candidate)
    counts: Counter[tuple[str, str]] = Counter()
    by_name: dict[tuple[str, int], list[Candidate]] = {}
    for group in sorted(groups.values(), key=lambda g: g[0].info.selector.zfill(4)):
        first = group[0]
        if hardware_type(first.info) is DeviceType.CPU:
            continue
        name = normalized_name(first.info)
        number = max(counts[c.backend.name, name] for c in group)
        for c in group:
            counts[c.backend.name, name] += 1
        same = by_name.setdefault((name, number), group)
        if same is not group and not _ids_are_comparable(same[0].info, first.info):
            same += groups.pop(first.info.id)
    position = {c.name: i for i, c in enumerate(ranked)}
    ranked_groups = (sorted(g, key=lambda c: position[c.name]) for g in groups.values())
    return sorted(ranked_groups, key=lambda g: position[g[0].name])


def explain_choice(
    chosen: Candidate, candidates: Sequence[Candidate], benchmarks: BenchmarkCache, unopened: Sequence[str]
) -> str:
    """Return why `chosen` is the best of the candidates, in words; `unopened` are names of devices that could not be opened."""
    if len(candidates) == 1:
        return "the only device found"
    opened = [c for c in candidates if c.name not in unopened]
    passed = [c for c in in_order(opened) if _place(c) < _place(chosen) or _is_limited(c, chosen)]
    cpus = all(hardware_type(c.info) is DeviceType.CPU for c in candidates)
    reasons = ["no GPU was found"] * cpus
    reasons += [f"{', '.join(dict.fromkeys(unopened))} could not be opened"] * bool(unopened)
    reasons += [_why_passed_over(c, chosen, benchmarks) for c in passed]
    others = [c for c in opened if c not in passed]
    if passed:
        position = f"the first of the {len(others)} other devices, by type, priority and memory"
        reasons.append(position if len(others) > 1 else "the only other device")
    else:
        reasons.append(_position(chosen, candidates))
    return "; ".join(reasons) + _figures(chosen, others, benchmarks)


def _position(chosen: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return the reason why the first device of the order is first."""
    rivals = [c for c in candidates if hardware_type(c.info) is hardware_type(chosen.info)]
    singular, plural = _TYPE_NAMES[hardware_type(chosen.info)]
    if len(rivals) == 1:
        return f"the only {singular} of {len(candidates)} devices"
    count = len(group_by_card(rivals))
    if count > 1:
        return f"the first of {count} {plural}, by priority and memory"
    return f"the first of the {len(rivals)} backends that list this {singular}, by priority"


def _is_limited(candidate: Candidate, chosen: Candidate) -> bool:
    """Return whether a candidate comes after `chosen` because of a limitation only."""
    return bool(limitation(candidate.info)) and _place(candidate)[1:] < _place(chosen)[1:]


def _why_passed_over(candidate: Candidate, chosen: Candidate, benchmarks: BenchmarkCache) -> str:
    result, best = benchmarks.lookup(candidate), benchmarks.lookup(chosen)
    if _is_limited(candidate, chosen):
        return f"{candidate.name} {limitation(candidate.info)}"
    if result is not None and result.problem:
        reason = shorten(result.problem, _REASON, placeholder=" ...")
        return f"{candidate.name} failed when it was measured ({reason}; polyhal devices --measure repeats it)"
    if result is None or best is None or best.problem:
        return f"{candidate.name} has no measured speed (polyhal devices --measure repeats it)"
    return f"{candidate.name} takes {result.seconds / best.seconds:.1f} times as long"


def _figures(chosen: Candidate, others: Sequence[Candidate], benchmarks: BenchmarkCache) -> str:
    """Return the speed of the chosen device, and of a device that is faster by less than the margin; empty without a result."""
    result, own = benchmarks.lookup(chosen), benchmarks.ratio(chosen)
    if result is None or result.problem:
        return ""
    text = f", measured at {own:.1f}x NumPy on {result.day}"
    fastest = max(others, key=benchmarks.ratio)
    if (ratio := benchmarks.ratio(fastest)) > own:
        text += f" ({fastest.name} has {ratio:.1f}x, and {MARGIN * own:.1f}x would displace it)"
    return text


def _ids_are_comparable(a: DeviceInfo, b: DeviceInfo) -> bool:
    """Return whether both ids follow one global scheme, so that different ids mean different cards."""
    scheme = a.id.partition("/")[0]
    return scheme in ("pci", "uuid") and scheme == b.id.partition("/")[0]


def normalized_name(info: DeviceInfo) -> str:
    """Return the words of a device's vendor and name, sorted and unique, without words that only some drivers add."""
    text = re.sub(r"\([^)]*\)", " ", f"{info.vendor} {info.name}".lower())
    return " ".join(sorted(set(re.findall(r"[a-z0-9]+", text)) - _FILLER_WORDS))
