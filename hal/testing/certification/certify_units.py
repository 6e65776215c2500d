"""`polyhal verify --units`: check the units of a device that are disabled without a certificate, each in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from polyhal.hal import dtypes
from polyhal.hal.core.kernels import certified_units
from polyhal.hal.core.kernels.certified_units import HasUnits, UnitCertificate, Units
from polyhal.hal.core.kernels.prebuild import library
from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.testing.kit.failures import one_line
from polyhal.hal.testing.kit.forward import check_forward
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.product_samples import large_product, product_ops
from polyhal.hal.testing.kit.scope import Scope

_TIMEOUT = 1800.0
"""Timeout in seconds. On a GPU all checks take about one minute, most of it in the driver's compiler."""
_LAST_WORDS = 300
"""Maximum characters of the last output of a failed process."""


def units_of(device: Device) -> Units | None:
    """Return the units of a device that require a certificate; None if it has none."""
    found = device.backend.units if isinstance(device.backend, HasUnits) else None
    return found if found is not None and found.available else None


def certify_units(
    device: Device, started: Callable[[str], None] = lambda unit: None, timeout: float = _TIMEOUT
) -> list[UnitCertificate]:
    """Check each unit of a device and store the certificates, which take effect in processes started later. Raises OSError.

    `started` is called with the name of each unit. A process that ends or takes longer than `timeout` seconds is a failure.
    """
    found = units_of(device)
    if found is None:
        return []
    certificates = []
    for unit in found.available:
        started(unit)
        certificates.append(_in_own_process(device.name, unit, found, timeout))
    certified_units.store(device.info, certificates)
    return certificates


def _in_own_process(device: str, unit: str, found: Units, timeout: float) -> UnitCertificate:
    command = [sys.executable, "-m", __name__, device, unit]
    given = {**os.environ, "POLYHAL_UNITS": unit}
    try:
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return _certificate(unit, found, f"the checks did not end within {timeout:g} seconds")
    try:
        return UnitCertificate.from_json(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        said = done.stderr.strip()[-_LAST_WORDS:].splitlines()
        last = said[-1] if said else "without output"
        return _certificate(unit, found, f"the process ended with code {done.returncode}: {last}")


def check_unit(device: Device, unit: str) -> UnitCertificate:
    """Check a unit in use in this process: compare products with the reference, up to the first failure.

    A kernel that the driver rejects is a failure, and so is a unit whose kernels were not used by any product. Raises
    ValueError if the unit is not in use.
    """
    found = units_of(device)
    if found is None or unit not in found.in_use:
        problem = f"the unit {unit} is not in use"
        raise ValueError(
            message(None, problem, expected=f"one of {sorted(found.in_use) if found else []}", device=device.name)
        )
    checks = 0
    target = isolated(device)
    before = len(_builds(target, found))
    with strict(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a slower kernel would replace a rejected one
        for op, dtype in _checks():
            try:
                check_forward(target, op, dtype, Scope())
            except Exception as error:  # a driver may fail in any way
                return _certificate(unit, found, f"{op.name} of {dtype.name}: {one_line(error)}", checks)
            checks += 1
    if len(_builds(target, found)) == before:
        return _certificate(unit, found, f"no product has used {' or '.join(found.kernels)}", checks)
    return _certificate(unit, found, "", checks)


def _checks() -> Iterator[tuple[OpDef, dtypes.DType]]:
    for dtype in (dtypes.float16, dtypes.bfloat16):
        for op in (*product_ops(dtype), large_product(dtype)):
            yield op, dtype


def _builds(device: Device, found: Units) -> list[str]:
    """Return the programs of the units' kernels that this process has built."""
    return [b.digest for b in library(device).program_builds if b.kernel in found.kernels]


def _certificate(unit: str, found: Units, problem: str, checks: int = 0) -> UnitCertificate:
    return UnitCertificate(unit, problem, checks, datetime.now(UTC).date().isoformat(), found.texts)


def main(name: str, unit: str) -> None:
    """Check one unit and print its certificate as JSON."""
    print(json.dumps(check_unit(Device(name), unit).to_json()))


if __name__ == "__main__":
    main(*sys.argv[1:])
