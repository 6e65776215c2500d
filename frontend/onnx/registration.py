"""`operator`, which puts a function of tensors into the table of ONNX's operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from polyhal.hal.device import Device

F = TypeVar("F", bound=Callable[..., Any])
Value = Any
"""A tensor on the device, an array on the host, a list (a sequence), a number, or None (absent)."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A function for an operator of ONNX, from one version of its domain to the next.

    Inputs are positional arguments, attributes are keywords of the same name, so that an attribute that became an input
    keeps its parameter. An absent optional input is None.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    host: frozenset[str]
    """Parameters whose values are arrays on the host, such as shapes."""
    numbers: bool
    """True if the function takes Python numbers in place of constant tensors of one element."""
    foldable: bool
    """False if the function draws random numbers, or has other results for arrays of the host."""
    elements: bool
    """True if `host` names tensors whose elements matter one by one: the shapes of results vary from call to call."""
    raw: bool
    """True if the function takes arrays of the host as they are."""
    positional: tuple[str, ...]
    variadic: bool
    keywords: frozenset[str]
    any_attribute: bool
    takes_node: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node that functions of operators may ask for, by a parameter `node`."""

    name: str
    op: str
    version: int
    """Version of the operator's domain that the model uses."""
    outputs: tuple[str, ...]
    """Names of the results; empty for an unused optional one."""
    device: Device | None = None
    """Device of the model."""
    run: Callable[..., Any] = field(default=lambda *_: None)
    """Function that runs a subgraph with inputs."""

    def uses(self, index: int) -> bool:
        """Return whether a result is used."""
        return index < len(self.outputs) and bool(self.outputs[index])


TABLE: dict[tuple[str, str], list[Operator]] = {}
"""Functions by domain and name of an operator, the newest version first."""


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    host: Collection[str] = (),
    numbers: bool = False,
    foldable: bool = True,
    elements: bool = False,
    raw: bool = False,
) -> Callable[[F], F]:
    """Put a function into the table under names of operators. The fields of `Operator` describe the arguments."""

    def register(function: F) -> F:
        parameters = list(inspect.signature(function).parameters.values())
        positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        keywords = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        for name in names:
            made = Operator(
                name=name,
                domain=domain,
                since=since,
                function=function,
                host=frozenset(host),
                numbers=numbers,
                foldable=foldable,
                elements=elements,
                raw=raw,
                positional=positional,
                variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
                keywords=keywords - {"node"},
                any_attribute=any(p.kind is p.VAR_KEYWORD for p in parameters),
                takes_node="node" in keywords,
            )
            versions = TABLE.setdefault((domain, name), [])
            versions.append(made)
            versions.sort(key=lambda o: -o.since)
        return function

    return register


def find(domain: str, name: str, version: int) -> Operator | None:
    """Return the function of an operator in a version of its domain; None if there is none."""
    return next((o for o in TABLE.get((domain, name), ()) if o.since <= version), None)
