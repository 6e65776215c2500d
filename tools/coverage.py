"""Command that resolves ops on devices and writes the coverage page.

    python -m tools.coverage docs/coverage.md --device numpy --certificate h200.json

It resolves every op on the named devices, imports certificates of `polyhal verify`, and keeps all other columns. For a
new op, `make generate` is sufficient.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from polyhal.hal.device import Device
from polyhal.hal.testing.certification.certificate import read
from tools.coverage_columns import Column, column_of_certificate, column_of_device, listed_ops
from tools.coverage_page import render


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    folder = columns_folder(options.page)
    folder.mkdir(parents=True, exist_ok=True)
    labels = dict(text.partition("=")[::2] for text in options.label)
    for name in options.device:
        device, stem = Device(name), name.replace(":", "-")
        _write(folder, column_of_device(device, stem, _label(folder, stem, labels, device.name)))
    for path in options.certificate:
        certificate, stem = read(path), path.stem
        _write(folder, column_of_certificate(certificate, stem, _label(folder, stem, labels, certificate.name)))
    columns = read_columns(folder)
    options.page.write_text(render(columns), encoding="utf-8")
    print(f"{options.page}: {len(columns)} devices, {len(listed_ops())} ops")
    return 0


def columns_folder(page: Path) -> Path:
    """Return the folder of the columns, next to the page."""
    return page.parent / "data" / "coverage"


def read_columns(folder: Path) -> list[Column]:
    """Return all columns, in the order of the page. Raises CorruptFileError."""
    return [Column.from_file(p) for p in sorted(folder.glob("*.json"))]


def _label(folder: Path, name: str, labels: Mapping[str, str], default: str) -> str:
    """Return the title of a column, from the command line, else from its file."""
    path = folder / f"{name}.json"
    return labels.get(name) or (Column.from_file(path).label if path.exists() else default)


def _write(folder: Path, column: Column) -> None:
    (folder / f"{column.name}.json").write_text(column.to_json(), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.coverage", description="Write the page of how ops run on each device."
    )
    parser.add_argument("page", type=Path, help="the page; its data are in data/coverage next to it")
    parser.add_argument(
        "--device", action="append", default=[], metavar="NAME", help="resolve ops on this device; repeatable"
    )
    parser.add_argument(
        "--certificate", action="append", default=[], type=Path, metavar="FILE", help="import a certificate"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="FILE=TEXT", help="title of the column from that file"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
