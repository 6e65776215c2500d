"""Layers of the library's packages: their assignment, and the imports between packages.

`python -m tests.architecture.layers [PACKAGE]` prints the packages of `polyhal.hal` (by default) or of `polyhal` in the order
of their layers, each with the packages that it imports, and the cycles, if there are any.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.architecture.survey import Import, Tree, this_tree


@dataclass(frozen=True, slots=True)
class Layer:
    """Packages and modules of one layer, which import each other without a cycle, and lower layers."""

    name: str
    contents: str
    packages: tuple[str, ...]


HAL = (
    Layer(
        "contract",
        "interfaces that plug-ins implement or receive",
        (
            "byte_sizes",
            "capabilities",
            "collectives",
            "command_buffers",
            "dtypes",
            "errors",
            "hookspecs",
            "layout",
            "member_names",
            "launch_descriptions",
            "launch_resources",
            "graphs",
            "peer_memory",
            "printable",
            "protocol",
            "quantization",
        ),
    ),
    Layer(
        "core",
        "devices, memory, and eager execution",
        (
            "core.backend_failures",
            "device",
            "core.dispatch",
            "core.execution",
            "core.fingerprint",
            "core.fork",
            "core.hardware",
            "core.kernels",
            "core.memory",
            "core.plugins",
            "core.settings",
            "core.transfers",
        ),
    ),
    Layer("ops", "declarations of ops", ("compile.op_plugins", "ops", "system.reference")),
    Layer(
        "compile",
        "from ops to programs of a device",
        (
            "compile.capture",
            "compile.ir",
            "compile.passes",
            "compile.planning",
            "compile.recording",
            "compile.replayed_function",
            "compile.scheduler",
        ),
    ),
    Layer(
        "system",
        "everything about whole machines and programs",
        ("system.checks", "system.communicators", "system.diagnostics", "system.discovery"),
    ),
    Layer("testing", "the conformance kit", ("testing",)),
)
"""Layers of `polyhal.hal`, the lowest first."""

UPWARD = {
    ("polyhal.hal.device", "polyhal.hal.system.discovery.registry"): (
        "`Device(name)` finds a device among all plug-ins: the registry is loaded by the first device that a program names"
    ),
    ("polyhal.hal.device", "polyhal.hal.compile.planning.planner"): (
        "`Device.opened` is part of the contract and returns a device that plans its ops: the planner is loaded with it"
    ),
    ("polyhal.tensor.arrangement", "polyhal.creation"): (
        "methods of tensors are functions of `creation`, which makes tensors; the class cannot wait for them"
    ),
    ("polyhal.tensor.random_methods", "polyhal.random"): "methods of tensors draw numbers that are tensors",
    ("polyhal.tensor.random_methods", "polyhal.sampling"): "methods of tensors draw numbers that are tensors",
}
"""Imports inside of functions from a lower package to a higher one, with the reason of each."""

OTHER_FOLDERS = ("hal", "backends", "shaders")
"""Packages of `polyhal` that are not part of the frontend."""


def clients(tree: Tree) -> set[str]:
    """Return the packages of `polyhal` in the folder of applications, which use the library's public names only."""
    return {p.name for p in (tree.root / "apps").iterdir() if p.is_dir()}


_NAMES = sorted((package for layer in HAL for package in layer.packages), key=len, reverse=True)


def package_of(module: str, parent: str) -> str:
    """Return the package or module below `parent` that contains a module, by its name in `HAL` if it has one.

    Empty for `parent`, for modules elsewhere, and for packages that only hold packages with a layer.
    """
    if not module.startswith(f"{parent}."):
        return ""
    name = module.removeprefix(f"{parent}.")
    if parent == "polyhal.hal":
        if found := next((n for n in _NAMES if f"{name}.".startswith(f"{n}.")), ""):
            return found
        if any(n.startswith(f"{name}.") for n in _NAMES):
            return ""
    return name.split(".")[0]


def arrows(
    tree: Tree, parent: str, *, lazy: bool = True, leave_out: Iterable[str] = ()
) -> dict[tuple[str, str], list[Import]]:
    """Return the imports between packages below `parent`, at import time and, if `lazy`, inside of functions."""
    found: dict[tuple[str, str], list[Import]] = defaultdict(list)
    for i in tree.imports:
        ends = package_of(i.source, parent), package_of(i.target, parent)
        counts = i.when == "at import" or (lazy and i.when == "lazy")
        if all(ends) and ends[0] != ends[1] and counts and not set(ends) & set(leave_out):
            found[ends].append(i)
    return dict(found)


def downward(found: Mapping[tuple[str, str], list[Import]]) -> list[tuple[str, str]]:
    """Return the arrows that are more than the exceptions in `UPWARD`."""
    return [ends for ends, imports in found.items() if any((i.source, i.target) not in UPWARD for i in imports)]


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of packages that import each other in a cycle."""
    reached: Mapping[str, set[str]] = _closure(edges)
    groups = {tuple(sorted({b for b in reached[a] if a in reached[b]})) for a in reached if a in reached[a]}
    return [list(group) for group in sorted(groups)]


def _closure(edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the packages that each package reaches by one arrow or more."""
    below: dict[str, set[str]] = defaultdict(set)
    for a, b in edges:
        below[a].add(b)
        below[b] |= set()
    reached = {}
    for start in below:
        pending, seen = list(below[start]), set(below[start])
        while pending:
            new = below[pending.pop()] - seen
            seen |= new
            pending += new
        reached[start] = seen
    return reached


def main(arguments: list[str]) -> None:
    """Print the graph of a package."""
    parent = arguments[0] if arguments else "polyhal.hal"
    tree = this_tree()
    found = arrows(tree, parent, leave_out=(*OTHER_FOLDERS, *clients(tree)) if parent == "polyhal" else ())
    layers = HAL if parent == "polyhal.hal" else (Layer("", "", tuple(sorted({a for a, _ in found}))),)
    for layer in layers:
        print(f"{layer.name}: {layer.contents}" if layer.name else parent)
        for package in layer.packages:
            print(f"  {package:20} {' '.join(sorted(b for a, b in found if a == package))}")
    for group in cycles(downward(found)):
        print("cycle:", " ".join(group))
        for (a, b), imports in sorted(found.items()):
            if {a, b} <= set(group):
                print(f"  {a} -> {b}:", *[f"{i.source} ({i.when}) {i.target}" for i in imports[:3]])


if __name__ == "__main__":
    main(sys.argv[1:])
