"""Every public name of PyTorch and its status here: present, under another form, left out, missing, or foreign.

Names of common use are all but the foreign ones, which are about something that does not exist here, such as sparse tensors.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from polyhal import Tensor
from tests.pytorch.absences import ABSENT, FOREIGN, NOT_PUBLIC, OTHER_SPELLINGS
from tests.pytorch.spellings import SPELLINGS


class Status(enum.StrEnum):
    """Status of a name."""

    THERE = "there"
    DIFFERS = "there, with a difference"
    SPELLED = "spelled in another way"
    ABSENT = "left out"
    MISSING = "missing"
    FOREIGN = "about something that is not here"


@dataclass(frozen=True, slots=True)
class Name:
    """A public name of PyTorch. `detail` is the spelling or the reason."""

    namespace: str
    name: str
    status: Status
    detail: str = ""


NAMESPACES = (
    "torch", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "optim", "optim.lr_scheduler",
    "optim.swa_utils", "linalg", "fft", "special", "signal.windows", "func", "autograd", "autograd.functional", "distributions",
    "utils.data",
)  # fmt: skip
"""Namespace below `torch`; `torch` itself is the top level, and `Tensor` the methods."""


def public_names(namespace: str) -> list[str]:
    """Return the public names of a namespace of PyTorch: functions and classes, and for `Tensor` properties too."""
    if namespace == "Tensor":
        of_devices = _methods_of_added_devices()
        return [n for n in dir(torch.Tensor) if not n.startswith("_") and n not in of_devices]
    module = torch if namespace == "torch" else importlib.import_module(f"torch.{namespace}")
    return [n for n in sorted(vars(module)) if not n.startswith("_") and _belongs(module, n)]


def _methods_of_added_devices() -> set[str]:
    """Return names that PyTorch adds to tensors for a device of another package, such as `polyhal.torch`."""
    device = torch._C._get_privateuse1_backend_name()
    return {device, f"is_{device}"}


def _belongs(module: ModuleType, name: str) -> bool:
    value = getattr(module, name)
    if not callable(value) or isinstance(value, ModuleType):
        return False
    if module is torch:
        return not inspect.isclass(value) and not name.endswith("_") and bool(getattr(value, "__doc__", None))
    home = getattr(value, "__module__", None) or module.__name__
    return home.startswith("torch") and not isinstance(value, type(Any))


def status(namespace: str, name: str) -> Name:
    """Status of a name."""
    qualified = name if namespace == "torch" else f"{namespace}.{name}"
    spelling = OTHER_SPELLINGS.get(qualified) or _spelling(namespace, name)
    if spelling:
        return Name(namespace, name, Status.DIFFERS if _is_there(namespace, name) else Status.SPELLED, spelling)
    if _is_there(namespace, name):
        return Name(namespace, name, Status.THERE)
    for reasons, kind in ((ABSENT, Status.ABSENT), ({p: s for s, p in FOREIGN.items()}, Status.FOREIGN)):
        for pattern, reason in reasons.items():
            if re.fullmatch(pattern, qualified):
                return Name(namespace, name, kind, reason)
    return Name(namespace, name, Status.MISSING)


def _spelling(namespace: str, name: str) -> str:
    key = name if namespace in ("torch", "Tensor") else f"{namespace}.{name}"
    spelled = SPELLINGS.get(key)
    return spelled.text if spelled else ""


def _is_there(namespace: str, name: str) -> bool:
    if namespace == "Tensor":
        return hasattr(Tensor, name) or name in Tensor.__slots__
    try:
        place = importlib.import_module("polyhal" if namespace == "torch" else f"polyhal.{namespace}")
    except ImportError:
        return False
    return hasattr(place, name)


@functools.cache
def all_names() -> tuple[Name, ...]:
    """Return all public names that concern users."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for namespace in NAMESPACES:
            for name in public_names(namespace):
                qualified = name if namespace == "torch" else f"{namespace}.{name}"
                if not any(re.fullmatch(pattern, qualified) for pattern in NOT_PUBLIC):
                    found.append(status(namespace, name))
    return tuple(found)
