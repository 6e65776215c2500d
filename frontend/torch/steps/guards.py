"""Guards of a recorded step: the tensors and numbers that it expects in Python objects.

Before each run, all guards are compared in a few passes over flat lists.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from operator import attrgetter, getitem
from typing import Any

import torch

from polyhal.torch import private
from polyhal.torch.steps import active
from polyhal.torch.steps.numbers import LiveNumber, true_value
from polyhal.torch.steps.tree import TREE

SIMPLE = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, range)
"""Types that are compared by value. Other objects are compared by identity."""
_requires_grad = attrgetter("requires_grad")


class Guards:
    """Expected contents of dictionaries, lists and attributes, as they were when a step was recorded."""

    def __init__(self) -> None:
        self._containers: list[Any] = []
        self._keys: list[Any] = []
        self._objects: list[Any] = []
        self._ids: list[int] = []
        self._names: list[str] = []
        self._value_containers: list[Any] = []
        self._value_keys: list[Any] = []
        self._values: list[Any] = []
        self._types: list[type] = []
        self._value_names: list[str] = []
        self._sized: list[Any] = []
        self._sizes: list[int] = []
        self._size_names: list[str] = []
        self._contents: list[Any] = []
        """Copies of the lists and dictionaries whose sizes are compared."""
        self._tensors: list[torch.Tensor] = []
        self._storages: list[int] = []
        self._flags: list[bool] = []
        self._aliases: list[torch.Tensor] = []
        """Aliases of the tensors, which keep their storages alive, so that the keys are not reused by other storages."""
        self._namespaces: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Attributes of objects, with copies of them: a step may add some."""

    # --- collecting -------------------------------------------------------------------------------------------------

    def expect_object(self, container: Any, key: Any, name: str) -> None:
        """Expect `container[key]` to remain the same object."""
        self._containers.append(container)
        self._keys.append(key)
        value = active.original_of(container[key])
        self._objects.append(value)
        self._ids.append(id(value))
        self._names.append(name)

    def expect_value(self, container: Any, key: Any, name: str) -> None:
        """Expect `container[key]` to keep its value and type."""
        value = container[key]
        self._value_containers.append(container)
        self._value_keys.append(key)
        self._values.append(value)
        self._types.append(type(value))
        self._value_names.append(name)

    def expect_size(self, collection: Any, name: str) -> None:
        """Expect a collection to keep its length."""
        self._sized.append(collection)
        self._sizes.append(len(collection))
        self._size_names.append(name)
        self._contents.append(copy.copy(collection) if isinstance(collection, (list, dict)) else None)

    def expect_memory(self, x: torch.Tensor) -> None:
        """Expect a tensor to keep its storage and its `requires_grad`."""
        self._tensors.append(x)
        self._storages.append(private.storage_key(x))
        self._aliases.append(x.detach())
        self._flags.append(x.requires_grad)

    def note_attributes(self, attributes: dict[str, Any]) -> None:
        """Save the attributes of an object for `restore`, whether the step reads them or not."""
        self._namespaces.append((attributes, dict(attributes)))

    # --- comparing --------------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Return whether all guards hold."""
        try:
            values = list(map(getitem, self._value_containers, self._value_keys))
            return (
                (list(map(id, map(getitem, self._containers, self._keys))) == self._ids or not self._other_object())
                and values == self._values
                and list(map(type, values)) == self._types
                and list(map(len, self._sized)) == self._sizes
                and list(map(private.storage_key, self._tensors)) == self._storages
                and list(map(_requires_grad, self._tensors)) == self._flags
            )
        except LookupError:
            return False

    def changed(self) -> str:
        """Describe the first guard that fails; "" if all hold."""
        if other := self._other_object():
            return other
        for container, key, before, name in zip(
            self._value_containers, self._value_keys, self._values, self._value_names, strict=True
        ):
            now = _item(container, key)
            if type(now) is not type(before) or now != before:
                return f"{name} was {before!r} and is {'gone' if now is _GONE else repr(now)}"
        for collection, size, name in zip(self._sized, self._sizes, self._size_names, strict=True):
            if len(collection) != size:
                return f"{name} had {size} items and has {len(collection)}"
        for x, key, flag in zip(self._tensors, self._storages, self._flags, strict=True):
            if private.storage_key(x) != key:
                return f"a tensor of shape {tuple(x.shape)} has another storage"
            if x.requires_grad != flag:
                return f"a tensor of shape {tuple(x.shape)} {'no longer needs' if flag else 'needs'} gradients"
        return ""

    def _other_object(self) -> str:
        """Describe the first object that is another one; replacements in recorded steps stand for the original."""
        for container, key, before, name in zip(self._containers, self._keys, self._objects, self._names, strict=True):
            if active.original_of(_item(container, key)) is not before:
                return f"{name} is another {type(before).__name__} than before"
        return ""

    def sharing(self, arguments: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Return the first argument that shares its storage with a guarded tensor."""
        known = set(self._storages)
        return next((x for x in arguments if private.storage_key(x) in known), None)

    def changed_settings(self) -> frozenset[str]:
        """Return the names of the float settings of optimizers that have changed."""
        return frozenset(
            key
            for container, key, before in zip(self._value_containers, self._value_keys, self._values, strict=True)
            if isinstance(container, dict) and "params" in container and isinstance(before, (float, tuple))
            if _item(container, key) != before
        )

    def settle(self) -> None:
        """Replace live numbers that a step has stored in its objects by plain ones."""
        for attributes, _ in self._namespaces:
            _settle(attributes, list(attributes))
        for collection, before in zip(self._sized, self._contents, strict=True):
            if before is not None:
                _settle(collection, range(len(collection)) if isinstance(collection, list) else list(collection))
        for container, key in zip(self._value_containers, self._value_keys, strict=True):
            _settle(container, (key,))

    def restore(self) -> None:
        """Restore the guarded objects and values, the attributes of objects, and the contents of collections."""
        for attributes, copied in self._namespaces:
            if attributes.keys() != copied.keys() or any(attributes[k] is not x for k, x in copied.items()):
                _refill(attributes, copied)
        for x, key, flag, alias in zip(self._tensors, self._storages, self._flags, self._aliases, strict=True):
            if private.storage_key(x) != key:
                x.data = alias
            if x.requires_grad != flag:
                x.requires_grad_(flag)
        for collection, size, before in zip(self._sized, self._sizes, self._contents, strict=True):
            if before is not None and len(collection) != size:
                _refill(collection, before)
        objects = zip(self._containers, self._keys, self._objects, strict=True)
        values = zip(self._value_containers, self._value_keys, self._values, strict=True)
        for container, key, before in (*objects, *values):
            if active.original_of(_item(container, key)) is not before:
                container[key] = before


def _settle(container: Any, keys: Iterable[int | str]) -> None:
    """Replace live numbers in a container, and in lists and dictionaries inside of it, by plain ones."""
    for key in keys:
        value = _item(container, key)
        if isinstance(value, (list, dict)):
            _settle(value, list(value) if isinstance(value, dict) else range(len(value)))
        elif isinstance(value, (LiveNumber, tuple)):
            container[key] = TREE.replaced(value, true_value)


def _refill(collection: Any, before: Any) -> None:
    collection.clear()
    if isinstance(collection, list):
        collection.extend(before)
    else:
        collection.update(before)


class _Gone:
    """Sentinel for a key or attribute that no longer exists."""


_GONE = _Gone()


def _item(container: Any, key: int | str) -> Any:
    try:
        return container[key]
    except LookupError:
        return _GONE


class Attributes:
    """Access to the attributes of an object, or to the contents of a closure cell, by `[name]`."""

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._target, name)
        except (AttributeError, ValueError) as error:
            raise KeyError(name) from error

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)


class ClassValues:
    """Access to an attribute that an object has from a class, by `[name]`."""

    __slots__ = ("_kind", "_target")

    def __init__(self, target: Any, kind: type) -> None:
        self._target, self._kind = target, kind

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._target, name)
        except AttributeError as error:
            raise KeyError(name) from error

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._kind, name, value)
