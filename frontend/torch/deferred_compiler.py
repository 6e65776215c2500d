"""PyTorch's compiler, `torch._dynamo`, is imported at its first use.

Optimizers import it, which takes longer than a first training step, for two functions: `disable` and
`graph_break` exclude code from compiled programs, and are no-ops while nothing can be compiled. Here `torch._dynamo` is an
empty module with these two. Any other name, and an import of one of its modules, fills it.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import Any

import torch

NAME = "torch._dynamo"
_MARK = "__dynamo_disable"
"""Attribute in which PyTorch keeps the result of `disable` for a function of its own."""


def install() -> None:
    """Defer the import. No-op if PyTorch's compiler is imported already, or by a second call."""
    spec = None if NAME in sys.modules else find_spec(NAME)
    if spec is not None and spec.loader is not None:
        _Import(spec, spec.loader).defer()


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the collection of reference cycles, which takes a third of an import that keeps what it allocates.

    New objects count as old ones afterwards: otherwise the next collection of young objects would visit all of them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # the program has frozen none, which the second call would release
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class _Deferred(types.ModuleType):
    """The module until its import is complete."""

    importing_thread = 0
    """Identifier of the thread that imports it."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and self.importing_thread != threading.get_ident():
            importlib.import_module(f"{NAME}.config")  # any module in the package; waits for another thread's import
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}")


class _Import(MetaPathFinder, Loader):
    """Finder and loader that fill the empty module: an import of a module in it imports the package first."""

    def __init__(self, spec: ModuleSpec, loader: Loader) -> None:
        self._spec = spec
        self._loader = loader
        self._module = module_from_spec(spec)
        self._module.__class__ = _Deferred
        self._lock = threading.Lock()
        self._is_deferred = True
        self._disabled: list[Callable[..., Any]] = []
        """Functions of PyTorch for which `disable` was a no-op."""

    def defer(self) -> None:
        self._module.__dict__.update(disable=self._disable, graph_break=self._graph_break)
        sys.meta_path.insert(0, self)
        sys.modules[NAME] = self._module  # `torch._dynamo` finds it

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Import the package before a module in it; the module then usually is imported, too."""
        if fullname == NAME:
            self._spec.loader = self
            return self._spec
        if not fullname.startswith(f"{NAME}."):
            return None
        self._load()
        return ModuleSpec(fullname, _Imported()) if fullname in sys.modules else find_spec(fullname)

    def _load(self) -> None:
        with self._lock:
            if self._is_deferred:
                self._is_deferred = False
                del sys.modules[NAME]  # so that the next line imports it, once, for all threads
        importlib.import_module(NAME)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["importing_thread"] = threading.get_ident()
        sys.meta_path.remove(self)
        self._spec.loader = self._loader
        for function in self._disabled:
            if vars(function).get(_MARK) is function:
                delattr(function, _MARK)
        try:
            with without_collection():
                self._loader.exec_module(module)
        finally:
            module.__class__ = types.ModuleType
            del vars(module)["importing_thread"]

    def _graph_break(self, *args: Any, **kwargs: Any) -> None:
        if not self._is_deferred:
            torch._dynamo.graph_break(*args, **kwargs)

    def _disable(self, fn: Any = None, *args: Any, wrapping: bool = True, **kwargs: Any) -> Any:
        if self._is_deferred and not wrapping and isinstance(fn, types.FunctionType):
            self._disabled.append(fn)
            return fn
        self._load()
        package: Any = torch._dynamo
        return package.disable(fn, *args, wrapping=wrapping, **kwargs)


class _Imported(Loader):
    """Loader of a module that the import of its package has imported."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = sys.modules[spec.name]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec
