"""Validation of opened backends, once, before the framework relies on them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from polyhal.hal.capabilities import Capabilities, Limits
from polyhal.hal.core.plugins.entry_points import PluginError
from polyhal.hal.core.plugins.probing import invalid_field
from polyhal.hal.dtypes import DType
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import PROTOCOLS, ComputeBackend


def validate_backend(backend: Any, spec: BackendSpec) -> None:
    """Raise PluginError unless `backend` has every member of the contract, with signatures that match the framework's calls.

    This also applies to each optional protocol if it has all members.
    """
    problems = list(_members(backend, ComputeBackend))
    for protocol in PROTOCOLS.values():
        if isinstance(backend, protocol):
            problems += _members(backend, protocol)
    if not problems:
        invalid = invalid_field(backend.info, spec)
        problems = [f"info: {invalid}"] if invalid else list(_capabilities(backend.capabilities))
    if problems:
        raise PluginError(f"{type(backend).__name__} breaks the contract: {'; '.join(problems)}", "update the plug-in")


def methods(protocol: type) -> dict[str, inspect.Signature]:
    """Return the methods of a protocol with their signatures, without `self`."""
    signatures = {}
    for name, member in vars(protocol).items():
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__call__"):
            signature = inspect.signature(member)
            signatures[name] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return signatures


def _members(backend: Any, protocol: type) -> Iterable[str]:
    """Yield the problems of the members of a protocol."""
    for name in inspect.get_annotations(protocol):
        if not hasattr(backend, name):
            yield f"{name} is missing"
    for name, expected in methods(protocol).items():
        member = getattr(backend, name, None)
        declaration = f"{name}({', '.join(expected.parameters)})"
        if member is None:
            yield f"{declaration} is missing"
        elif not callable(member):
            yield f"{name} is {member!r}; expected a method {declaration}"
        else:
            actual = _signature(member)
            if actual is not None and not _accepts(actual, len(expected.parameters)):
                yield f"{name} is declared as {name}{_without_annotations(actual)}; expected {declaration}"


def _signature(member: Any) -> inspect.Signature | None:
    """Return the signature; None if it is not available, as for functions written in C."""
    try:
        return inspect.signature(member)
    except (TypeError, ValueError):
        return None


def _accepts(signature: inspect.Signature, count: int) -> bool:
    """Return whether `count` positional arguments are accepted: the framework passes all arguments by position."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _without_annotations(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature without annotations, which would make messages long."""
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _capabilities(value: Any) -> Iterable[str]:
    """Yield the problems of the capabilities."""
    if not isinstance(value, Capabilities):
        yield f"capabilities is {value!r}; expected Capabilities"
        return
    for field, kind in (("storage", DType), ("compute", DType), ("unary", str), ("binary", str), ("reduce", str)):
        members = getattr(value, field)
        invalid = members if not isinstance(members, frozenset) else [m for m in members if not isinstance(m, kind)]
        if not isinstance(members, frozenset) or invalid:
            yield f"capabilities.{field} has {invalid!r}; expected a frozenset of {kind.__name__}"
    limits: object = value.limits
    if not isinstance(limits, Limits):
        yield f"capabilities.limits is {limits!r}; expected Limits"
        return
    for f in fields(Limits):
        limit = getattr(limits, f.name)
        if not isinstance(limit, int) or limit < (f.name == "row_alignment"):
            yield f"capabilities.limits.{f.name} is {limit!r}; expected a number, 0 if unknown"
    for name in ("features", "quirks"):
        mapping: object = getattr(value, name)
        if not isinstance(mapping, Mapping):
            yield f"capabilities.{name} is {mapping!r}; expected a mapping"
