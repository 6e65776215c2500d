"""Tuning: the tunables of kernel families, such as tile sizes, and the values found best on one device.

A kernel family declares its tunables as a `Family` next to its lowering: a frozen dataclass, the allowed values of its
fields, and their device requirements. The lowering reads a choice per shape class from the backend's `Tuning`. Values
measured on this device take precedence over the vendor's profile, and the profile over the default.

Measured choices are stored in one JSON file per device, driver and version. An unreadable file counts as absent.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.fingerprint import model, model_key
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedOpError, message

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SCHEMA = 1
_SMALL = 2**16
_LARGE = 2**22
"""Minimum elements of memory-bound work: 16 MiB of float32, more than the last-level cache per core of most processors."""

C = TypeVar("C")
"""Choice of a family: a frozen dataclass whose tunable fields are integers."""
Values = Mapping[str, int]
"""Values of some fields of a choice."""
Key = tuple[str, str]
"""Name of a family, and a shape class."""


def _always(features: Any, choice: Any) -> bool:
    return True


@dataclass(frozen=True)  # without slots: with them, Python 3.11 cannot create a parametrised generic that is frozen
class Family(Generic[C]):
    """Tunables of one kernel family. Its name is or starts with the name of its kernel file."""

    name: str
    space: Mapping[str, Sequence[int]]
    """Values that a search tries, for each tunable field of the choice."""
    allowed: Callable[[Any, C], bool] = _always
    """Predicate (features of the device, choice): whether the kernel can be built and launched with the choice."""

    def apply(self, features: Any, base: C, values: Values) -> C | None:
        """Return `base` with some fields replaced; None if a field is unknown or the device does not allow the result."""
        if not set(values) <= set(self.space):
            return None
        changed: C = dataclasses.replace(base, **values)  # type: ignore[type-var]
        return changed if self.allowed(features, changed) else None

    def searches(self, values: Values) -> bool:
        """Return whether a search tries these values; values from a file may be arbitrary."""
        return all(value in self.space.get(name, ()) for name, value in values.items())

    def candidates(self, features: Any, base: C) -> Iterator[dict[str, int]]:
        """Yield the fields in which each allowed choice differs from `base`, fewest differences first."""
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
    """A request of a lowering: family, shape class, and its default choice."""

    family: Family[Any]
    shape_class: str
    default: Any


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """Best choice of a search for one shape class."""

    family: str
    shape_class: str
    values: dict[str, int]
    """Fields that differ from the default; empty if the default is best."""
    speedup: float
    """Time of the default divided by the time of the choice, the median over rounds of one run."""
    date: str
    """Day of the search, ISO 8601."""

    @property
    def key(self) -> Key:
        """Return family and shape class."""
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
    """Choices in use on one device."""

    def __init__(self, features: Any, profile: Mapping[str, Values], measured: Mapping[Key, Values]) -> None:
        """Start with values per family (`profile`), and the best values measured on this device (`measured`)."""
        self._features = features
        self._profile = profile
        self._measured = dict(measured)
        self.trial: dict[Key, Values] = {}
        """Candidates of a search; they take precedence over all other values."""
        self.requests: dict[Key, TuningRequest] | None = None
        """Requests of all lowerings, collected if a search sets this to a dictionary."""

    @property
    def features(self) -> Any:
        """Return the features of the device, as passed to `Family.allowed`."""
        return self._features

    def choose(self, family: Family[C], shape_class: str, default: C) -> C:
        """Return the choice for a shape class: the measured choice, else the profile's, else `default`."""
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
        """Replace the measured choices. Existing plans keep their kernels."""
        self._measured = dict(measured)


@runtime_checkable
class Tunable(Protocol):
    """A backend whose kernels can be tuned."""

    tuning: Tuning


def size_class(*sizes: int) -> str:
    """Return the shape class of some lengths: each rounded up to a power of four, such as `1024x64`."""
    return "x".join(str(4 ** (max(n - 1, 0).bit_length() + 1 >> 1)) for n in sizes)


def magnitude(elements: int) -> str:
    """Return the shape class of work on `elements` elements: bound by launch overhead, by caches, or by memory."""
    return "small" if elements < _SMALL else "medium" if elements < _LARGE else "large"


def tunables(device: Device) -> Tuning:
    """Return the tuning of a device. Raises UnsupportedOpError if its backend has no tunables."""
    if isinstance(device.backend, Tunable):
        return device.backend.tuning
    raise UnsupportedOpError(
        message(
            None,
            "this backend has no tunables",
            expected="a device such as opencl",
            fix="`polyhal devices` lists all devices",
            device=device,
        )
    )


def path(info: DeviceInfo) -> Path:
    """Return the file for a device with its current driver and this version of Polyhal."""
    return env.cache_dir() / "tuning" / f"{model_key(info)}.json"


def load(info: DeviceInfo) -> dict[Key, TunedChoice]:
    """Return the measured choices of a device; empty if there is no usable file."""
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
        raise CorruptFileError(message(None, f"{file} does not contain valid choices: {error}")) from error
    return {c.key: c for c in choices}


def add(info: DeviceInfo, choices: Mapping[Key, TunedChoice]) -> None:
    """Add choices to the stored ones of a device; other processes may do so at the same time. Raises OSError."""
    file = path(info)
    with json_store.changing(file):
        write(file, info, {**load(info), **choices})


def write(file: Path, info: DeviceInfo, choices: Mapping[Key, TunedChoice]) -> None:
    """Replace a file by the choices of a device. Raises OSError."""
    ordered = [dataclasses.asdict(choices[key]) for key in sorted(choices)]
    json_store.write(file, {"schema": _SCHEMA, "device": model(info), "choices": ordered})
