"""Ranking of devices: by type of hardware first, then benchmarked speed, then the backend's priority, then memory.

Everything here is a pure function of the candidates and their cached results; nothing opens or benchmarks a device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.benchmark_cache import BenchmarkCache, BenchmarkResult
from polyhal.hal.discovery.probing import Candidate, hardware_type

_FILLER_WORDS = frozenset({"corporation", "corp", "inc", "ltd", "co", "graphics", "gpu"})
"""Words that only some drivers add to a card's name."""

_TYPE_NAMES = {
    DeviceType.GPU: ("GPU", "GPUs"),
    DeviceType.INTEGRATED_GPU: ("integrated GPU", "integrated GPUs"),
    DeviceType.ACCELERATOR: ("accelerator", "accelerators"),
    DeviceType.CPU: ("CPU device", "CPU devices"),
}

Lookup = Callable[[Candidate], BenchmarkResult | None]


def type_rank(candidate: Candidate) -> int:
    """Return the position of a device's type in the order of `DeviceType`."""
    return list(DeviceType).index(hardware_type(candidate.info))


def rank(candidates: Iterable[Candidate], lookup: Lookup) -> list[Candidate]:
    """Return the candidates, best first.

    Within a type, benchmarked devices come first, by speed; then those without a result, and then those whose benchmark failed.
    The sort is stable.
    """

    def key(candidate: Candidate) -> tuple[Any, ...]:
        result = lookup(candidate)
        state = 1 if result is None else 2 if result.problem else 0
        seconds = result.seconds if result is not None else 0.0
        return (type_rank(candidate), state, seconds, -candidate.backend.priority, -candidate.info.memory)

    return sorted(candidates, key=key)


def group_by_card(ranked: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return the candidates grouped by physical card; groups and their members are best first.

    Two backends see the same card if their ids are equal. Outside of processors, equal names count too: the second card of a
    name in one backend is then the second of that name in another. Two drivers for one processor compute differently, so each
    is a device of its own.
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
    """Return why `chosen` is the best of the candidates, in words; `unopened` names those that could not be opened."""
    if len(candidates) == 1:
        return "the only device found"
    hardware = hardware_type(chosen.info)
    rivals = [c for c in candidates if hardware_type(c.info) is hardware]
    singular, plural = _TYPE_NAMES[hardware]
    better = [c.name for c in candidates if type_rank(c) < type_rank(chosen)]
    text = "no GPU was found; " if hardware is DeviceType.CPU and not better else ""
    if unopened:
        text += f"{', '.join(dict.fromkeys(unopened))} could not be opened; "
    if len(rivals) == 1:
        return f"{text}the only {singular} of {len(candidates)} devices"
    count = len(group_by_card(rivals))
    of = f"{count} {plural}" if count > 1 else f"the {len(rivals)} backends that see this {singular}"
    result = benchmarks.lookup(chosen)
    if result is not None and not result.problem:
        return f"{text}the fastest of {of}, measured at {benchmarks.ratio(chosen):.1f}x NumPy on {result.day}"
    return f"{text}the first of {of}, by priority and memory"


def _ids_are_comparable(a: DeviceInfo, b: DeviceInfo) -> bool:
    """Return whether both ids follow one global scheme, so that different ids mean different cards."""
    scheme = a.id.partition("/")[0]
    return scheme in ("pci", "uuid") and scheme == b.id.partition("/")[0]


def normalized_name(info: DeviceInfo) -> str:
    """Return the words of a device's vendor and name, sorted and unique, without those that only some drivers add."""
    text = re.sub(r"\([^)]*\)", " ", f"{info.vendor} {info.name}".lower())
    return " ".join(sorted(set(re.findall(r"[a-z0-9]+", text)) - _FILLER_WORDS))
