"""The base class of layers and models: a tree of parameters, buffers and submodules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from reprlib import recursive_repr
from typing import Any, Self

from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.memory_format import MemoryFormat
from polyhal.nn.construction import Construction, constructed
from polyhal.nn.hooks import ForwardHook, HookHandle, Hooks
from polyhal.nn.module_state import ModuleState
from polyhal.nn.parameter import ModuleBuffer, Parameter, discard, is_uninitialized, relocate
from polyhal.nn.targets import device_and_dtype
from polyhal.tensor import Tensor


class Module(ModuleState):
    """Base of all layers. Subclasses define `forward`; calling the module runs it.

    Parameters and modules assigned as attributes register themselves; `register_buffer` adds tensors that belong to the
    state but are not learned. Names and nesting give the keys of `state_dict`, which are PyTorch's.
    """

    training: bool
    _parameters: dict[str, None]
    _buffers: dict[str, bool]
    _modules: dict[str, None]
    _hooks: Hooks
    _construction: Construction

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note class and arguments, with which a saved model is made again."""
        self = object.__new__(cls)
        self.__dict__["_construction"] = constructed(cls, args, kwargs)
        return self

    def __init__(self) -> None:
        # Registries have only names, in order; values are ordinary attributes, so that reading one costs nothing extra.
        fields = self.__dict__
        fields["_parameters"] = {}
        fields["_buffers"] = {}
        fields["_modules"] = {}
        fields["_hooks"] = Hooks()
        fields["training"] = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the members of a pickle or of a shallow copy, with copies of the registries and hooks."""
        own = {n: copy.copy(state[n]) for n in ("_parameters", "_buffers", "_modules", "_hooks") if n in state}
        self.__dict__.update(state | own)

    # --- registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if "_modules" not in fields:
            if isinstance(value, (Parameter, ModuleBuffer, Module)):
                raise AttributeError(
                    f"cannot assign {name!r} to a {type(self).__name__} before its super().__init__() was called"
                )
            fields[name] = value
            return
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif isinstance(value, ModuleBuffer):
            self.register_buffer(name, value, value.persistent)
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

    def _register(self, registry: dict[str, Any], name: str, value: Any, note: bool | None = None) -> None:
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

    register_module = add_module

    # --- running ----------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    @property
    def call_mode(self) -> object:
        """The settings of a call, for captured steps to compare: training or evaluation, and hooks."""
        return (self.training, self._hooks.of_calls) if self._hooks else self.training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks:
            hooked = partial(self._hooks.call, self)
            return dispatch.thread.executor.call_module(self, lambda *a, **k: hooked(a, k), args, kwargs)
        return dispatch.thread.executor.call_module(self, self.forward, args, kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward pass; its result replaces the positional arguments.

        `with_kwargs` calls `hook(module, args, kwargs)`, which may return both. `prepend` puts it before other hooks.
        """
        return HookHandle(self._hooks.before, ForwardHook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """Call `hook(module, args, output)` after each forward pass; its result replaces the output.

        `with_kwargs` calls `hook(module, args, kwargs, output)`. `always_call` calls it, with None as output, also when
        the forward pass raises.
        """
        return HookHandle(self._hooks.after, ForwardHook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_output)` when the gradients of the results are known; its result replaces them."""
        return HookHandle(self._hooks.backward_before, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when gradients of the positional arguments are known.

        What it returns replaces `grad_input`. Arguments without gradients have None.
        """
        return HookHandle(self._hooks.backward, hook, prepend)

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

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over this module and all submodules with dotted names, each once unless `remove_duplicate` is False.

        Modules in `memo` are left out, and those visited are added to it.
        """
        return self._walk(prefix, None if not remove_duplicate else set() if memo is None else memo)

    def _walk(self, prefix: str, seen: set[Module] | None) -> Iterator[tuple[str, Module]]:
        """Depth first; with `seen` None, shared modules are visited under each of their names."""
        if seen is not None:
            if self in seen:
                return
            seen.add(self)
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

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over buffers with dotted names, persistent or not. Shared ones appear once, as in `named_parameters`."""
        return self._named("_buffers", prefix, recurse, not remove_duplicate)

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

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the submodule with dotted name `target`, or add one unless `strict`. Raises AttributeError."""
        if not isinstance(module, Module):
            raise ValueError(f"{target!r} would become a {type(module).__name__}; expected a Module")
        if strict:
            self.get_submodule(target)
        parent, _, name = target.rpartition(".")
        self.get_submodule(parent).add_module(name, module)

    def get_parameter(self, path: str) -> Parameter:
        """Return the parameter with dotted name `path`. Raises AttributeError."""
        found: Parameter = self._member("_parameters", path)
        return found

    def get_buffer(self, path: str) -> Tensor:
        """Return the buffer with dotted name `path`. Raises AttributeError."""
        found: Tensor = self._member("_buffers", path)
        return found

    def _member(self, registry: str, path: str) -> Any:
        parent, _, name = path.rpartition(".")
        module = self.get_submodule(parent)
        if name not in getattr(module, registry):
            raise AttributeError(f"{type(module).__name__} has no {registry.strip('_')[:-1]} {name!r}")
        return module.__dict__[name]

    def count_parameters(self, trainable_only: bool = False) -> int:
        """Count the elements of all parameters, shared ones once; parameters of lazy layers count after their first call."""
        known = [p for p in self.parameters() if not is_uninitialized(p)]
        return sum(p.size for p in known if p.requires_grad or not trainable_only)

    # --- changing everything ----------------------------------------------------------------------------------------

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call `function` on every submodule, then on this module."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Switch dropout and batch statistics on, or off with `mode=False`."""
        self.training = mode
        for child in self.children():  # each child decides: a frozen layer stays in evaluation
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Switch to inference: no dropout, running statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze all parameters, or unfreeze them."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or to zeros."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad = p.grad.detach().zero_()

    def to(
        self,
        *targets: Device | str | DType | object,
        device: object = None,
        dtype: object = None,
        non_blocking: bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Self:
        """Move parameters and buffers to a device, cast the floating-point ones to a dtype, or both. In place.

        `model.to("opencl:1")`, `model.to(polyhal.bfloat16)`, `model.to("numpy", polyhal.float32)`. `memory_format` and
        `non_blocking` are no-ops: layouts belong to the device, and parameters are moved one after the other.
        """
        places = [t for t in targets if not isinstance(t, bool)]
        place, kind_of_all = device_and_dtype((*places, *(t for t in (device, dtype) if t is not None)))
        for x in (*self.parameters(), *self.buffers()):
            cast = kind_of_all is not None and x.dtype.is_floating_point and x.dtype is not kind_of_all
            kind = kind_of_all if cast else None
            target = place if place is not None and place is not x.device else None
            if kind is not None or target is not None:
                relocate(x, target, kind)
        return self

    def to_empty(self, *, device: Device | str | None, recurse: bool = True) -> Self:
        """Move parameters and buffers to a device without their elements, which are arbitrary afterwards."""
        target = Device(device)
        for x in (*self.parameters(recurse), *self.buffers(recurse)):
            discard(x, target)
        return self

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self.to("float32")

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self.to("float64")

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self.to("bfloat16")

    # --- printing ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return the text between the parentheses of a layer's `repr`; defined by subclasses."""
        return ""

    @recursive_repr("(contains itself)")
    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [(name, self.__dict__[name]) for name in self._modules]
        if not children:
            return f"{type(self).__name__}({extra})"
        lines = extra.splitlines() + [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in children]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"

    def _repr_html_(self) -> str:
        """Return a tree with parameter counts, for notebooks."""
        from polyhal.html_forms import module_html

        return module_html(self, is_uninitialized)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
