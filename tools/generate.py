"""`make generate`: write every generated file of a checkout.

    python -m tools.generate           # from the root of a checkout
    python -m tools.generate --check   # list the files that are out of date, and write none

The files are the type stubs of ops, the coverage page with its data, the contract's text, the start page, the pages of
performance, reported devices and reliability, licences of packages, predictions of the simulator, the index of kernels, the
table of losses beside PEFT's, the list of quirks, the catalogue of cards, sizes of installs, and diagrams. A test
compares each file with the output of this command.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import installing, report, reported_devices, start_page
from benchmarks.reliability import page as reliability
from polyhal.backends.common.quirks import markdown
from polyhal.backends.opencl_c.quirks import DriverQuirks
from polyhal.backends.wgpu.quirks import WGPUQuirks
from polyhal.hal import protocol
from polyhal.hal.core.hardware import catalogue
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.ops import FFT, LINALG, SPECIAL
from tools import kernels_index, peft_table, pictures, third_party
from tools.contract_text import breaking_changes, contract_text
from tools.coverage import columns_folder, read_columns
from tools.coverage_columns import Column, listed_ops, resolve_ops
from tools.coverage_page import render
from tools.stubs import functions_stub, imports_stub, in_place_stub, methods_stub
from tools.top_level_names import names_module, package_stub

Files = dict[str, str]
"""Texts of files by path, relative to the root of the checkout."""
_MARKER = "<!-- `make generate` writes the rest -->"
_REFERENCE = "numpy"
"""Device that exists on every machine, with an always complete column."""


_OF_FFT = tuple(
    f"from polyhal.fft.frequencies import {name} as {name}" for name in ("fftfreq", "fftshift", "ifftshift", "rfftfreq")
)
_OF_LINALG = (
    "from polyhal.hal.errors import LinAlgError as LinAlgError",
    "from polyhal.linalg.low_rank import pca_lowrank as pca_lowrank",
    "from polyhal.linalg.low_rank import svd_lowrank as svd_lowrank",
)
"""Names of `polyhal.fft` and `polyhal.linalg` that are not declared with ops."""


def generated(root: Path, *, device_of: Callable[[Column], Device | None] | None = None) -> Files:
    """Return the text of every generated file.

    `device_of` returns the device of a column if it is available, to add ops missing in the column; without it only the
    reference device is used, so that the result is equal on every machine. Raises ValueError if the contract has
    changed in a way that requires a new version.
    """
    files = {
        "hal/ops/methods.pyi": methods_stub(),
        "frontend/functions.pyi": functions_stub(),
        "frontend/tensor/inplace_ops.pyi": in_place_stub(),
        "frontend/special/__init__.pyi": functions_stub(SPECIAL),
        "frontend/fft/__init__.pyi": functions_stub(FFT, *_OF_FFT),
        "frontend/linalg/__init__.pyi": functions_stub(LINALG, *_OF_LINALG),
    }
    for generator in (
        _contract,
        _names,
        _benchmarks,
        _start_page,
        _reliability,
        _kernels_index,
        _losses,
        _quirks,
        _cards,
        _pictures,
        _notices,
        installing.page,
    ):
        files |= generator(root)
    return files | _coverage(root, device_of or (lambda column: None))


def _contract(root: Path) -> Files:
    path, text = f"tests/hal/contract_v{protocol.API_VERSION}.txt", contract_text()
    if (root / path).exists():
        breaking = breaking_changes((root / path).read_text(encoding="utf-8"), text)
        if breaking:
            raise ValueError("\n".join([f"{path}: contract change: raise API_VERSION", *breaking]))
    return {path: text}


def _names(root: Path) -> Files:
    functional = root / "frontend/nn/functional/__init__.py"
    return {
        "frontend/lazy_names.py": names_module(root),
        "frontend/__init__.pyi": package_stub(root),
        "frontend/nn/functional/__init__.pyi": imports_stub(functional.read_text(encoding="utf-8")),
    }


def _benchmarks(root: Path) -> Files:
    """Return the pages of benchmark results."""
    pages = report.pages() | reported_devices.pages()
    return {path.relative_to(report.ROOT).as_posix(): text for path, text in pages.items()}


def _start_page(root: Path) -> Files:
    page = "docs/index.md"
    return {page: start_page.start_page((root / page).read_text(encoding="utf-8"), report.results())}


def _reliability(root: Path) -> Files:
    """Return the page of reliability campaigns, if they have run."""
    if not reliability.RESULT.exists():
        return {}
    return {"docs/reliability.md": reliability.page(json.loads(reliability.RESULT.read_text(encoding="utf-8")))}


def _kernels_index(root: Path) -> Files:
    return {kernels_index.PAGE: kernels_index.render(root)}


def _losses(root: Path) -> Files:
    """Return the page about language models, with the table of losses and PEFT's."""
    return {peft_table.PAGE: peft_table.with_table(root)}


def _pictures(root: Path) -> Files:
    return pictures.pictures()


def _notices(root: Path) -> Files:
    """Return the licences of packages, as recorded: which of them are installed differs between machines."""
    return {third_party.PAGE.name: third_party.page(third_party.recorded())}


def _quirks(root: Path) -> Files:
    """Return the page about quirks, whose end is generated."""
    page = "docs/quirks.md"
    written, marker, _ = (root / page).read_text(encoding="utf-8").partition(_MARKER)
    kinds = {"opencl": DriverQuirks, "wgpu": WGPUQuirks}
    tables = [f"\n### {backend}\n\n{markdown(kind)}" for backend, kind in kinds.items()]
    return {page: written + marker + "\n" + "".join(tables)}


def _cards(root: Path) -> Files:
    """Return the page about cards, whose end is the catalogue."""
    page = "docs/cards.md"
    written, marker, _ = (root / page).read_text(encoding="utf-8").partition(_MARKER)
    lines = [
        "| card | title | type | vendor | described through | simulated | aliases |",
        "|---|---|---|---|---|---|---|",
    ]
    for card in map(catalogue.find, catalogue.names()):
        aliases = ", ".join(f"`{alias}`" for alias in card.aliases)
        cells = (
            f"`{card.name}`",
            card.title,
            card.type.replace("_", " "),
            card.vendor,
            ", ".join(card.apis),
            "yes" if card.is_simulated else "",
            aliases,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return {page: "\n".join([written + marker, *lines]) + "\n"}


def _coverage(root: Path, device_of: Callable[[Column], Device | None]) -> Files:
    page = "docs/coverage.md"
    folder = columns_folder(Path(page))
    columns = [_completed(column, device_of) for column in read_columns(root / folder)]
    files = {(folder / f"{c.name}.json").as_posix(): c.to_json() for c in columns}
    return files | {page: render(columns)}


def _completed(column: Column, device_of: Callable[[Column], Device | None]) -> Column:
    if column.name == _REFERENCE:
        return column.with_cells(resolve_ops(Device(_REFERENCE), listed_ops()))
    missing = column.outdated()
    device = device_of(column) if missing else None
    return column.with_cells(resolve_ops(device, missing) if device is not None else {})


def at_hand(column: Column) -> Device | None:
    """Return the device of a column, if this machine has it with the column's driver."""
    try:
        device = Device(column.device_name)
    except (PolyhalError, ValueError):
        return None
    return device if device.info.driver == column.driver else None


def outdated(root: Path, files: Files) -> list[str]:
    """Return the files that are missing or differ from `files`."""
    return [p for p, text in files.items() if not (root / p).exists() or (root / p).read_text(encoding="utf-8") != text]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or with `--check` 1 if a file is out of date."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.generate", description="Write every generated file of a checkout."
    )
    parser.add_argument("--root", type=Path, default=Path(), metavar="FOLDER", help="the root of the checkout")
    parser.add_argument("--check", action="store_true", help="list the files that are out of date, and write none")
    options = parser.parse_args(arguments)
    files = generated(options.root, device_of=None if options.check else at_hand)
    changed = outdated(options.root, files)
    if not options.check:
        _write(options.root, changed, files)
    print("\n".join(changed) if changed else f"all {len(files)} generated files are up to date")
    return 1 if options.check and changed else 0


def _write(root: Path, paths: Iterable[str], files: Files) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(files[path], encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
