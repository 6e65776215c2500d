"""Tables of compilers' statistics of kernels: registers, memory, and occupancy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from polyhal.cli.display import plain_table, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from polyhal.hal.core.kernels.library import KernelLibrary
    from polyhal.hal.device import Device

_LONGEST_DEFINITION = 24
"""Maximum characters of a preprocessor definition; longer ones are generated code and not shown."""
_WIDTH = 160
_NO_FIGURES = ("kernel", "definitions")
_MORE_IS_BETTER = frozenset({"waves", "lanes", "max_group_size", "matrix_instructions"})


def statistics_of(device: Device, kernels: KernelLibrary, file: str) -> list[Mapping[str, Any]]:
    """Compile the variants of a file that samples of ops use, and return the compiler's statistics."""
    from polyhal.hal.testing.tuning.kernel_check import build_variants, ops_by_kernel

    build_variants(device, file, ops_by_kernel(device)[file])
    return list(kernels.statistics(file))


def print_variants(console: Console, device: Device, rows: list[Mapping[str, Any]], file: str) -> None:
    """Print a line for each variant of a kernel of a file, with the definitions in which the variants differ."""
    if not rows:
        console.print(f"no sample of an op uses {file} on {device.name}", markup=False)
        return
    definitions = [_shown_definitions(r["definitions"]) for r in rows]
    common = {k: v for k, v in definitions[0].items() if len(rows) > 1 and all(d.get(k) == v for d in definitions)}
    if common:
        say(console, f"all are built with {', '.join(f'{k}={v}' for k, v in common.items())}")
    figures = _figures(rows)
    titles = [f.replace("_", " ") for f in figures]
    table = plain_table("kernel", *titles, "built with", right=titles)
    for row, defined in zip(rows, definitions, strict=True):
        built_with = ", ".join(f"{k}={v}" for k, v in defined.items() if k not in common)
        table.add_row(row["kernel"], *(str(row.get(f, "")) for f in figures), built_with)
    _print(console, table)


def print_worst(console: Console, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each kernel: the number of its variants, and the worst value of each statistic."""
    variants = defaultdict(list)
    for row in rows:
        variants[row["kernel"]].append(row)
    figures = _figures(r for same in variants.values() for r in same)
    titles = [f.replace("_", " ") for f in figures]
    table = plain_table("kernel", "variants", *titles, right=["variants", *titles])
    for kernel, same in sorted(variants.items()):
        worst = [(min if f in _MORE_IS_BETTER else max)([r[f] for r in same if f in r], default="") for f in figures]
        table.add_row(kernel, str(len(same)), *map(str, worst))
    _print(console, table)


def _print(console: Console, table: Table) -> None:
    if not console.is_terminal:  # a file is wide enough for all columns
        console.width = max(console.width, _WIDTH)
    console.print(table)


def _figures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [k for k in dict.fromkeys(k for r in rows for k in r) if k not in _NO_FIGURES]


def _shown_definitions(definitions: Mapping[str, Any]) -> dict[str, str]:
    """Return preprocessor definitions as text, without generated code."""
    text = {k: str(int(v)) if isinstance(v, bool) else str(v) for k, v in definitions.items()}
    return {k: v for k, v in text.items() if len(v) < _LONGEST_DEFINITION}
