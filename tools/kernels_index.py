"""The text of docs/kernels-index.md: every kernel file with its lowering, ops and tunables."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait
from tools.lowering_source import LoweringSource

PAGE = "docs/kernels-index.md"
_HEAD = """# Index of kernels

Every kernel file with the lowering that launches it, and the ops whose lowering can reach it: directly, or through
steps around a kernel, such as a copy. Which kernel runs depends on shapes, dtypes, strides and the device:
`polyhal.explain` shows it for one call. Tunables, with the values that `polyhal tune` tries, belong to the
[tunable families](tuning.md) of the lowering. Definitions are the macros that a lowering sets when it compiles the file.

`make generate` writes this page from the source.
"""
_COLUMNS = "| kernel | description | lowering | ops | tunables | definitions |\n|---|---|---|---|---|---|\n"
_MANY = 10
"""Minimum number of pointwise ops that are no longer listed by name."""
_DEFAULTS = {
    ".cl": re.compile(r"^#ifndef (\w+)\n#define \1\b", re.MULTILINE),
    ".wgsl": re.compile(r"\{%-? set (\w+) = \1 \| default\("),
}
"""Patterns of definitions in kernel files that a lowering may set."""
_COMMENT = {
    ".cl": re.compile(r"(?:^// ?.*\n)+", re.MULTILINE),
    ".wgsl": re.compile(r"\{#-(.*?)-#\}", re.DOTALL),
}


@dataclass(frozen=True, slots=True)
class KernelFolders:
    """Folders of a backend's lowering and kernels, relative to the root of the checkout."""

    title: str
    package: str
    lowering: str
    kernels: str
    suffix: str


BACKENDS = (
    KernelFolders(
        "OpenCL", "polyhal.backends.opencl_c.lowering", "backends/opencl_c/lowering", "shaders/opencl", ".cl"
    ),
    KernelFolders("wgpu", "polyhal.backends.wgpu.lowering", "backends/wgpu/lowering", "shaders/wgsl", ".wgsl"),
)


@dataclass(slots=True)
class KernelEntry:
    """A kernel file."""

    modules: set[str] = field(default_factory=set)
    """Lowering modules that name the kernel."""
    ops: dict[str, str] = field(default_factory=dict)
    """Package of each op whose lowering reaches the kernel."""


def render(root: Path) -> str:
    """Render the page for the checkout at `root`."""
    return "".join([_HEAD, *(_section(root, folders) for folders in BACKENDS)])


def entries(root: Path, folders: KernelFolders) -> tuple[LoweringSource, dict[str, KernelEntry]]:
    """Return a backend's lowering, and by name (`package/stem`) the kernels that it launches."""
    names = kernel_names(root, folders)
    source = LoweringSource(root / folders.lowering, folders.package, names)
    kernels: defaultdict[str, KernelEntry] = defaultdict(KernelEntry)
    for op, module, node in source.ops():
        entry = source.mentions(module, node)
        reached = source.reached(entry.references)
        texts = frozenset[str]().union(*(source.mentions_of(d).texts for d in reached))
        room = source.room(module)
        for definition in reached:
            for name in source.kernels_named(definition, entry.texts, {op}, texts):
                kernels[name].modules.add(definition[0])
                kernels[name].ops[op] = room
    return source, dict(sorted(kernels.items()))


def kernel_names(root: Path, folders: KernelFolders) -> list[str]:
    """Return `package/stem` of every file in a backend's kernel folders, except `lib`, the folder of included files."""
    folder = root / folders.kernels
    paths = sorted(folder.glob(f"*/*{folders.suffix}"))
    return [p.relative_to(folder).with_suffix("").as_posix() for p in paths if p.parent.name != "lib"]


def _section(root: Path, folders: KernelFolders) -> str:
    source, kernels = entries(root, folders)
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for name in kernels:
        rooms[name.partition("/")[0]].append(name)
    lines = [f"\n## {folders.title}\n"]
    for room, names in rooms.items():
        lines.append(f"\n### `{room}`\n\n{_COLUMNS}")
        lines += [_row(root, folders, source, kernels, name) for name in names]
    return "".join(lines)


def _row(
    root: Path, folders: KernelFolders, source: LoweringSource, kernels: Mapping[str, KernelEntry], name: str
) -> str:
    path = root / folders.kernels / f"{name}{folders.suffix}"
    text = path.read_text(encoding="utf-8")
    entry = kernels[name]
    modules = [source.path(m) for m in sorted(entry.modules)]
    cells = (
        _link(root, path),
        _summary(text, folders.suffix),
        ", ".join(_link(root, m) for m in modules),
        _ops(entry, name.partition("/")[0]),
        "; ".join(_tunables(source, kernels, name)) or "–",
        ", ".join(f"`{d}`" for d in _DEFAULTS[folders.suffix].findall(text)) or "–",
    )
    return f"| {' | '.join(cells)} |\n"


def _link(root: Path, path: Path) -> str:
    target = Path(os.path.relpath(path, (root / PAGE).parent)).as_posix()
    return f"[{path.name}]({target})"


def _summary(text: str, suffix: str) -> str:
    """Return the first sentence of the file's comment."""
    comment = _COMMENT[suffix].search(text)
    if comment is None:
        return ""
    plain = " ".join((comment[1] if suffix == ".wgsl" else comment[0].replace("// ", "")).split())
    sentence = re.split(r"(?<=[a-z)\]0-9])[.:] ", plain)[0].rstrip(".:")
    return sentence.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _ops(entry: KernelEntry, room: str) -> str:
    """Return the ops of the kernel's package, then ops of other packages, which run it as a step."""
    own = _listed({op for op, home in entry.ops.items() if home == room})
    others = _listed({op for op, home in entry.ops.items() if home != room})
    return "; ".join([*([own] if own else []), *([f"as a step of {others}"] if others else [])])


def _listed(ops: Collection[str]) -> str:
    pointwise = {name for name in ops if name in OPS and Trait.POINTWISE in OPS[name].traits}
    several = len(pointwise) > _MANY
    names = sorted(set(ops) - pointwise if several else ops)
    return ", ".join([*(["pointwise ops"] if several else []), *(f"`{op}`" for op in names)])


def _tunables(source: LoweringSource, kernels: Mapping[str, KernelEntry], name: str) -> list[str]:
    """Return the families of a kernel: those used by its lowering and named after it, or not named after any kernel."""
    room = name.partition("/")[0]
    families: dict[str, str] = {}
    for module in sorted(m for m in kernels[name].modules if source.room(m) == room):
        for family, space in source.families(module).items():
            named = [k for k in kernels if k.startswith(f"{room}/") and f"_{family}".endswith(f"_{_base(k)}")]
            if name in named or not named:
                families[family] = ", ".join(f"{f} {'/'.join(map(str, v))}" for f, v in space.items())
    return [f"`{family}`: {values}" for family, values in sorted(families.items())]


def _base(kernel: str) -> str:
    return kernel.rpartition("/")[2].removeprefix("cpu_")
