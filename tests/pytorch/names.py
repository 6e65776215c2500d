"""Every public name of PyTorch, and what became of it here: there, spelled in another way, absent for a reason, or missing."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from polyhal import Tensor
from tests.pytorch.absences import ABSENT, NOT_PUBLIC, OTHER_SPELLINGS
from tests.pytorch.spellings import SPELLINGS


class Status(enum.StrEnum):
    """What became of a name."""

    THERE = "there"
    SPELLED = "spelled in another way"
    ABSENT = "absent"
    MISSING = "missing"


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
"""Below `torch`; `torch` itself and `Tensor` stand for the top level and for methods."""


def public_names(namespace: str) -> list[str]:
    """The public names of a namespace of PyTorch: functions and classes, and for `Tensor` properties too."""
    if namespace == "Tensor":
        return [n for n in dir(torch.Tensor) if not n.startswith("_")]
    module = torch if namespace == "torch" else importlib.import_module(f"torch.{namespace}")
    return [n for n in sorted(vars(module)) if not n.startswith("_") and _belongs(module, n)]


def _belongs(module: ModuleType, name: str) -> bool:
    value = getattr(module, name)
    if not callable(value) or isinstance(value, ModuleType):
        return False
    if module is torch:
        return not inspect.isclass(value) and not name.endswith("_") and bool(getattr(value, "__doc__", None))
    home = getattr(value, "__module__", None) or module.__name__
    return home.startswith("torch") and not isinstance(value, type(Any))


def status(namespace: str, name: str) -> Name:
    """What became of a name."""
    qualified = name if namespace == "torch" else f"{namespace}.{name}"
    spelling = OTHER_SPELLINGS.get(qualified) or _spelling(namespace, name)
    if spelling:
        return Name(namespace, name, Status.SPELLED, spelling)
    for pattern, reason in ABSENT.items():
        if re.fullmatch(pattern, qualified):
            return Name(namespace, name, Status.ABSENT, reason)
    return Name(namespace, name, Status.THERE if _is_there(namespace, name) else Status.MISSING)


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


def all_names() -> Iterator[Name]:
    """All public names that concern users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for namespace in NAMESPACES:
            for name in public_names(namespace):
                qualified = name if namespace == "torch" else f"{namespace}.{name}"
                if not any(re.fullmatch(pattern, qualified) for pattern in NOT_PUBLIC):
                    yield status(namespace, name)
