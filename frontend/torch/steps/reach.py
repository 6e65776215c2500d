"""Find the objects that a step can read: closures, globals and attributes of its function, modules and optimizers.

Bytecode lists the names that functions load; only objects with such a name are guarded.
"""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import polyhal
from polyhal.torch.steps.guards import SIMPLE, Attributes, ClassValues, Guards

_MOST_ITEMS = 256
"""Maximum length of lists and dictionaries whose items are compared. Longer ones are data: only their size is compared."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_UNCALLED = frozenset(f"__{name}__" for name in ("init", "new", "del", "init_subclass", "repr", "str", "reduce"))
"""Special methods that begin, end or describe an object."""


class LoadedNames(NamedTuple):
    """The names that code loads."""

    variables: frozenset[str]
    """Names of globals."""
    attributes: frozenset[str]


@functools.lru_cache(maxsize=8192)
def loaded_names(code: CodeType) -> LoadedNames:
    """Return the names that a function and its nested functions load."""
    variables, attributes = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            variables.add(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = loaded_names(constant)
            variables |= inner.variables
            attributes |= inner.attributes
    return LoadedNames(frozenset(variables), frozenset(attributes))


@functools.lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = (torch.__file__, polyhal.__file__)
    installed = (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    # Of users, of the system, and of other environments.
    further = (path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    return (*installed, *further, *(str(Path(f).parent) for f in own if f), "<")


def is_library(code: CodeType) -> bool:
    """Return whether code belongs to an installed library rather than to this program."""
    return code.co_filename.startswith(_library_folders())


def _has_attributes(value: Any) -> bool:
    """Return whether a program can assign attributes to an object, in its dictionary or in slots."""
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def _special_methods(kind: type) -> list[FunctionType]:
    """Return the methods of a class, and of its bases, that programs call by operators or calls rather than by their names."""
    own = (vars(c).items() for c in kind.__mro__)
    special = [f for items in own for n, f in items if n.startswith("__") and n.endswith("__") and n not in _UNCALLED]
    return [f for f in special if isinstance(f, FunctionType) and not is_library(f.__code__)]


class Reach:
    """Collects guards, optimizers and parameters of the visited objects."""

    def __init__(self, live_settings: frozenset[str]) -> None:
        """Begin without guards; `live_settings` names the optimizer settings that each run reads."""
        self.guards = Guards()
        self.optimizers: list[Optimizer] = []
        self.parameters: list[torch.Tensor] = []
        self._live_settings = live_settings
        self._seen: dict[int, Any] = {}
        self._names: set[str] = {"forward"}
        self._objects: list[tuple[Any, Any, str]] = []
        """Objects, their attribute dictionaries, and their names."""
        self._done: set[tuple[int, str]] = set()

    def visit_all(self, roots: dict[str, Any]) -> None:
        """Visit objects by name, and all objects that they reach."""
        for name, value in roots.items():
            self._visit(value, name)
        count = -1
        while count != (count := len(self._done) + len(self._names) + len(self._objects)):
            for target, places, name in list(self._objects):
                self._visit_attributes(target, places, name)

    def _visit(self, value: Any, name: str) -> None:
        if id(value) in self._seen or isinstance(value, (SIMPLE, LRScheduler)):
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._visit_tensor(value)
        elif isinstance(value, nn.Module):
            self._visit_module(value, name)
        elif isinstance(value, Optimizer):
            self._visit_optimizer(value, name)
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._visit(value.__self__, name)
            self._visit(value.__func__, name)
        elif isinstance(value, (classmethod, staticmethod)):
            self._visit(value.__func__, name)
        elif isinstance(value, property):
            self._visit(value.fget, name)
        elif isinstance(value, functools.partial):
            for x in (value.func, *value.args, *value.keywords.values()):
                self._visit(x, name)
        elif isinstance(value, (list, dict)):
            self._visit_items(value, name)
        elif isinstance(value, tuple):
            for i, x in enumerate(value):
                self._visit(x, f"{name}[{i}]")
        elif isinstance(value, (ModuleType, type)):
            self._visit_namespace(value, name)
        elif _has_attributes(value) and not type(value).__module__.startswith(("torch.", "polyhal.")):
            if hasattr(value, "__dict__"):
                self.guards.note_attributes(value.__dict__)
            self._add_object(value, name)

    def _guard_item(self, container: Any, key: int | str, name: str) -> None:
        """Guard the object or value `container[key]`, and visit it."""
        value = container[key]
        if isinstance(value, SIMPLE):
            self.guards.expect_value(container, key, name)
            return
        is_installed = isinstance(value, FunctionType | MethodType) and is_library(value.__code__)
        if not is_installed and not isinstance(value, (ModuleType, type)):
            self.guards.expect_object(container, key, name)
        self._visit(value, name)

    def _visit_function(self, function: FunctionType) -> None:
        code = function.__code__
        names = loaded_names(code)
        self._names |= names.attributes
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if _is_filled(cell):
                self._guard_item(Attributes(cell), "cell_contents", variable)
        for x in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(x, f"a default of {function.__qualname__}")
        if not is_library(code):
            if function.__dict__:
                self.guards.note_attributes(function.__dict__)
                self._objects.append((function, function.__dict__, function.__qualname__))
            for variable in sorted(names.variables & function.__globals__.keys()):
                if (id(function.__globals__), variable) not in self._done:
                    self._done.add((id(function.__globals__), variable))
                    self._guard_item(function.__globals__, variable, variable)

    def _visit_items(self, value: Any, name: str) -> None:
        self.guards.expect_size(value, name)
        if len(value) <= _MOST_ITEMS:
            for key in range(len(value)) if isinstance(value, list) else list(value):
                self._guard_item(value, key, f"{name}[{key!r}]")

    def _visit_namespace(self, value: Any, name: str) -> None:
        """Visit a Python module or a class, unless it is installed."""
        source = getattr(sys.modules.get(getattr(value, "__module__", value.__name__)), "__file__", None)
        if source and not source.startswith(_library_folders()):
            self._objects.append((value, vars(value), name))

    def _visit_inherited(self, target: Any, kind: type, attribute: str, name: str) -> None:
        """Visit an attribute that a class defines for an object: a value, which the object may replace, a slot, or a method."""
        found = vars(kind)[attribute]
        if isinstance(found, SIMPLE) and not isinstance(target, type):
            self.guards.expect_value(ClassValues(target, kind), attribute, name)
        elif isinstance(found, MemberDescriptorType):
            if hasattr(target, attribute):
                self._guard_item(Attributes(target), attribute, name)
        else:
            self._visit(found, name)

    def _visit_attributes(self, target: Any, places: Any, name: str) -> None:
        """Visit the attributes of an object whose names are loaded by code."""
        methods = [c for c in type(target).__mro__ if c not in (object, nn.Module, type)]
        for attribute in sorted(self._names):
            if (id(target), attribute) in self._done:
                continue
            if attribute in places:
                self._done.add((id(target), attribute))
                self._guard_item(places, attribute, f"{name}.{attribute}")
                continue
            for kind in methods:
                if attribute in vars(kind):
                    self._done.add((id(target), attribute))
                    self._visit_inherited(target, kind, attribute, f"{name}.{attribute}")
                    break

    def _visit_module(self, module: nn.Module, name: str) -> None:
        guards, own = self.guards, module.__dict__
        is_torch = type(module).__module__.startswith("torch.")
        guards.note_attributes(own)
        for key, value in own.items():
            if key == "training" or (is_torch and isinstance(value, SIMPLE)):
                guards.expect_value(own, key, f"{name}.{key}")
                self._done.add((id(module), key))
        for kind in ("_parameters", "_buffers", "_modules"):
            held = own[kind]
            guards.expect_size(held, f"{name}.{kind}")
            for key in held:
                self._guard_item(held, key, f"{name}.{key}")
            self._done.add((id(module), kind))
        for hooks in _HOOKS:
            guards.expect_size(own[hooks], f"{name}.{hooks}")
        if not is_torch:
            self._add_object(module, name)

    def _add_object(self, value: Any, name: str) -> None:
        self._objects.append((value, getattr(value, "__dict__", {}), name))
        for method in _special_methods(type(value)):
            self._visit(method, name)

    def _visit_tensor(self, x: torch.Tensor) -> None:
        self.guards.expect_memory(x)
        if x.requires_grad and x.is_leaf:
            self.parameters.append(x)

    def _visit_optimizer(self, optimizer: Optimizer, name: str) -> None:
        guards = self.guards
        self.optimizers.append(optimizer)
        own = optimizer.__dict__
        for key in ("param_groups", "state"):
            guards.expect_object(own, key, f"{name}.{key}")
            guards.expect_size(own[key], f"{name}.{key}")
        for i, group in enumerate(optimizer.param_groups):
            guards.expect_object(optimizer.param_groups, i, f"{name}.param_groups[{i}]")
            self._visit_group(group, f"{name}.param_groups[{i}]")
        for state in optimizer.state.values():
            if isinstance(state, dict):
                guards.expect_size(state, f"{name}.state")
                for key in state:
                    self._guard_item(state, key, f"{name}.state[...][{key!r}]")

    def _visit_group(self, group: dict[str, Any], name: str) -> None:
        for key, value in group.items():
            if key == "params":
                self._guard_item(group, key, f"{name}['params']")
            elif isinstance(value, torch.Tensor):
                self._guard_item(group, key, f"{name}[{key!r}]")
            elif key not in self._live_settings or not _is_float_setting(value):
                self.guards.expect_value(group, key, f"{name}[{key!r}]")


def _is_float_setting(value: Any) -> bool:
    """Return whether a setting of an optimizer is a float, or a tuple of floats like Adam's betas."""
    return type(value) is float or (type(value) is tuple and all(type(x) is float for x in value))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
