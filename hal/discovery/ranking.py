"""Which device is better than which: kind first, then measured speed, then the backend's priority, then memory.

Plain functions of the candidates and of what is known about their speed; nothing here opens or measures a device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.benchmark_cache import Speed, Speeds
from polyhal.hal.discovery.probing import Candidate, kind

_COMMON = frozenset({"corporation", "corp", "inc", "ltd", "co", "graphics", "gpu"})
"""Words that some drivers add to a card's name and others do not."""

_KINDS = {
    DeviceType.GPU: ("GPU", "GPUs"),
    DeviceType.INTEGRATED_GPU: ("integrated GPU", "integrated GPUs"),
    DeviceType.ACCELERATOR: ("accelerator", "accelerators"),
    DeviceType.CPU: ("CPU device", "CPU devices"),
}

Known = Callable[[Candidate], Speed | None]


def type_rank(candidate: Candidate) -> int:
    """The place of a device's kind in the order in which `DeviceType` lists them."""
    return list(DeviceType).index(kind(candidate.info))


def order(candidates: Iterable[Candidate], known: Known) -> list[Candidate]:
    """The candidates, best first.

    Of one kind, those that were measured come first, the fastest of them at the head; then those that were not, and then
    those whose measurement failed. What is left equal keeps its place.
    """

    def place(candidate: Candidate) -> tuple[Any, ...]:
        speed = known(candidate)
        state = 1 if speed is None else 2 if speed.problem else 0
        seconds = speed.seconds if speed is not None else 0.0
        return (type_rank(candidate), state, seconds, -candidate.backend.priority, -candidate.info.memory)

    return sorted(candidates, key=place)


def cards(ordered: Sequence[Candidate]) -> list[list[Candidate]]:
    """The candidates grouped by physical card; the groups, and what is in each, best first.

    Two backends see one card where the identities are equal. For anything but processors it also counts when the names
    are: the second card of a name in one backend is then the second in another. Drivers for one processor differ in what
    they make of it, so that each is a device of its own.
    """
    groups: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        groups.setdefault(candidate.info.id, []).append(candidate)
    counted: Counter[tuple[str, str]] = Counter()
    by_name: dict[tuple[str, int], list[Candidate]] = {}
    for group in sorted(groups.values(), key=lambda g: g[0].info.selector.zfill(4)):
        first = group[0]
        if kind(first.info) is DeviceType.CPU:
            continue
        name = normalized(first.info)
        number = max(counted[c.backend.name, name] for c in group)
        for c in group:
            counted[c.backend.name, name] += 1
        same = by_name.setdefault((name, number), group)
        if same is not group and not _distinct(same[0].info, first.info):
            same += groups.pop(first.info.id)
    place = {c.name: i for i, c in enumerate(ordered)}
    return sorted((sorted(g, key=lambda c: place[c.name]) for g in groups.values()), key=lambda g: place[g[0].name])


def reason(chosen: Candidate, found: Sequence[Candidate], speeds: Speeds, refused: Sequence[str]) -> str:
    """Why `chosen` is the best of `found`, in words; `refused` names those that could not be opened."""
    if len(found) == 1:
        return "the only device found"
    ours = kind(chosen.info)
    rivals = [c for c in found if kind(c.info) is ours]
    one, many = _KINDS[ours]
    better = [c.name for c in found if type_rank(c) < type_rank(chosen)]
    text = "no GPU was found; " if ours is DeviceType.CPU and not better else ""
    if refused:
        text += f"{', '.join(dict.fromkeys(refused))} could not be opened; "
    if len(rivals) == 1:
        return f"{text}the only {one} of {len(found)} devices"
    count = len(cards(rivals))
    of = f"{count} {many}" if count > 1 else f"the {len(rivals)} backends that see this {one}"
    speed = speeds.known(chosen)
    if speed is not None and not speed.problem:
        return f"{text}the fastest of {of}, measured at {speeds.ratio(chosen):.1f}x NumPy on {speed.day}"
    return f"{text}the first of {of}, by priority and memory"


def _distinct(a: DeviceInfo, b: DeviceInfo) -> bool:
    """Whether two identities are of one global scheme, under which unequal ones are different cards."""
    scheme = a.id.partition("/")[0]
    return scheme in ("pci", "uuid") and scheme == b.id.partition("/")[0]


def normalized(info: DeviceInfo) -> str:
    """A device's vendor and name without what drivers add to them, each word once."""
    text = re.sub(r"\([^)]*\)", " ", f"{info.vendor} {info.name}".lower())
    return " ".join(sorted(set(re.findall(r"[a-z0-9]+", text)) - _COMMON))
