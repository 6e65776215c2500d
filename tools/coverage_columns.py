"""Columns of the coverage page: how every op runs on one device, stored as JSON files in docs/data/coverage.

With one file per device, the page can be rendered on a machine without most of the devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from polyhal.hal.core.settings import json_store
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import CorruptFileError, message
from polyhal.hal.ops import BUILT_IN, OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.resolution_steps import resolution_steps, step_letters
from polyhal.hal.testing.certification.run_record import ANY, dtype_key
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope

Cells = dict[str, dict[str, str]]
"""Letters by op and dtype."""
UNKNOWN = "?"
_SCHEMA = 1
_UNSUPPORTED = "–"
_WRONG = "!"


def listed_ops() -> list[OpDef]:
    """Return the ops on the page: all ops with samples, by name."""
    return sorted((op for op in OPS if op.name in BUILT_IN and op.tests.samples is not None), key=lambda op: op.name)


def dtype_names(op: OpDef) -> list[str]:
    """Return the keys of an op's cells: the dtypes that it is tested in, or `ANY`."""
    return [d.name for d in op.tests.dtypes] or [ANY]


@dataclass(frozen=True, slots=True)
class Column:
    """A device of the page."""

    name: str
    """Stem of the file, the sort key of columns."""
    label: str
    """Title on the page."""
    device: str
    driver: str
    date: str
    cells: Cells

    def to_json(self) -> str:
        """Return the text of the column's file."""
        return json_store.text_of(
            {
                "schema": _SCHEMA,
                "label": self.label,
                "device": self.device,
                "driver": self.driver,
                "date": self.date,
                "cells": dict(sorted(self.cells.items())),
            }
        )

    @classmethod
    def from_file(cls, path: Path) -> Column:
        """Read a column's file. Raises CorruptFileError."""
        content: dict[str, Any] = json_store.read(path, _SCHEMA)
        try:
            cells = {op: {str(d): str(s) for d, s in row.items()} for op, row in content["cells"].items()}
            label, device, driver, date = (str(content[k]) for k in ("label", "device", "driver", "date"))
            return cls(path.stem, label, device, driver, date, cells)
        except (KeyError, AttributeError) as error:
            raise CorruptFileError(message(None, f"{path} is not a column: {error!r}")) from error

    @property
    def device_name(self) -> str:
        """Return the name to open the device: `opencl-pocl` is `opencl:pocl`."""
        return self.name.replace("-", ":", 1)

    def outdated(self) -> list[OpDef]:
        """Return the listed ops without cells in the column, or with cells of other dtypes."""
        return [op for op in listed_ops() if set(self.cells.get(op.name, ())) != set(dtype_names(op))]

    def with_cells(self, cells: Cells) -> Column:
        """Return the column with `cells` added or replaced, without removed ops, in the order of the declarations."""
        merged = self.cells | cells
        return replace(self, cells={op.name: merged[op.name] for op in listed_ops() if op.name in merged})


def resolve_ops(device: Device, ops: Iterable[OpDef]) -> Cells:
    """Resolve the samples of ops on a device, without running them."""
    target, scope = isolated(device), Scope()
    return {op.name: {dtype_key(d): _letters(target, op, d, scope) for d in op.tests.dtypes or (None,)} for op in ops}


def _letters(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> str:
    if dtype is not None and dtype not in device.capabilities.storage:
        return _UNSUPPORTED
    return step_letters(resolution_steps(device, op, dtype, scope)) or _UNSUPPORTED


def column_of_device(device: Device, name: str, label: str) -> Column:
    """Return the column of an available device."""
    today = datetime.now(UTC).date().isoformat()
    return Column(name, label, device.info.name, device.info.driver, today, resolve_ops(device, listed_ops()))


def column_of_certificate(certificate: Certificate, name: str, label: str) -> Column:
    """Return the column of a certificate of `polyhal verify`."""
    cells = {op.name: _certified(certificate, op) for op in listed_ops()}
    identity = certificate.identity
    return Column(name, label, identity.device, identity.driver, certificate.day, cells)


def _certified(certificate: Certificate, op: OpDef) -> dict[str, str]:
    results = certificate.results.get(op.name, {})
    row = {}
    for dtype in dtype_names(op):
        result = results.get(dtype)
        if result is None:
            row[dtype] = UNKNOWN if dtype in certificate.storage or dtype == ANY else _UNSUPPORTED
        else:
            row[dtype] = _WRONG if result.failed else step_letters(result.how) or _UNSUPPORTED
    return row
