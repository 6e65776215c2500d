"""The page that says how every op runs on every backend, and the command that writes it.

    python -m polyhal.hal.testing.tools.coverage docs/coverage.md --device numpy --certificate h200.json

There is one small file per device in the folder `data/coverage` beside the page, so that the page can be written anew
where most of the devices are missing: devices that are named are asked, certificates of `polyhal verify` are taken over,
and the rest stays as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import CorruptFileError, message
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.settings import json_store
from polyhal.hal.testing.certification.certificate import Certificate, read
from polyhal.hal.testing.certification.record import ANY, named
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope
from polyhal.hal.testing.tools.survey import steps

_SCHEMA = 1
_LETTERS = {
    ResolutionStep.VIEW: "V",
    ResolutionStep.NATIVE: "N",
    ResolutionStep.CORE: "C",
    ResolutionStep.COMPOSED: "D",
    ResolutionStep.HOST: "H",
}
_UNSUPPORTED = "–"
_WRONG = "!"
_SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool_": "bool",
}  # fmt: skip

Cells = dict[str, dict[str, str]]
"""Letters by op and dtype."""


def letters(steps: Iterable[ResolutionStep]) -> str:
    """One letter per step, each once, best first."""
    taken = set(steps)
    return "".join(letter for step, letter in _LETTERS.items() if step in taken)


@dataclass(frozen=True, slots=True)
class Column:
    """One device of the page."""

    name: str
    """The stem of its file, by which columns are sorted."""
    label: str
    device: str
    driver: str
    date: str
    cells: Cells

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA,
            "label": self.label,
            "device": self.device,
            "driver": self.driver,
            "date": self.date,
            "cells": self.cells,
        }

    @classmethod
    def from_file(cls, path: Path) -> Column:
        """The column that `to_json` went into. Raises CorruptFileError."""
        found = json_store.read(path, _SCHEMA)
        try:
            cells = {op: {str(d): str(s) for d, s in row.items()} for op, row in found["cells"].items()}
            label, device, driver, date = (str(found[k]) for k in ("label", "device", "driver", "date"))
            return cls(path.stem, label, device, driver, date, cells)
        except (KeyError, AttributeError) as error:
            raise CorruptFileError(message(None, f"{path} is no column: {error!r}")) from error


def survey(device: Device) -> Cells:
    """How the samples of every op are resolved on a device, without running any."""
    target, scope = isolated(device), Scope()
    return {op.name: {named(d): _letters(target, op, d, scope) for d in op.tests.dtypes or (None,)} for op in _listed()}


def _letters(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> str:
    if dtype is not None and dtype not in device.capabilities.storage:
        return _UNSUPPORTED
    return letters(steps(device, op, dtype, scope)) or _UNSUPPORTED


def _listed() -> list[OpDef]:
    return sorted((op for op in OPS if op.tests.samples is not None), key=lambda op: op.name)


def of_device(device: Device, name: str, label: str) -> Column:
    """A column by asking a device."""
    today = datetime.now(UTC).date().isoformat()
    return Column(name, label, device.info.name, device.info.driver, today, survey(device))


def of_certificate(certificate: Certificate, name: str, label: str) -> Column:
    """A column by what a run of the kit found."""
    storage, cells = frozenset(certificate.storage), {}
    for op in _listed():
        found = certificate.results.get(op.name, {})
        row = {}
        for dtype in (d.name for d in op.tests.dtypes) if op.tests.dtypes else (ANY,):
            result = found.get(dtype)
            if result is None:
                row[dtype] = _UNSUPPORTED if dtype not in storage and dtype != ANY else "?"
            else:
                row[dtype] = _WRONG if result.failed else letters(result.how) or _UNSUPPORTED
        cells[op.name] = row
    identity = certificate.identity
    return Column(name, label, identity.device, identity.driver, certificate.day, cells)


_HEAD = """# How ops run

Each op runs in one of these ways, the first that the backend has. `polyhal.explain("softmax", device)` tells the whole
story of one call, `polyhal verify` that of a device of yours.

| letter | what runs |
|---|---|
| V | nothing: the result is a view of the input's memory |
| N | a native kernel of the backend, for the whole op |
| C | members of the contract: arithmetic on contiguous tensors, fill, copy, upload |
| D | the op's decomposition into other ops, each of which runs in one of these ways |
| H | NumPy on the host, with the data downloaded and uploaded |
| – | not supported: the device does not store the dtype, or the dtypes that go with it |
| ! | wrong results, by the conformance kit |
| ? | not known |

The page speaks of contiguous tensors. Several letters mean that it depends on shapes or parameters. A cell holds for all
dtypes of its op, except for those that follow with their names.

This page is written by a command, from the devices at hand and the files in `data/coverage` for the others:

    python -m polyhal.hal.testing.tools.coverage docs/coverage.md --device numpy --device opencl:pocl

"""


def render(columns: Sequence[Column]) -> str:
    """The page. `columns` come in order."""
    out = [_HEAD, "| column | device | driver | date |\n|---|---|---|---|\n"]
    out += [f"| {c.label} | {c.device} | {c.driver} | {c.date} |\n" for c in columns]
    families: dict[str, list[OpDef]] = {}
    for op in _listed():
        families.setdefault(op.family, []).append(op)
    for family, ops in sorted(families.items()):
        out.append(f"\n## {family.capitalize()}\n\n")
        out.append("| op | dtypes | " + " | ".join(c.label for c in columns) + " |\n")
        out.append("|---" * (len(columns) + 2) + "|\n")
        for op in ops:
            cells = (_cell(c.cells.get(op.name), op) for c in columns)
            out.append(f"| `{op.name}` | {_kinds(op.tests.dtypes)} | " + " | ".join(cells) + " |\n")
    return "".join(out)


def _kinds(have: tuple[DType, ...]) -> str:
    """A set of dtypes in few words."""
    if not have:
        return "any"
    if set(have) == set(dtypes.ALL):
        return "all"
    kinds = {"float": "floats", "int": "ints", "uint": "uints", "bool": "bool"}
    out = []
    for kind, plural in kinds.items():
        every = [d for d in dtypes.ALL if d.kind == kind]
        mine = [d for d in every if d in have]
        if mine:
            out.append(plural if mine == every else " ".join(_SHORT[d.name] for d in mine))
    return ", ".join(out)


def _cell(row: Mapping[str, str] | None, op: OpDef) -> str:
    """The most frequent letters, then the others with the dtypes they hold for."""
    if row is None:
        return "?"
    groups: dict[str, list[str]] = {}
    for dtype in [d.name for d in op.tests.dtypes] or [ANY]:
        groups.setdefault(row.get(dtype, "?"), []).append(_SHORT.get(dtype, dtype))
    most = max(groups, key=lambda k: len(groups[k]))
    rest = (f"{text} {' '.join(names)}" for text, names in groups.items() if text != most)
    return "; ".join([most, *rest])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    folder: Path = options.page.parent / "data" / "coverage"
    labels = dict(text.partition("=")[::2] for text in options.label)
    for name in options.device:
        device, stem = Device(name), name.replace(":", "-")
        _put(folder, of_device(device, stem, _label(folder, stem, labels, device.name)))
    for path in options.certificate:
        found, stem = read(path), path.stem
        _put(folder, of_certificate(found, stem, _label(folder, stem, labels, found.name)))
    columns = [Column.from_file(p) for p in sorted(folder.glob("*.json"))]
    options.page.write_text(render(columns), encoding="utf-8")
    print(f"{options.page}: {len(columns)} devices, {len(_listed())} ops")
    return 0


def _label(folder: Path, name: str, given: Mapping[str, str], fallback: str) -> str:
    """The title of a column: the one that was given, else the one that its file had."""
    path = folder / f"{name}.json"
    return given.get(name) or (Column.from_file(path).label if path.exists() else fallback)


def _put(folder: Path, column: Column) -> None:
    """Replace the file of a column."""
    json_store.write(folder / f"{column.name}.json", column.to_json())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m polyhal.hal.testing.tools.coverage", description="Write the page that says how ops run where."
    )
    parser.add_argument("page", type=Path, help="the page; its data lies beside it, in data/coverage")
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="ask this device; repeatable")
    parser.add_argument(
        "--certificate", action="append", default=[], type=Path, metavar="FILE", help="take a certificate over"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="FILE=TEXT", help="the title of the column from that file"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
