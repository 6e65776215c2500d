"""Vendor profiles: conservative defaults for devices that nobody has tuned, one TOML file each in the folder `profiles`.

    [match]
    vendors = ["arm"]               # parts of the vendor's or platform's name in lower case; absent: every vendor
    kinds = ["gpu"]                 # values of DeviceType
    [features]                      # fields of `Features` that the profile decides; what is absent, the driver does
    group_size = 64
    vector_width = 4
    local_memory_is_real = false
    [choices.NAME]                  # fields of the choice of the kernel family NAME, see `polyhal.hal.kernels.tuning`
    depth = 16

A profile that names vendors comes before one that does not. What a profile says is bounded by what the device can do.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from polyhal.hal.capabilities import DeviceType

_PACKAGE = "polyhal.backends.opencl.profiles"
_FEATURES: dict[str, type[int]] = {"group_size": int, "vector_width": int, "local_memory_is_real": bool}


@dataclass(frozen=True, slots=True)
class Profile:
    """Defaults for the devices of a vendor and kind."""

    name: str
    kinds: frozenset[DeviceType]
    vendors: tuple[str, ...] = ()
    group_size: int | None = None
    vector_width: int | None = None
    local_memory_is_real: bool | None = None
    choices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def fits(self, vendor: str, platform: str, kind: DeviceType) -> bool:
        """Whether it speaks of a device. A vendor's name counts at the beginning of a word: "arm" is not in "charm"."""
        text = f"{vendor} {platform}".lower()
        return kind in self.kinds and (
            not self.vendors or any(re.search(rf"\b{re.escape(v)}", text) for v in self.vendors)
        )


def shipped() -> list[Profile]:
    """All profiles, those that name vendors first."""
    folder = resources.files(_PACKAGE)
    found = [parse(f.name[:-5], f.read_text(encoding="utf-8")) for f in folder.iterdir() if f.name.endswith(".toml")]
    return sorted(found, key=lambda p: (not p.vendors, p.name))


def choose(profiles: Iterable[Profile], vendor: str, platform: str, kind: DeviceType) -> Profile:
    """The first profile that fits a device; one that decides nothing where none does."""
    return next((p for p in profiles if p.fits(vendor, platform, kind)), Profile("none", frozenset()))


def parse(name: str, text: str) -> Profile:
    """The profile in a TOML text. Raises ValueError that says what is wrong."""
    try:
        data = tomllib.loads(text)
        match, features, choices = data.pop("match"), data.pop("features", {}), data.pop("choices", {})
        kinds = frozenset(DeviceType(k) for k in match.pop("kinds"))
        vendors = tuple(match.pop("vendors", ()))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"profile {name}: {type(error).__name__}: {error}") from error
    unknown = [*data, *match, *(set(features) - set(_FEATURES))]
    wrong = [k for k, v in features.items() if k not in unknown and (type(v) is not _FEATURES[k] or int(v) < 0)]
    wrong += [f"{f}.{k}" for f, values in choices.items() for k, v in values.items() if type(v) is not int]
    if unknown or wrong or any(v != v.lower() for v in vendors):
        raise ValueError(f"profile {name}: {', '.join(map(str, [*unknown, *wrong])) or 'vendors'} cannot be used")
    return Profile(name, kinds, vendors, choices=choices, **features)
