"""Selectors of simulated devices, after the colon in `Device("sim:...")`: `PROFILE[*COUNT][:INDEX][,OPTION=VALUE...]`.

`h200*8:3,memory=64MiB,compute=off` is the fourth of eight H200 with 64 MiB each, which predict times and compute nothing.
PROFILE is the name of a card of the catalogue, an alias of it, or the path of a `.toml` file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from polyhal.hal.core.hardware import catalogue
from polyhal.hal.core.hardware.profile import SECTIONS

DEFAULT = "teaching"
"""Card of `Device("sim")`."""

_HEAD = re.compile(r"(?P<profile>[A-Za-z0-9_-]*|.+\.toml)(?:\*(?P<count>\d+))?(?::(?P<index>\d+))?")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>|B|KiB|MiB|GiB|TiB)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_EXAMPLE = "sim:h200*8:3,memory=64MiB,compute=off"


@dataclass(frozen=True, slots=True)
class SimSelector:
    """One device of a simulated machine."""

    profile: str = DEFAULT
    count: int = 1
    """Number of devices of the machine."""
    index: int = 0
    memory: str = ""
    """Size of the device's memory; empty for the profile's."""
    compute: bool = True
    """False: kernels take virtual time and compute nothing, and results are zeros."""
    faults: str = ""
    """Path of a TOML file with faults."""
    mirror: str = ""
    """`opencl`: every command is also performed on OpenCL buffers."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the device's memory; 0 for the profile's."""
        return parse_size(self.memory) if self.memory else 0

    @property
    def machine(self) -> SimSelector:
        """Key of the machine, equal for all of its devices."""
        return replace(self, index=0)

    def __str__(self) -> str:
        """Return the shortest text that `parse_selector` parses to this selector."""
        options = [f"memory={self.memory}"] if self.memory else []
        options += [] if self.compute else ["compute=off"]
        options += [f"faults={self.faults}"] if self.faults else []
        options += [f"mirror={self.mirror}"] if self.mirror else []
        many = f"*{self.count}" if self.count > 1 else ""
        index = f":{self.index}" if self.index else ""
        plain = self.profile == DEFAULT and not many and not index and not options
        return ",".join(["" if plain else self.profile + many + index, *options])


def parse_selector(text: str) -> SimSelector:
    """Parse the text after the colon. Raises ValueError if it is invalid."""
    _, *options = text.split(",")
    match = _match(text)
    count, index = int(match["count"] or 1), int(match["index"] or 0)
    if not 0 <= index < count:
        raise ValueError(f"device index {index} is out of range for a machine of {count}; write {_EXAMPLE}")
    selector = SimSelector(_card(match["profile"] or DEFAULT), count, index)
    for option in options:
        selector = _with_option(selector, option)
    return selector


def _card(name: str) -> str:
    """Return the name of a card, given an alias: all devices of a machine have one. Raises ValueError for an unknown name."""
    return name if name.endswith(catalogue.SUFFIX) else catalogue.canonical(name, SECTIONS)


def _match(text: str) -> re.Match[str]:
    """Match the part before the options. Raises ValueError."""
    match = _HEAD.fullmatch(text.partition(",")[0])
    if match is None:
        raise ValueError(f"{text!r} is not a selector of a simulated device; expected a form such as {_EXAMPLE}")
    return match


def expand(text: str) -> list[str]:
    """Return the selectors of all devices of the machine, unless `text` has an index. Raises ValueError."""
    selector = parse_selector(text)
    if _match(text)["index"]:
        return [text]
    return [str(replace(selector, index=i)) for i in range(selector.count)]


def _with_option(selector: SimSelector, option: str) -> SimSelector:
    name, _, value = option.partition("=")
    if name == "memory" and parse_size(value):
        return replace(selector, memory=value)
    if name == "compute" and value in ("on", "off"):
        return replace(selector, compute=value == "on")
    if name == "faults" and value:
        return replace(selector, faults=value)
    if name == "mirror" and value == "opencl":
        return replace(selector, mirror=value)
    expected = "memory=SIZE, compute=on|off, faults=FILE or mirror=opencl"
    raise ValueError(f"{option!r} is not an option of a simulated device; expected {expected}")


def parse_size(text: str) -> int:
    """Parse a size such as `64MiB` to bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; expected a number with B, KiB, MiB, GiB or TiB, such as 64MiB")
    return int(float(match["number"]) * _UNITS[match["unit"]])
