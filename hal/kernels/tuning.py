"""What kernels leave open, tile sizes, group sizes, vectors per work-item, and the choices found best on one device.

A kernel family declares its tunables as a `Family` beside its lowering: a frozen dataclass with the default, the values that
its fields may take, and what a device must have for them. The lowering asks the backend's `Tuning` for each shape class that
it meets: what was measured on this device comes first, then what the profile of its vendor says, then the default.

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
"""The choice of a family: a frozen dataclass whose tunable fields are whole numbers."""
Values = Mapping[str, int]
"""Some fields of a choice."""
Key = tuple[str, str]
"""A family's name and a shape class."""


def _anything(features: Any, choice: Any) -> bool:
    return True


@dataclass(frozen=True)  # without slots: with them, Python 3.11 cannot create a parametrised generic that is frozen
class Family(Generic[C]):
    """The tunables of one kernel family. Its name is that of its kernel file, or begins with it."""

    name: str
    space: Mapping[str, Sequence[int]]
    """The values that a search tries, for each tunable field of the choice."""
    allowed: Callable[[Any, C], bool] = _anything
    """(features of the device, choice): whether the kernel can be built and launched so."""

    def apply(self, features: Any, base: C, values: Values) -> C | None:
        """`base` with some fields replaced; None where a field is unknown or the device does not allow it."""
        if not set(values) <= set(self.space):
            return None
        changed: C = dataclasses.replace(base, **values)  # type: ignore[type-var]
        return changed if self.allowed(features, changed) else None

    def candidates(self, features: Any, base: C) -> Iterator[dict[str, int]]:
        """The fields in which each allowed choice of the space differs from `base`, nearest choices first."""
        names = list(self.space)
        given = {name: getattr(base, name) for name in names}
        options = [sorted(dict.fromkeys([given[n], *self.space[n]]), key=lambda v, n=n: v != given[n]) for n in names]  # type: ignore[misc]
        found = []
        for values in itertools.product(*options):
            changed = {n: v for n, v in zip(names, values, strict=True) if v != given[n]}
            if changed and self.apply(features, base, changed) is not None:
                found.append(changed)
        yield from sorted(found, key=len)


@dataclass(frozen=True, slots=True)
class Question:
    """What a lowering asked: a family, a shape class, and what it takes if nothing better is known."""

    family: Family[Any]
    shape_class: str
    default: Any


@dataclass(frozen=True, slots=True)
class Found:
    """The best choice that a search found for one shape class."""

    family: str
    shape_class: str
    values: dict[str, int]
    """Where it differs from the default; empty where the default is best."""
    speedup: float
    """The time of the default over that of the choice, both medians of one run."""
    date: str
    """ISO 8601, the day."""

    @property
    def key(self) -> Key:
        return self.family, self.shape_class

    @classmethod
    def from_json(cls, value: Any) -> Found:
        """What `dataclasses.asdict` wrote. Raises ValueError for anything else."""
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(f"{value!r} is no choice; expected {', '.join(sorted(names))}")
        numbers = value["values"]
        sound = isinstance(numbers, dict) and all(type(v) is int and isinstance(k, str) for k, v in numbers.items())
        if not (sound and isinstance(value["speedup"], int | float) and isinstance(value["shape_class"], str)):
            raise ValueError(f"{value!r} is no choice")
        return cls(**value)


class Tuning:
    """The choices in force on one device."""

    def __init__(self, features: Any, profile: Mapping[str, Values], found: Mapping[Key, Values]) -> None:
        """`profile` holds values per family, `found` what was measured on this device."""
        self._features = features
        self._profile = profile
        self._found = dict(found)
        self.trial: dict[Key, Values] = {}
        """What a search tries out; it comes before everything else."""
        self.asked: dict[Key, Question] | None = None
        """Where a search wants them: the questions of all lowerings from now on."""

    @property
    def features(self) -> Any:
        """What `Family.allowed` is asked with."""
        return self._features

    def choose(self, family: Family[C], shape_class: str, default: C) -> C:
        """The choice for a shape class: measured on this device, or of its profile, or `default`."""
        profile = self._profile.get(family.name)
        if profile:
            default = family.apply(self._features, default, profile) or default
        key = family.name, shape_class
        if self.asked is not None:
            self.asked[key] = Question(family, shape_class, default)
        for source in (self.trial, self._found):
            values = source.get(key)
            if values is not None:
                return family.apply(self._features, default, values) or default
        return default

    def adopt(self, found: Mapping[Key, Values]) -> None:
        """Replace what was measured; plans that are made already keep their kernels."""
        self._found = dict(found)


@runtime_checkable
class Tunable(Protocol):
    """A backend whose kernels can be tuned."""

    tuning: Tuning


def size_class(*sizes: int) -> str:
    """The shape class of some lengths: each rounded up to a power of four, as in `1024x64`."""
    return "x".join(str(4 ** (max(n - 1, 0).bit_length() + 1 >> 1)) for n in sizes)


def magnitude(elements: int) -> str:
    """The shape class of work on so many elements, whatever their shape: what one launch costs, or caches, or memory."""
    return "small" if elements < _SMALL else "medium" if elements < _LARGE else "large"


def tunables(device: Device) -> Tuning:
    """The tuning of a device. Raises UnsupportedOpError where its backend has nothing to tune."""
    if isinstance(device.backend, Tunable):
        return device.backend.tuning
    raise UnsupportedOpError(
        message(
            None, "this backend has nothing to tune", expected="a device such as opencl",
            fix="`polyhal devices` lists all devices", device=device,
        )
    )  # fmt: skip


def path(info: DeviceInfo) -> Path:
    """The file of a device with its present driver and this version of Polyhal."""
    return env.cache_dir() / "tuning" / f"{model_key(info)}.json"


def load(info: DeviceInfo) -> dict[Key, Found]:
    """What was measured on a device; empty where there is no file that can be used."""
    try:
        return read(path(info), info)
    except (OSError, CorruptFileError, IncompatibleFileError):
        return {}


def read(file: Path, info: DeviceInfo) -> dict[Key, Found]:
    """The choices in a file, for a device. Raises OSError, CorruptFileError, and IncompatibleFileError for another device."""
    content = json_store.read(file, _SCHEMA)
    here, there = model(info), content.get("device")
    if there != here:
        found = there if isinstance(there, dict) else {}
        differs = "; ".join(f"{k}: {found.get(k)!r} there, {v!r} here" for k, v in here.items() if found.get(k) != v)
        raise IncompatibleFileError(
            message(None, f"{file} was measured elsewhere ({differs})", fix="run `polyhal tune` on this device")
        )
    try:
        choices = [Found.from_json(v) for v in content["choices"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(message(None, f"{file} holds no choices: {error}")) from error
    return {f.key: f for f in choices}


def write(file: Path, info: DeviceInfo, found: Mapping[Key, Found]) -> None:
    """Replace a file by the choices of a device. Raises OSError."""
    choices = [dataclasses.asdict(found[key]) for key in sorted(found)]
    json_store.write(file, {"schema": _SCHEMA, "device": model(info), "choices": choices})
