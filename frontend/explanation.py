"""`polyhal.explain`: how a public name runs on a device: an op, a function, a module, an optimizer."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from polyhal.hal.compile.op_plugins import declared, op_plugins
from polyhal.hal.compile.planning.resolution import Resolution
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef, OpFunction
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.protocol import Number
from polyhal.hal.system.diagnostics.called_ops import called_ops, named_in
from polyhal.hal.system.diagnostics.explain_op import resolution
from polyhal.nn import Module
from polyhal.optim import Optimizer
from polyhal.tensor import Tensor

NAMESPACES = (
    "",
    "nn",
    "nn.functional",
    "optim",
    "linalg",
    "fft",
    "special",
    "signal",
    "random",
    "distributions",
    "func",
    "optim.lr_scheduler",
    "nn.init",
    "nn.utils",
    "autograd",
    "amp",
    "utils",
    "utils.data",
    "data",
    "parallel",
    "distributed",
    "serialize",
    "profiler",
    "devices",
)
"""Modules of public names, in the order in which a name without its module is searched for."""
_FOLLOWED = (
    "polyhal.functions",
    "polyhal.nn.",
    "polyhal.linalg",
    "polyhal.fft",
    "polyhal.signal",
    "polyhal.special",
    "polyhal.sampling",
    "polyhal.tensor",
    "polyhal.creation",
    "polyhal.distributions",
    "polyhal.optim.",
)
"""Modules whose functions are followed to the ops that they call."""
_ABSENT = object()
"""Stands for a name without an object; None is the object of `newaxis`."""
_RESOLVED = 12
"""Maximum number of ops of a function that are resolved; further ones are named."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A public name, and how its ops run on a device."""

    name: str
    kind: str
    """op, function, module, optimizer, class, namespace or constant."""
    summary: str
    """First sentence of the docstring."""
    device: Device
    resolutions: tuple[Resolution, ...]
    unresolved: tuple[str, ...]
    """Further ops that it may call."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "kind": self.kind,
            "summary": self.summary,
            "device": self.device.name,
            "ops": [r.to_json() for r in self.resolutions],
            "further_ops": list(self.unresolved),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.kind != "op" or not self.resolutions:
            yield f"{self.name}: {self.kind}" + (f": {self.summary}" if self.summary else "")
            if not self.resolutions:
                yield "  it has no sample; give shapes to plan it" if self.kind == "op" else "  its code names no op"
                return
            yield f"  may call {', '.join([r.op for r in self.resolutions] + list(self.unresolved))}"
        yield f"{self.device.name} ({self.device.info.name})"
        yield from map(str, self.resolutions)


@top_level
def explain(
    op: str | OpFunction,
    device: Device | str | None = None,
    *shapes: tuple[int, ...] | Number,
    dtype: object = float32,
    **params: Any,
) -> str:
    """Explain how a public name runs on `device`: each op step by step, with the reason for every skipped step.

    `op` is the name of an op, built in or of an installed package, a function that `polyhal.kernel` returned, or any public
    name, such as "eigh", "nn.LSTM" or "optim.AdamW", whose ops are then explained. `shapes` has the shape of each input of an
    op, or a number for a scalar; without it, the op's samples provide shapes and parameters. Raises KeyError for an unknown
    name, naming close matches, and ShapeError for missing shapes, or shapes of a name that is not an op.
    """
    return str(explanation(op, device, *shapes, dtype=dtype, **params))


def explanation(
    op: str | OpFunction,
    device: Device | str | None = None,
    *shapes: tuple[int, ...] | Number,
    dtype: object = float32,
    **params: Any,
) -> Explanation:
    """Return the explanation that `explain` prints. Raises as `explain` does."""
    target = Device(device)
    name = op if isinstance(op, str) else op.op.name
    definition = declared(op) if isinstance(op, str) else op.op
    public = public_object(name) if definition is None else None
    if isinstance(found := definition or getattr(public, "op", None), OpDef):
        if not shapes and found.tests.samples is None:
            return Explanation(found.name, "op", _summary(found.reference), target, (), ())
        planned = resolution(op if public is None else found.name, target, *shapes, dtype=dtype, **params)
        return Explanation(planned.op, "op", "", target, (planned,), ())
    ops = ops_of(public)
    if shapes or params:
        expected = f"the name of an op that it calls: {', '.join(ops)}" if ops else "a name only: it calls no op"
        raise ShapeError(message("explain", f"shapes or parameters of {name}, which is not an op", expected=expected))
    resolved: list[Resolution] = []
    for one in ops:
        if len(resolved) < _RESOLVED and (sample := _by_sample(one, target, dtype)) is not None:
            resolved.append(sample)
    known = {r.op for r in resolved}
    kind, summary = kind_of(public), _summary(public)
    return Explanation(name, kind, summary, target, tuple(resolved), tuple(o for o in ops if o not in known))


def public_object(name: str) -> Any:
    """Return the object of a public name, with or without its module. Raises KeyError for an unknown name."""
    short = name.removeprefix("polyhal.")
    modules: list[ModuleType] = []
    for namespace in NAMESPACES:
        module = importlib.import_module(f"polyhal.{namespace}".rstrip("."))
        found: Any = module
        for part in short.split("."):
            hidden = part.startswith("_") and part not in getattr(found, "__all__", ())
            found = _ABSENT if hidden else getattr(found, part, _ABSENT)
        if isinstance(found, ModuleType):  # a function may have the same name in another module, as `fft` has
            modules.append(found)
        elif found is not _ABSENT:
            return found
    if not modules:
        raise KeyError(_unknown(name))
    return modules[0]


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module."""
    return [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")]


def _unknown(name: str) -> str:
    """Return the message for an unknown name, with close ones of all modules and ops."""
    short = name.removeprefix("polyhal.")
    namespaces = {n: importlib.import_module(f"polyhal.{n}".rstrip(".")) for n in NAMESPACES}
    known = [*OPS.names(), *op_plugins().names()]
    known += [f"{n}.{public}".lstrip(".") for n, module in namespaces.items() for public in names_of(module)]
    close = difflib.get_close_matches(short, dict.fromkeys(known), 3)
    return f"unknown name {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def ops_of(public: Any) -> list[str]:
    """Return the names of the ops that a public object may call; of a module in its forward pass, of an optimizer in a step."""
    rule = getattr(public, "op", None)
    if isinstance(rule, str):
        return [rule]
    if not inspect.isclass(public):
        return called_ops(public, _FOLLOWED, (Tensor,))
    if issubclass(public, Module):
        owners = _parts(public)
        methods = [vars(c).get(name) for c in owners for name in ("forward", "forward_each")]
    elif issubclass(public, Optimizer):
        owners = [c for c in public.__mro__ if issubclass(c, Optimizer) and c is not Optimizer]
        methods = [vars(c).get(name) for c in owners for name in ("step", "update")]
    else:
        owners, methods = [public], []
        if public.__module__.startswith(_FOLLOWED):
            methods = [method for name, method in vars(public).items() if not name.startswith("_")]
    found = (called_ops(method, _FOLLOWED, (*owners, Tensor)) for method in methods if method is not None)
    return sorted({op for ops in found for op in ops})


def _parts(module: type[Module]) -> list[type]:
    """Return a class of modules with its bases, and the classes of modules that their constructors name."""
    found: list[type] = []
    pending: list[Any] = [module]
    while pending:
        for c in pending.pop().__mro__:
            if c not in found and issubclass(c, Module) and c is not Module:
                found.append(c)
                pending += [b for b in (getattr(c, "becomes", None),) if b is not None]
                constructor = vars(c).get("__init__")
                pending += [x for x in named_in(constructor) if inspect.isclass(x) and issubclass(x, Module)]
    return found


def kind_of(public: Any) -> str:
    """Return the kind of a public object in one word."""
    if isinstance(public, ModuleType):
        return "namespace"
    if not inspect.isclass(public):
        return "function" if callable(public) else "constant"
    return "module" if issubclass(public, Module) else "optimizer" if issubclass(public, Optimizer) else "class"


def _by_sample(op: str, device: Device, dtype: object) -> Resolution | None:
    """Return the resolution of an op for a sample of its declaration; None for an op without samples in the dtype."""
    try:
        return resolution(op, device, dtype=dtype)
    except (ValueError, TypeError):
        return None


def _summary(public: Any) -> str:
    text = inspect.getdoc(public) if callable(public) or isinstance(public, ModuleType) else ""
    return " ".join((text or "").split("\n\n")[0].split())


__all__ = ["Explanation", "explain", "explanation", "public_object"]
