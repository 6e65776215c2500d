"""Polyhal's tensors in einops: `einops.rearrange(x, "b c h w -> b (h w) c")` once both packages are imported, in any order.

einops finds its frameworks among the subclasses of a class of its own. That class is subclassed as soon as einops is
loaded, so that Polyhal neither depends on einops nor imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from polyhal.hal.ops.tensor_like import Array

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_MODULE = "einops._backends"


def install() -> None:
    """Register the backend now if einops is loaded, else when it is."""
    if _MODULE in sys.modules:
        define_backend(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds nothing by itself, and extends the module of einops that others find."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads a module as its own loader does, and defines the backend in it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        define_backend(module)


def define_backend(module: Any) -> None:
    """Subclass einops' `AbstractBackend` for Polyhal's tensors, in the module that defines it."""
    import polyhal

    class PolyhalBackend(module.AbstractBackend):  # type: ignore[misc]
        """Arithmetic of einops on Polyhal's tensors. Gradients flow through it."""

        framework_name = "polyhal"

        def is_appropriate_type(self, tensor: Tensor | Array) -> bool:
            return isinstance(tensor, polyhal.Tensor)

        def from_numpy(self, x: Any) -> Any:
            return polyhal.tensor(x, requires_grad=x.dtype.kind == "f")

        def to_numpy(self, x: Any) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Any:
            return polyhal.arange(start, stop)

        def reshape(self, x: Tensor, shape: Sequence[int]) -> Any:
            return x.reshape(tuple(shape))

        def transpose(self, x: Tensor, axes: Sequence[int]) -> Any:
            return x.permute(tuple(axes))

        def reduce(self, x: Tensor, operation: str, axes: tuple[int, ...]) -> Any:
            return getattr(x, operation)(axis=tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Any:
            return polyhal.stack(tensors)

        def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Any:
            for position in pos2len:
                x = x.unsqueeze(position)
            return x.broadcast_to(tuple(pos2len.get(i, n) for i, n in enumerate(x.shape)))

        def tile(self, x: Any, repeats: Any) -> Any:
            return x.tile(tuple(repeats))

        def concat(self, tensors: list[Tensor], axis: int) -> Any:
            return polyhal.concat(tensors, axis)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return x.unsqueeze(new_position)

        def is_float_type(self, x: Tensor) -> bool:
            return bool(x.dtype.is_floating_point)

        def einsum(self, pattern: str, *x: Any) -> Any:
            return getattr(polyhal, "einsum")(pattern, *x)  # noqa: B009  a name that the type stubs may lack

    module.PolyhalBackend = PolyhalBackend  # subclasses are held weakly
