"""The base class of layers and models: a tree of parameters, buffers and submodules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from polyhal.autograd import no_grad
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.nn.hooks import HookHandle
from polyhal.nn.parameter import Parameter, relocate
from polyhal.nn.state import LoadResult, adopt, compare
from polyhal.tensor import Tensor


class Module:
    """Base of all layers. Subclasses define `forward`; calling the module runs it.

    Parameters and modules assigned as attributes register themselves; `register_buffer` adds tensors that belong to the
    state but are not learned. Names and nesting give the keys of `state_dict`, which are PyTorch's.
    """

    training: bool
    _parameters: dict[str, None]
    _buffers: dict[str, bool]
    _modules: dict[str, None]
    _pre_hooks: dict[int, Callable[..., Any]]
    _post_hooks: dict[int, Callable[..., Any]]

    def __init__(self) -> None:
        # Registries have only names, in order; values are ordinary attributes, so that reading one costs nothing extra.
        fields = self.__dict__
        fields["_parameters"] = {}
        fields["_buffers"] = {}
        fields["_modules"] = {}
        fields["_pre_hooks"] = {}
        fields["_post_hooks"] = {}
        fields["training"] = True

    # --- registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if "_modules" not in fields:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(
                    f"cannot assign {name!r} to a {type(self).__name__} before its super().__init__() was called"
                )
            fields[name] = value
            return
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        else:
            if name in fields["_parameters"] and value is not None:
                raise TypeError(
                    f"cannot assign a {type(value).__name__} as parameter {name!r}; expected a Parameter or None"
                )
            if name in fields["_buffers"] and not (value is None or isinstance(value, Tensor)):
                raise TypeError(f"cannot assign a {type(value).__name__} as buffer {name!r}; expected a Tensor or None")
            if name in fields["_modules"] and value is not None:
                self._forget(name)
            if fields.get(name, fields) is not value:
                if name == "training":
                    dispatch.structure.mode_changed()
                else:
                    dispatch.structure.changed()
            fields[name] = value

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._modules):
            registry.pop(name, None)
        dispatch.structure.changed()

    def _register(self, registry: dict[str, Any], name: str, value: Any, note: Any = None) -> None:
        if not name or "." in name:
            raise ValueError(f"{name!r} cannot name a member of a module; expected a non-empty name without dots")
        if name not in registry:
            if (
                name not in self._parameters
                and name not in self._buffers
                and name not in self._modules
                and hasattr(type(self), name)
            ):
                raise KeyError(f"{type(self).__name__} has an attribute {name!r} already")
            self._forget(name)
        registry[name] = note
        self.__dict__[name] = value
        dispatch.structure.changed()

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Add a parameter under `name`; None reserves the name for an absent one (a layer without bias)."""
        self._register(self._parameters, name, value)

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves with the module and, if `persistent`, is part of its state dict."""
        self._register(self._buffers, name, value, persistent)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under `name`."""
        self._register(self._modules, name, module)

    # --- running ----------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._forward_with_hooks if self._pre_hooks or self._post_hooks else self.forward
        return dispatch.thread.executor.call_module(self, function, args, kwargs)

    def _forward_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        for hook in tuple(self._pre_hooks.values()):
            replaced = hook(self, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        out = self.forward(*args, **kwargs)
        for hook in tuple(self._post_hooks.values()):
            replaced = hook(self, args, out)
            out = out if replaced is None else replaced
        return out

    def register_forward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> HookHandle:
        """Call `hook(module, args)` before each forward pass; what it returns replaces the positional arguments."""
        return HookHandle(self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> HookHandle:
        """Call `hook(module, args, output)` after each forward pass; what it returns replaces the output."""
        return HookHandle(self._post_hooks, hook)

    # --- walking the tree -------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over direct submodules with their names, each once."""
        seen: set[int] = set()
        for name in self._modules:
            child = self.__dict__[name]
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """Iterate over direct submodules."""
        return (child for _, child in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Iterate over this module and all submodules with dotted names, each once."""
        return self._walk(prefix, set())

    def _walk(self, prefix: str, seen: set[int] | None) -> Iterator[tuple[str, Module]]:
        """Depth first; with `seen` None, shared modules are visited under each of their names."""
        if seen is not None:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        for name in self._modules:
            child = self.__dict__[name]
            if child is not None:
                yield from child._walk(_join(prefix, name), seen)

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all submodules, each once."""
        return (module for _, module in self.named_modules())

    def _named(self, registry: str, prefix: str, recurse: bool, repeat: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self._walk(prefix, None if repeat else set()) if recurse else ((prefix, self),):
            for name in getattr(module, registry):
                value = module.__dict__[name]
                if value is None or (not repeat and id(value) in seen):
                    continue
                seen.add(id(value))
                yield _join(path, name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over parameters with dotted names. Shared ones appear once, unless `remove_duplicate` is False."""
        return self._named("_parameters", prefix, recurse, not remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over parameters, shared ones once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Iterate over buffers with dotted names, persistent or not, shared ones once."""
        return self._named("_buffers", prefix, recurse, False)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over buffers, persistent or not."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, path: str) -> Module:
        """Return the submodule with dotted name `path`; the module itself for "". Raises AttributeError."""
        module = self
        for name in path.split(".") if path else ():
            child = module.__dict__[name] if name in module._modules else None
            if child is None:
                raise AttributeError(
                    f"{type(module).__name__} has no submodule {name!r}, asked for as part of {path!r}"
                )
            module = child
        return module

    def count_parameters(self, trainable_only: bool = False) -> int:
        """Count the elements of all parameters, shared ones once."""
        return sum(p.size for p in self.parameters() if p.requires_grad or not trainable_only)

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Return parameters and persistent buffers by dotted name. The tensors share memory with the module."""
        out: dict[str, Tensor] = {}
        for path, module in self._walk(prefix.removesuffix("."), None):
            for name in (*module._parameters, *(n for n, persistent in module._buffers.items() if persistent)):
                value = module.__dict__[name]
                if value is not None:
                    out[_join(path, name)] = value.detach()
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Copy tensors or arrays to the parameters and buffers of the same name, cast to their dtype and device.

        Raises StateDictError, before anything is changed; it lists missing and unexpected keys (only if `strict`) and all
        shapes that differ.
        """
        targets = self.state_dict()
        result = compare(type(self).__name__, targets, state_dict, strict=strict)
        with no_grad():
            for name, target in targets.items():
                if name in state_dict:
                    target.copy_(adopt(state_dict[name], target.dtype, target.device))
        return result

    # --- changing everything ----------------------------------------------------------------------------------------

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call `function` on every submodule, then on this module."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Switch dropout and batch statistics on, or off with `mode=False`."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Switch to inference: no dropout, running statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze all parameters, or unfreeze them."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None."""
        for p in self.parameters():
            p.grad = None

    def to(self, *targets: Device | str | DType | object) -> Self:
        """Move parameters and buffers to a device, cast the floating-point ones to a dtype, or both. In place.

        `model.to("opencl:1")`, `model.to(polyhal.bfloat16)`, `model.to("numpy", polyhal.float32)`.
        """
        device, dtype = _targets(targets)
        for x in (*self.parameters(), *self.buffers()):
            kind = dtype if dtype is not None and x.dtype.is_floating_point and x.dtype is not dtype else None
            target = device if device is not None and device is not x.device else None
            if kind is not None or target is not None:
                relocate(x, target, kind)
        return self

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self.to("float32")

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self.to("bfloat16")

    # --- printing ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return what `repr` shows between the parentheses of a layer; defined by subclasses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [(name, self.__dict__[name]) for name in self._modules]
        if not children:
            return f"{type(self).__name__}({extra})"
        lines = extra.splitlines() + [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in children]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _targets(targets: tuple[object, ...]) -> tuple[Device | None, DType | None]:
    """The device and the dtype among `targets`. Raises TypeError for integer dtypes."""
    device: Device | None = None
    dtype: DType | None = None
    for target in targets:
        if isinstance(target, Device) or (isinstance(target, str) and not _names_dtype(target)):
            device = Device(target)
            continue
        kind = as_dtype(target)
        if kind.is_floating_point:
            dtype = kind
        else:
            raise TypeError(f"a module cannot be cast to {kind.name}; expected a floating-point dtype")
    return device, dtype


def _names_dtype(text: str) -> bool:
    try:
        as_dtype(text)
    except TypeError:
        return False
    return True
