"""The command that asks devices how ops run on them and writes the coverage page.

    python -m polyhal.hal.testing.tools.coverage docs/coverage.md --device numpy --certificate h200.json

It resolves every op on the devices named, takes over certificates of `polyhal verify`, and keeps all other columns. For a
new op `make generate` is enough.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from polyhal.hal.device import Device
from polyhal.hal.testing.certification.certificate import read
from polyhal.hal.testing.tools.coverage_columns import Column, column_of_certificate, column_of_device, listed_ops
from polyhal.hal.testing.tools.coverage_page import render


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
    """The folder of the columns, beside the page."""
    return page.parent / "data" / "coverage"


def read_columns(folder: Path) -> list[Column]:
    """All columns, in the order in which the page shows them. Raises CorruptFileError."""
    return [Column.from_file(p) for p in sorted(folder.glob("*.json"))]


def _label(folder: Path, name: str, labels: Mapping[str, str], default: str) -> str:
    """The title of a column: from the command line, else the one that its file has."""
    path = folder / f"{name}.json"
    return labels.get(name) or (Column.from_file(path).label if path.exists() else default)


def _write(folder: Path, column: Column) -> None:
    (folder / f"{column.name}.json").write_text(column.to_json(), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m polyhal.hal.testing.tools.coverage", description="Write the page that says how ops run where."
    )
    parser.add_argument("page", type=Path, help="the page; its data is beside it, in data/coverage")
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="ask this device; repeatable")
    parser.add_argument(
        "--certificate", action="append", default=[], type=Path, metavar="FILE", help="take over a certificate"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="FILE=TEXT", help="the title of the column from that file"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
