"""Tuning: the tunables of kernel families, such as tile sizes, and the values found best on one device.

A kernel family declares its tunables as a `Family` beside its lowering: a frozen dataclass, the values that its fields may
take, and what a device must have for them. The lowering asks the backend's `Tuning` for a choice per shape class. What was
measured on this device takes precedence over the profile of its vendor, and that over the default.

Measured choices are kept in one JSON file per device, driver and version. A file that cannot be read counts as absent.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.discovery.fingerprint import model, model_key
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedOpError, message
from polyhal.hal.settings import env, json_store

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SCHEMA = 1
_SMALL = 2**16
_LARGE = 2**22
"""Elements: 16 MiB of float32, more than most last-level caches hold per core."""

C = TypeVar("C")
"""The choice of a family: a frozen dataclass whose tunable fields are integers."""
Values = Mapping[str, int]
"""Some fields of a choice."""
Key = tuple[str, str]
"""A family's name and a shape class."""


def _always(features: Any, choice: Any) -> bool:
    return True


@dataclass(frozen=True)  # without slots: with them, Python 3.11 cannot create a parametrised generic that is frozen
class Family(Generic[C]):
    """The tunables of one kernel family. Its name is that of its kernel file, or starts with it."""

    name: str
    space: Mapping[str, Sequence[int]]
    """The values that a search tries, for each tunable field of the choice."""
    allowed: Callable[[Any, C], bool] = _always
    """(features of the device, choice): whether the kernel can be built and launched with it."""

    def apply(self, features: Any, base: C, values: Values) -> C | None:
        """Return `base` with some fields replaced; None if a field is unknown or the device does not allow the result."""
        if not set(values) <= set(self.space):
            return None
        changed: C = dataclasses.replace(base, **values)  # type: ignore[type-var]
        return changed if self.allowed(features, changed) else None

    def searches(self, values: Values) -> bool:
        """Whether a search tries these values; a file may hold any."""
        return all(value in self.space.get(name, ()) for name, value in values.items())

    def candidates(self, features: Any, base: C) -> Iterator[dict[str, int]]:
        """Yield the fields in which each allowed choice differs from `base`, those with the fewest differences first."""
        names = list(self.space)
        current = {name: getattr(base, name) for name in names}
        options = [[current[n], *(v for v in dict.fromkeys(self.space[n]) if v != current[n])] for n in names]
        candidates = []
        for values in itertools.product(*options):
            changed = {n: v for n, v in zip(names, values, strict=True) if v != current[n]}
            if changed and self.apply(features, base, changed) is not None:
                candidates.append(changed)
        yield from sorted(candidates, key=len)


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """A request of a lowering: family, shape class, and the choice it uses if nothing better is known."""

    family: Family[Any]
    shape_class: str
    default: Any


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """The best choice that a search found for one shape class."""

    family: str
    shape_class: str
    values: dict[str, int]
    """The fields that differ from the default; empty if the default is best."""
    speedup: float
    """The time of the default divided by that of the choice, the median over rounds of one run."""
    date: str
    """ISO 8601, the day."""

    @property
    def key(self) -> Key:
        """Family and shape class."""
        return self.family, self.shape_class

    @classmethod
    def from_json(cls, value: Any) -> TunedChoice:
        """Return the choice that `dataclasses.asdict` wrote. Raises ValueError for anything else."""
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(f"{value!r} is not a choice; expected {', '.join(sorted(names))}")
        numbers = value["values"]
        valid = isinstance(numbers, dict) and all(type(v) is int and isinstance(k, str) for k, v in numbers.items())
        texts = all(isinstance(value[name], str) for name in ("family", "shape_class", "date"))
        if not (valid and texts and type(value["speedup"]) in (int, float)):
            raise ValueError(f"{value!r} is not a choice")
        return cls(**value)


class Tuning:
    """The choices in force on one device."""

    def __init__(self, features: Any, profile: Mapping[str, Values], measured: Mapping[Key, Values]) -> None:
        """`profile` holds values per family, `measured` those that were found best on this device."""
        self._features = features
        self._profile = profile
        self._measured = dict(measured)
        self.trial: dict[Key, Values] = {}
        """Candidates of a search; they take precedence over everything else."""
        self.requests: dict[Key, TuningRequest] | None = None
        """If a search sets this to a dictionary, the requests of all lowerings are collected in it."""

    @property
    def features(self) -> Any:
        """The features of the device, as `Family.allowed` receives them."""
        return self._features

    def choose(self, family: Family[C], shape_class: str, default: C) -> C:
        """Return the choice for a shape class: the measured one, else the profile's, else `default`."""
        profile = self._profile.get(family.name)
        if profile:
            default = family.apply(self._features, default, profile) or default
        key = family.name, shape_class
        if self.requests is not None:
            self.requests[key] = TuningRequest(family, shape_class, default)
        values = self.trial.get(key)
        if values is None:
            values = self._measured.get(key)
            if values is not None and not family.searches(values):
                return default
        return default if values is None else family.apply(self._features, default, values) or default

    def replace(self, measured: Mapping[Key, Values]) -> None:
        """Replace the measured choices. Plans that exist already keep their kernels."""
        self._measured = dict(measured)


@runtime_checkable
class Tunable(Protocol):
    """A backend whose kernels can be tuned."""

    tuning: Tuning


def size_class(*sizes: int) -> str:
    """Return the shape class of some lengths: each rounded up to a power of four, as in `1024x64`."""
    return "x".join(str(4 ** (max(n - 1, 0).bit_length() + 1 >> 1)) for n in sizes)


def magnitude(elements: int) -> str:
    """Return the shape class of work on so many elements: bound by launch overhead, by caches, or by memory."""
    return "small" if elements < _SMALL else "medium" if elements < _LARGE else "large"


def tunables(device: Device) -> Tuning:
    """Return the tuning of a device. Raises UnsupportedOpError if its backend has nothing to tune."""
    if isinstance(device.backend, Tunable):
        return device.backend.tuning
    raise UnsupportedOpError(
        message(
            None, "this backend has nothing to tune", expected="a device such as opencl",
            fix="`polyhal devices` lists all devices", device=device,
        )
    )  # fmt: skip


def path(info: DeviceInfo) -> Path:
    """Return the file for a device with its present driver and this version of Polyhal."""
    return env.cache_dir() / "tuning" / f"{model_key(info)}.json"


def load(info: DeviceInfo) -> dict[Key, TunedChoice]:
    """Return what was measured on a device; empty if there is no usable file."""
    try:
        return read(path(info), info)
    except (OSError, CorruptFileError, IncompatibleFileError):
        return {}


def read(file: Path, info: DeviceInfo) -> dict[Key, TunedChoice]:
    """Return the choices in a file. Raises OSError, CorruptFileError, and IncompatibleFileError for another device."""
    content = json_store.read(file, _SCHEMA)
    here, there = model(info), content.get("device")
    if there != here:
        other = there if isinstance(there, dict) else {}
        differs = "; ".join(f"{k}: {other.get(k)!r} there, {v!r} here" for k, v in here.items() if other.get(k) != v)
        raise IncompatibleFileError(
            message(None, f"{file} was measured elsewhere ({differs})", fix="run `polyhal tune` on this device")
        )
    try:
        choices = [TunedChoice.from_json(v) for v in content["choices"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(message(None, f"{file} holds no choices: {error}")) from error
    return {c.key: c for c in choices}


def add(info: DeviceInfo, choices: Mapping[Key, TunedChoice]) -> None:
    """Add choices to those that are kept for a device; other processes may add theirs at the same time. Raises OSError."""
    file = path(info)
    with json_store.changing(file):
        write(file, info, {**load(info), **choices})


def write(file: Path, info: DeviceInfo, choices: Mapping[Key, TunedChoice]) -> None:
    """Replace a file by the choices of a device. Raises OSError."""
    ordered = [dataclasses.asdict(choices[key]) for key in sorted(choices)]
    json_store.write(file, {"schema": _SCHEMA, "device": model(info), "choices": ordered})
