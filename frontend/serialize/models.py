"""Whole models as data: the classes of their layers, the constructors' arguments, and their state.

A file contains names of classes, never code: names are looked up only in `polyhal.nn`, in the packages that offer models by an
entry point, such as `polyhal.models`, and among the classes that the caller passes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from math import prod
from typing import Any

import numpy as np

from polyhal.creation import zeros
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.nn.construction import Construction, TensorArgument
from polyhal.nn.container import ModuleDict, ModuleList, Sequential
from polyhal.nn.module import Module
from polyhal.nn.parameter import relocate
from polyhal.random import default_generator
from polyhal.serialize.readers.stored import damage_reported
from polyhal.serialize.tree import LazyState

_FORMAT = "polyhal.model"
_VERSION = 1
MODELS_GROUP = "polyhal.models"
"""Entry-point group of packages of models. The classes in the `__all__` of such a package are saved by name."""
_PACKAGES = ("polyhal.nn", "polyhal.nn.functional", "polyhal")
"""Packages in which classes and functions of Polyhal are looked up."""
_CONTAINERS: tuple[type[Module], ...] = (Sequential, ModuleList, ModuleDict)
"""Modules that are saved by their current children, because children may be replaced or appended."""
_LARGEST_ITEM = 8
_EXPANSION = 4
_FREE_BYTES = 128 << 20
"""Limit on a model's memory during construction: `_FREE_BYTES` + `_EXPANSION` times the bytes of its weights."""
_FIX = "save model.state_dict() instead and construct the model yourself"


def describe(model: Module) -> dict[str, Any]:
    """Return the model as a state for `save`. Raises TypeError, with its position, for an argument that is not data."""
    encoder = _ConstructionEncoder()
    return {
        _FORMAT: _VERSION,
        "construction": encoder.module(model, ""),
        "layers": _layers(model),
        "evaluating": [name for name, module in model.named_modules() if not module.training],
        "frozen": [name for name, p in model.named_parameters() if not p.requires_grad],
        "state": model.state_dict(),
    }


def is_model(tree: Any) -> bool:
    """Return whether a saved tree describes a whole model."""
    return isinstance(tree, dict) and tree.get(_FORMAT) is not None


def rebuild(state: Mapping[str, Any], device: Device, classes: Iterable[type] = ()) -> Module:
    """Reconstruct the model of `describe`, on `device`. The state may be lazy: weights are read one at a time.

    Raises IncompatibleFileError for an unknown class, and the errors of constructors and of `load_state_dict`.
    """
    version = state[_FORMAT]
    if type(version) is not int or version != _VERSION:
        raise IncompatibleFileError(message("load", f"the model has format {version}", expected=f"{_VERSION}"))
    with damage_reported("the description of the model is damaged"):  # the file determines the constructors' arguments
        return _rebuilt(state, device, classes)


def _rebuilt(state: Mapping[str, Any], device: Device, classes: Iterable[type]) -> Module:
    weights = state["state"]
    position = default_generator.get_state()
    try:
        with dispatch.default_device(device), _allocating(_bytes_of(weights), device):
            model = _ConstructionDecoder(classes).value(_plain(state["construction"]))
            if not isinstance(model, Module):
                raise CorruptFileError(message("load", "the file does not describe a module"))
            _replace_layers(model, _plain(state.get("layers", {})), classes)
    finally:
        default_generator.set_state(position)  # undo the draws of initial values, which the weights replace
    model.to(device)
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        saved = weights[name].dtype if name in weights and x.dtype.is_floating_point else x.dtype
        if saved is not x.dtype:
            relocate(x, None, saved)
    model.load_state_dict(weights)
    for name in state["frozen"]:
        model.get_parameter(name).requires_grad_(False)
    for name in state["evaluating"]:
        object.__setattr__(model.get_submodule(name), "training", False)
    return model


def _bytes_of(weights: LazyState) -> int:
    """Return the bytes of all tensors of a state, from their shapes."""
    shapes = [weights.shape_of(name) for name in weights] if isinstance(weights, LazyState) else []
    return sum(_LARGEST_ITEM * prod(shape) for shape in shapes if shape is not None)


@contextmanager
def _allocating(nbytes: int, device: Device) -> Iterator[None]:
    """Limit the memory of a model's construction: a line of text can describe layers larger than any memory.

    Raises CorruptFileError if layers allocate several times the bytes of the weights in the file.
    """
    limit = device.pool.reserved + _FREE_BYTES + _EXPANSION * nbytes
    thread = threading.get_ident()

    def check(size: int) -> None:
        if threading.get_ident() == thread and device.pool.reserved + size > limit:
            problem = f"the layers of the model need more than {limit >> 20} MiB"
            expected = f"sizes that agree with weights of {nbytes >> 20} MiB"
            raise CorruptFileError(message("load", problem, expected=expected))

    previous, device.pool.check = device.pool.check, check
    try:
        yield
    finally:
        device.pool.check = previous


def _layers(model: Module) -> dict[str, Any]:
    """Return each submodule's construction by path: None if it is not data, or the path of an earlier use of the module.

    Layers may have been replaced, added or removed after the construction of the model.
    """
    paths: dict[int, str] = {}
    out: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        first = paths.setdefault(id(module), path)
        if path:
            out[path] = _construction_of(module, path) if first == path else {"kind": "same", "path": first}
    return out


def _construction_of(module: Module, path: str) -> dict[str, Any] | None:
    """Return the construction of one module without its children. Raises TypeError if its class has changed."""
    encoder = _ConstructionEncoder()
    encoder.check_class(module, path)
    if type(module) in _CONTAINERS:  # their children have paths of their own
        return {"kind": "container", "class": _name(type(module)), "number": 0, "children": []}
    try:
        return encoder.module(module, path)
    except TypeError:
        return None


def _replace_layers(model: Module, layers: Mapping[str, Any], classes: Iterable[type]) -> None:
    """Replace submodules that differ from the saved ones."""
    decoder = _ConstructionDecoder(classes)
    for path, saved in layers.items():
        parent, _, name = path.rpartition(".")
        owner = model.get_submodule(parent)
        present = owner.__dict__[name] if name in owner._modules else None
        if isinstance(saved, dict) and saved["kind"] == "same":
            if present is not model.get_submodule(saved["path"]):
                owner.add_module(name, model.get_submodule(saved["path"]))
        elif saved is not None and (present is None or _construction_of(present, path) != saved):
            owner.add_module(name, decoder.value(saved))
    for path, owner in list(model.named_modules(remove_duplicate=False)) if layers else []:
        _keep_children(owner, path, layers)


def _keep_children(owner: Module, path: str, layers: Mapping[str, Any]) -> None:
    """Remove the children that were not saved, and restore the order of the others."""
    if path and path not in layers:
        return  # its parent removes it, or another path of the same module lists its children
    names = [p.rpartition(".")[2] for p in layers if p.rpartition(".")[0] == path]
    for name in [n for n, child in _children(owner) if n not in names]:
        delattr(owner, name)
    absent = [n for n in owner._modules if n not in names]
    registry = {name: owner._modules[name] for name in (*names, *absent)}
    owner._modules.clear()
    owner._modules.update(registry)


def _plain(value: Any) -> Any:
    """Convert a lazy state to dictionaries."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value


class _ConstructionEncoder:
    """Converts constructions to plain data. Repeated modules refer to the first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def module(self, module: Module, path: str) -> dict[str, Any]:
        """Return the construction of a module with its current children."""
        construction = self.check_class(module, path)
        if construction.of not in _CONTAINERS:
            return self._construction(construction, path)
        known = self._numbers.get(id(construction))
        if known is not None:
            return {"kind": "again", "number": known}
        self._numbers[id(construction)] = number = len(self._numbers)
        children = [[name, self.module(child, f"{path}.{name}")] for name, child in _children(module)]
        return {"kind": "container", "class": _name(construction.of), "number": number, "children": children}

    def check_class(self, module: Module, path: str) -> Construction:
        """Return the construction of a module. Raises TypeError if its class has changed."""
        construction = module._construction
        if type(module) is not construction.of:
            raise TypeError(
                message("save", f"{path or 'the model'} became a {type(module).__name__} after it was made", fix=_FIX)
            )
        return construction

    def _construction(self, construction: Construction, path: str) -> dict[str, Any]:
        known = self._numbers.get(id(construction))
        if known is not None:
            return {"kind": "again", "number": known}
        self._numbers[id(construction)] = number = len(self._numbers)
        where = f"{path}: {construction.of.__name__}" if path else construction.of.__name__
        args, kwargs = _anywhere(construction.of, construction.args, construction.kwargs)
        return {
            "kind": "module",
            "class": _name(construction.of),
            "number": number,
            "args": [self._value(v, f"{where}, argument {i + 1}") for i, v in enumerate(args)],
            "kwargs": [[k, self._value(v, f"{where}, argument {k!r}")] for k, v in kwargs.items()],
        }

    def _value(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Construction):
            return self._construction(value, where)
        if isinstance(value, (list, tuple)):
            return {"kind": type(value).__name__, "items": [self._value(v, where) for v in value]}
        if isinstance(value, Mapping):
            return {"kind": "dict", "items": [[k, self._value(v, where)] for k, v in value.items()]}
        if isinstance(value, TensorArgument):
            return {"kind": "tensor", "shape": list(value.shape), "dtype": value.dtype.name}
        if isinstance(value, DType):
            return {"kind": "dtype", "name": value.name}
        if isinstance(value, Device):
            return {"kind": "device"}
        if is_dataclass(value) and not isinstance(value, type) and _public(type(value)):
            entries = [[f.name, self._value(getattr(value, f.name), where)] for f in fields(value) if f.init]
            return {"kind": "data", "class": _name(type(value)), "items": entries}
        if (isinstance(value, type) or callable(value)) and _public(value):
            return {"kind": "name", "class": _name(value)}
        raise TypeError(
            message("save", f"{where}, is a {getattr(value, 'kind', type(value).__name__)}", expected="data", fix=_FIX)
        )


def _children(module: Module) -> list[tuple[str, Module]]:
    children = [(name, module.__dict__[name]) for name in module._modules]
    return [(name, child) for name, child in children if child is not None]


def _public(value: Any) -> str | None:
    """Return the public name of a class or function of Polyhal or of a package of models; None if it has none."""
    name = getattr(value, "__name__", None)
    if name is not None:
        # The package of a class is loaded with it.
        for package in (*_PACKAGES, *(p for p in _packages_of_models() if p in sys.modules)):
            if getattr(importlib.import_module(package), name, None) is value:
                return f"{package}.{name}"
    return None


def _anywhere(cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return a constructor's arguments without the device: the caller of `load` chooses it."""
    names = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    at = names.index("device") if "device" in names else len(args)
    out = [None if i == at else v for i, v in enumerate(args)]
    return out, {k: None if k == "device" else v for k, v in kwargs.items()}


def _name(cls: Any) -> str:
    return _public(cls) or f"{cls.__module__}:{cls.__qualname__}"


class _ConstructionDecoder:
    """Constructs modules from plain data."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = {cls.__qualname__: cls for cls in classes}
        self._made: dict[int, Module] = {}

    def value(self, data: Any) -> Any:
        """Return the value of a description. Raises CorruptFileError, IncompatibleFileError, and others for invalid data."""
        return self._of_kind(data) if isinstance(data, dict) else data

    def _of_kind(self, data: dict[str, Any]) -> Any:
        kind = data["kind"]
        if kind == "again":
            return self._made[data["number"]]
        if kind == "module":
            cls = self._class(data["class"], Module)
            given = [self.value(v) for v in data["args"]], {k: self.value(v) for k, v in data["kwargs"]}
            args, kwargs = _anywhere(cls, *given)
            module = cls(*args, **kwargs)
            self._made[data["number"]] = module
            return module
        if kind == "container":
            children = {name: self.value(child) for name, child in data["children"]}
            container = self._class(data["class"], Module)
            if container not in _CONTAINERS:
                raise CorruptFileError(message("load", f"{data['class']} is not a container"))
            made = container(list(children.values()) if container is ModuleList else children)
            self._made[data["number"]] = made
            return made
        if kind in ("list", "tuple"):
            items = [self.value(v) for v in data["items"]]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {k: self.value(v) for k, v in data["items"]}
        if kind == "tensor":
            return zeros(tuple(data["shape"]), dtype=as_dtype(data["dtype"]))
        if kind == "dtype":
            return as_dtype(data["name"])
        if kind == "device":
            return None
        if kind == "data":
            return self._class(data["class"], object)(**{k: self.value(v) for k, v in data["items"]})
        if kind == "name":
            return _lookup(data["class"])
        raise CorruptFileError(message("load", f"the description of the model has an unknown kind {kind!r}"))

    def _class(self, name: str, base: type) -> Any:
        """Return the class with that name: one of Polyhal, or one that the caller passed."""
        if ":" in name:
            short = name.partition(":")[2]
            found = self._classes.get(short)
            if found is None:
                raise IncompatibleFileError(
                    message(
                        "load",
                        f"the model requires the class {short}, of {name.partition(':')[0]}",
                        expected="a class of Polyhal or one that you pass",
                        fix=f"call load(path, classes=[{short.rpartition('.')[2]}])",
                    )
                )
        else:
            found = _lookup(name)
        if not isinstance(found, type) or not (issubclass(found, base) and (base is Module or is_dataclass(found))):
            raise CorruptFileError(message("load", f"{name} is not a class of models"))
        return found


@functools.cache
def _packages_of_models() -> frozenset[str]:
    """Return the packages that offer models by an entry point. Does not import them."""
    return frozenset(point.value for point in entry_points(group=MODELS_GROUP))


def _lookup(name: str) -> Any:
    """Return a class or function of Polyhal, or of a package of models, by its public name. Raises IncompatibleFileError."""
    package, _, short = name.rpartition(".")
    value = None
    if package in _PACKAGES:
        value = getattr(importlib.import_module(package), short, None)
        origin = getattr(value, "__module__", "") or ""
        value = value if origin.startswith("polyhal") and not short.startswith("_") else None
    elif package in _packages_of_models():
        module = importlib.import_module(package)
        value = getattr(module, short) if short in module.__all__ else None
    if not callable(value):
        expected = "a name of polyhal.nn, or of a package that offers models"
        raise IncompatibleFileError(message("load", f"the model requires {name}", expected=expected))
    return value


__all__ = ["describe", "is_model", "rebuild"]
