"""`polyhal verify`: the conformance kit on a device, its certificate, and a quarantine for kernels that fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.reporting import BAD_INPUT, fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.testing.certification.certificate import Certificate
    from polyhal.hal.testing.kit.scope import Scope


@reported
def verify(
    device: Annotated[
        str | None, typer.Argument(help="The device, as [bold]polyhal devices[/] names it; the default if not given.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Only calls with few elements; for slow devices.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every sample in every dtype and memory layout.")] = False,
    only: Annotated[
        str, typer.Option(metavar="GLOB", help="The checks to run, as in [bold]'forward/softmax/*'[/].")
    ] = "*",
    expectations: Annotated[
        Path | None, typer.Option(help="A TOML file of unsupported checks and expected failures.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the certificate to this file too.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every op and every failure.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the certificate of the last run; check nothing.")] = False,
    quarantine: Annotated[
        bool,
        typer.Option("--quarantine/--no-quarantine", help="Have other ways taken from now on where kernels fail."),
    ] = True,
    clear: Annotated[bool, typer.Option("--clear", help="Forget first what is in quarantine.")] = False,
) -> None:
    """Check that a device computes correctly: every op, in every dtype and memory layout, against float64.

    Kernels that give wrong results or fail on this driver are put in quarantine: from then on their ops run in another
    way, until the driver or the software changes. Exits with code 1 when wrong results remain.
    """
    if small and full:
        raise typer.BadParameter("--small leaves out what --full adds; expected one of them")
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.testing.kit.scope import Scope

    console = Console(highlight=False)
    target = Device(device)
    if clear:
        _clear(target)
    if show:
        certificate, where = _shown(target), ""
    else:
        # Standard output is for the certificate, where that is asked for as JSON.
        messages = Console(highlight=False, stderr=True) if json else console
        certificate = _run(messages, target, Scope(small, full), only, expectations, keep=quarantine)
        where = _keep(messages, target, certificate, output)
    if json:
        from polyhal.cli.output import print_json

        print_json(certificate.to_json())
    else:
        from polyhal.cli.views.certificate import print_certificate

        print_certificate(console, certificate, verbose=verbose)
        if where:
            console.print(f"certificate: {where}", markup=False, soft_wrap=True)
    if not certificate.correct:
        raise typer.Exit(1)


def _run(
    console: Console, device: Device, scope: Scope, only: str, expectations: Path | None, *, keep: bool
) -> Certificate:
    from polyhal.cli.views.verify_progress import make_display
    from polyhal.hal.testing.certification.examination import examine
    from polyhal.hal.testing.kit.expectations import Expectations, read

    known = Expectations()
    if expectations is not None:
        try:
            known = read(expectations)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--expectations") from None
    console.print(f"verifying {device.name}: {device.info.name}, {device.info.driver}", markup=False, soft_wrap=True)
    with make_display(console) as display:
        certificate = examine(device, scope=scope, only=only, expectations=known, observer=display, keep=keep)
    if not certificate.passed + certificate.failed + certificate.unsupported + certificate.expected_failures:
        raise typer.BadParameter(
            f"no check matches {only!r}; expected a pattern such as 'forward/*'", param_hint="--only"
        )
    return certificate


def _keep(console: Console, device: Device, certificate: Certificate, output: Path | None) -> str:
    """Write the certificate where it belongs. Returns where it is, in words. Raises OSError for `output` only."""
    from polyhal.hal.testing.certification import certificate as certificates

    places = []
    if output is not None:
        certificates.write(certificate, output)
        places.append(str(output))
    if certificate.whole and certificate.complete:
        path = certificates.kept(device)
        try:
            certificates.write(certificate, path)
            places.append(str(path))
        except OSError as error:
            console.print(f"the certificate is not kept: {error}", style="yellow", markup=False, soft_wrap=True)
    return " and ".join(places) or "not kept, because only a part was checked"


def _shown(device: Device) -> Certificate:
    from polyhal.hal.testing.certification.certificate import stored

    found, why = stored(device)
    if found is None:
        fail(f"there is no certificate to show: {why}; run `polyhal verify {device.name}`")
        raise typer.Exit(BAD_INPUT)
    return found


def _clear(device: Device) -> None:
    from polyhal.hal.kernels import quarantine

    if quarantine.load(device) != quarantine.EMPTY:
        quarantine.store(device, ())
