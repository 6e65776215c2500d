"""What an opened backend is checked for, once, before the framework relies on it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from polyhal.hal.capabilities import Capabilities, Limits
from polyhal.hal.discovery.plugins import PluginError
from polyhal.hal.discovery.probing import nonsense
from polyhal.hal.dtypes import DType
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import PROTOCOLS, ComputeBackend


def admit(backend: Any, spec: BackendSpec) -> None:
    """Raise PluginError unless `backend` has every member of the contract, callable as the framework calls it.

    Optional protocols of which it has all members are held to the same.
    """
    problems = list(_members(backend, ComputeBackend))
    for protocol in PROTOCOLS.values():
        if isinstance(backend, protocol):
            problems += _members(backend, protocol)
    if not problems:
        wrong = nonsense(backend.info, spec)
        problems = [f"info: {wrong}"] if wrong else list(_capabilities(backend.capabilities))
    if problems:
        raise PluginError(f"{type(backend).__name__} breaks the contract: {'; '.join(problems)}", "update the plug-in")


def methods(protocol: type) -> dict[str, inspect.Signature]:
    """The methods of a protocol, with their parameters as a bound method has them."""
    found = {}
    for name, member in vars(protocol).items():
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__call__"):
            signature = inspect.signature(member)
            found[name] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return found


def _members(backend: Any, protocol: type) -> Iterable[str]:
    for name in inspect.get_annotations(protocol):
        if not hasattr(backend, name):
            yield f"{name} is missing"
    for name, expected in methods(protocol).items():
        member = getattr(backend, name, None)
        wanted = f"{name}({', '.join(expected.parameters)})"
        if member is None:
            yield f"{wanted} is missing"
        elif not callable(member):
            yield f"{name} is {member!r}; expected a method {wanted}"
        else:
            found = _signature(member)
            if found is not None and not _takes(found, len(expected.parameters)):
                yield f"{name} is declared as {name}{_bare(found)}; expected {wanted}"


def _signature(member: Any) -> inspect.Signature | None:
    """None where Python cannot tell, as of functions written in C."""
    try:
        return inspect.signature(member)
    except (TypeError, ValueError):
        return None


def _takes(found: inspect.Signature, count: int) -> bool:
    """Whether a call with `count` positional arguments is accepted: the framework passes all arguments by position."""
    try:
        found.bind(*range(count))
    except TypeError:
        return False
    return True


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """The signature without annotations, which make messages long."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)


def _capabilities(given: Any) -> Iterable[str]:
    if not isinstance(given, Capabilities):
        yield f"capabilities is {given!r}; expected Capabilities"
        return
    for field, kind in (("storage", DType), ("compute", DType), ("unary", str), ("binary", str), ("reduce", str)):
        value = getattr(given, field)
        strange = value if not isinstance(value, frozenset) else [v for v in value if not isinstance(v, kind)]
        if not isinstance(value, frozenset) or strange:
            yield f"capabilities.{field} has {strange!r}; expected a frozenset of {kind.__name__}"
    limits: object = given.limits
    if not isinstance(limits, Limits):
        yield f"capabilities.limits is {limits!r}; expected Limits"
        return
    for f in fields(Limits):
        value = getattr(limits, f.name)
        if not isinstance(value, int) or value < (f.name == "row_alignment"):
            yield f"capabilities.limits.{f.name} is {value!r}; expected a number, 0 where unknown"
    features: object = given.features
    if not isinstance(features, Mapping):
        yield f"capabilities.features is {features!r}; expected a mapping"
