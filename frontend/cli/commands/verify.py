"""`polyhal verify`: run the conformance kit on a device, write a certificate, and quarantine kernels that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, print_json, say
from polyhal.cli.reporting import BAD_INPUT, fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.testing.certification.certificate import Certificate
    from polyhal.hal.testing.kit.scope import Scope


@reported
def verify(
    device: Annotated[
        str | None,
        typer.Argument(
            autocompletion=device_names,
            help="The device, as named by [bold]polyhal devices[/]. Default: the default device.",
        ),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Only calls with few elements, for slow devices.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every sample in every dtype and memory layout.")] = False,
    only: Annotated[str, typer.Option(metavar="GLOB", help="Checks to run, as in [bold]'forward/softmax/*'[/].")] = "*",
    expectations: Annotated[
        Path | None, typer.Option(help="A TOML file of unsupported checks and expected failures.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Also write the certificate to this file.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every op and every failure.")] = False,
    json: Json = False,
    show: Annotated[bool, typer.Option("--show", help="Print the certificate of the last run; check nothing.")] = False,
    quarantine: Annotated[
        bool, typer.Option("--quarantine/--no-quarantine", help="Stop using kernels that fail.")
    ] = True,
    clear: Annotated[bool, typer.Option("--clear", help="Empty the quarantine first.")] = False,
    units: Annotated[
        bool, typer.Option("--units", help="Check only matrix units that need a certificate, and use the correct ones.")
    ] = False,
) -> None:
    """Check that a device computes correctly: every op, in every dtype and memory layout, against float64.

    Kernels that fail or compute wrong results on this driver are quarantined: their ops use an alternative until the driver
    or Polyhal changes. Exits with code 1 if wrong results remain.
    """
    if small and full:
        raise typer.BadParameter("--small and --full exclude each other; expected one of them")
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.testing.kit.scope import Scope

    console = Console(highlight=False)
    target = Device(device)
    if units:
        _verify_units(console, target, only_show=show, json=json)
        return
    if clear:
        _clear_quarantine(target)
    if show:
        certificate, location = _stored_certificate(target), ""
    else:
        # With --json, standard output contains only the certificate.
        messages = Console(highlight=False, stderr=True) if json else console
        certificate = _run(messages, target, Scope(small, full), only, expectations, keep=quarantine)
        location = _store(messages, target, certificate, output)
    if json:
        print_json("verify", certificate.to_json())
    else:
        from polyhal.cli.views.certificate import print_certificate

        print_certificate(console, certificate, verbose=verbose)
        if location:
            say(console, f"certificate: {location}")
    if not certificate.correct:
        raise typer.Exit(1)


def _verify_units(console: Console, device: Device, *, only_show: bool, json: bool) -> None:
    """Check the units of a device, or only show them. Exits with code 1 if one is wrong."""
    from rich.console import Console

    from polyhal.hal.core.kernels import certified_units
    from polyhal.hal.testing.certification.certify_units import certify_units, units_of

    messages = Console(highlight=False, stderr=True) if json else console
    known = units_of(device)
    if known is None:
        say(messages, f"{device.name} has no matrix unit that needs a certificate")
    elif not only_show:
        certify_units(
            device, lambda unit: say(messages, f"checking the unit {unit} of {device.name}: {device.info.name}")
        )
    checked = {} if known is None else certified_units.load(device.info, known.texts)
    found = [] if known is None else [c for u, c in checked.items() if u in known.available]
    if json:
        print_json("verify", {"units": [c.to_json() for c in found]})
    elif known is not None:
        for line in replace(known, certificates={c.unit: c for c in found}).lines(device.name):
            say(console, line)
    if not all(c.correct for c in found):
        raise typer.Exit(1)


def _run(
    console: Console, device: Device, scope: Scope, only: str, expectations: Path | None, *, keep: bool
) -> Certificate:
    from polyhal.cli.views.verify_progress import verify_progress
    from polyhal.hal.testing.certification.certify import certify
    from polyhal.hal.testing.kit.expectations import Expectations, read

    expected = Expectations()
    if expectations is not None:
        try:
            expected = read(expectations)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--expectations") from None
    say(console, f"verifying {device.name}: {device.info.name}, {device.info.driver}")
    with verify_progress(console) as progress:
        certificate = certify(device, scope=scope, only=only, expectations=expected, observer=progress, keep=keep)
    if not certificate.passed + certificate.failed + certificate.unsupported + certificate.expected_failures:
        problem = f"no check matches {only!r}; expected a pattern such as 'forward/*'"
        raise typer.BadParameter(problem, param_hint="--only")
    return certificate


def _store(console: Console, device: Device, certificate: Certificate, output: Path | None) -> str:
    """Write the certificate to `output` and, after a complete run, to the cache. Returns its locations as text.

    Raises OSError if `output` cannot be written.
    """
    from polyhal.hal.testing.certification import certificate as certificates

    locations = []
    if output is not None:
        certificates.write(certificate, output)
        locations.append(str(output))
    if certificate.whole and certificate.complete:
        path = certificates.certificate_path(device)
        try:
            certificates.write(certificate, path)
            locations.append(str(path))
        except OSError as error:
            say(console, f"the certificate is not stored: {error}", "yellow")
    return " and ".join(locations) or "not stored, because the run was partial"


def _stored_certificate(device: Device) -> Certificate:
    from polyhal.hal.testing.certification.certificate import stored

    certificate, problem = stored(device)
    if certificate is None:
        fail(f"no certificate to show: {problem}; run `polyhal verify {device.name}`")
        raise typer.Exit(BAD_INPUT)
    return certificate


def _clear_quarantine(device: Device) -> None:
    from polyhal.hal.compile.planning import quarantine

    if quarantine.load(device) != quarantine.EMPTY:
        quarantine.store(device, ())
