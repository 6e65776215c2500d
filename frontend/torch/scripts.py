"""Files of TorchScript: PyTorch's C++ code writes the host's memory, and is given copies of a module's tensors there."""

from __future__ import annotations

import copy as copies
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from polyhal.torch import private
from polyhal.torch.device import NAME, check_ordinal

if TYPE_CHECKING:
    from polyhal.torch.call_types import DeviceName, Function


def install() -> None:
    """Let `torch.jit.save` and `torch.jit.load` take modules with tensors of the device."""
    library: Any = torch.jit
    library.load = _loaded(library.load)
    for kind, name in private.writers_of_scripts():
        setattr(kind, name, _saved(getattr(kind, name)))


def _loaded(original: Function) -> Function:
    @functools.wraps(original)
    def load(f: object, map_location: DeviceName | None = None, *args: object, **options: object) -> Any:
        if map_location is None or torch.device(map_location).type != NAME:
            return original(f, map_location, *args, **options)
        check_ordinal(torch.device(map_location))
        module = original(f, "cpu", *args, **options).to(map_location)
        for part in module.modules():
            _move_attributes(part, map_location)
            for node in private.constants_of_script(part):
                private.set_constant(node, private.constant(node).to(map_location))
        return module

    return load


def _saved(original: Function) -> Function:
    """Return a method that writes copies on the CPU of tensors of the device."""

    @functools.wraps(original)
    def save(self: torch.jit.ScriptModule, *args: object, **options: object) -> Any:
        if not any(x.device.type == NAME for x in _tensors(self)):
            return original(self, *args, **options)
        with torch.no_grad():
            host = copies.deepcopy(self).cpu()
        for copied, x in zip(host.parameters(), self.parameters(), strict=True):
            copied.requires_grad_(x.requires_grad)
        for part in host.modules():
            _move_attributes(part, "cpu")
        with _constants_on_host(self):
            return original(host, *args, **options)

    return save


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Return the tensors of a module: parameters, buffers, other attributes, and constants of its code."""
    for part in module.modules():
        for name in private.attributes_of_script(part):
            yield from (x for x in pytree.tree_leaves(getattr(part, name)) if isinstance(x, torch.Tensor))
        yield from map(private.constant, private.constants_of_script(part))


def _move_attributes(module: Any, device: DeviceName) -> None:
    """Move tensors in attributes that are neither parameters nor buffers, which `Module.to` leaves where they are."""
    known = {*dict(module.named_parameters(recurse=False)), *dict(module.named_buffers(recurse=False))}
    for name in private.attributes_of_script(module):
        value = None if name in known else getattr(module, name)
        if any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(value)):
            setattr(module, name, pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), value))


@contextmanager
def _constants_on_host(module: torch.nn.Module) -> Iterator[None]:
    """Let the code of a module, which its copies share, have copies on the CPU of its constants in the block."""
    nodes = [node for part in module.modules() for node in private.constants_of_script(part)]
    values = [private.constant(node) for node in nodes]
    try:
        for node, value in zip(nodes, values, strict=True):
            private.set_constant(node, value.cpu())
        yield
    finally:
        for node, value in zip(nodes, values, strict=True):
            private.set_constant(node, value)
