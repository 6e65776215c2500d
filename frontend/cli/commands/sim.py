"""`polyhal sim`: list simulated devices, run a script on one, and calibrate cards."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import simulated_names
from polyhal.cli.display import Json, plain_table, print_json, printing_json, say
from polyhal.cli.reporting import BAD_INPUT, fail, reported, sentence

if TYPE_CHECKING:
    from polyhal.hal.device import Device

app = typer.Typer(
    help="Simulated devices: GPUs that run anywhere, with virtual time.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@reported
def devices(json: Json = False) -> None:
    """List the cards that can be simulated."""
    from polyhal.hal.core.hardware.profile import load_profile, profile_names

    profiles = [load_profile(name).to_json() for name in profile_names()]
    if json:
        print_json("sim devices", {"devices": profiles})
        return
    from rich.console import Console

    table = plain_table(
        "device",
        "is",
        "units",
        "float32",
        "memory",
        "bandwidth",
        "link",
        right=["device", "units", "float32", "memory"],
    )
    for p in profiles:
        rates = (
            f"{p['flops_per_s'] / 1e12:.2f} TFLOP/s",
            f"{p['memory'] / 2**30:.0f} GiB",
            f"{p['bandwidth'] / 1e9:.0f} GB/s",
        )
        table.add_row(f"sim:{p['profile']}", p["title"], str(p["compute_units"]), *rates, p["link"])
    Console().print(table)


@app.command()
@reported
def explain(
    script: Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after [bold]--[/].")] = None,
    device: Annotated[
        str, typer.Option(autocompletion=simulated_names, help="A device of [bold]polyhal sim devices[/].")
    ] = "sim",
    out: Annotated[Path | None, typer.Option(help="The page. Default: the script's name with .html.")] = None,
    packets: Annotated[bool, typer.Option("--packets", help="Print the decoded packets, too.")] = False,
    json: Json = False,
) -> None:
    """Run a script on a simulated device, verify every result against NumPy, and write a page that shows the run.

    The script runs on this device unless it names another one. The page shows where data moves, a timeline, device memory
    over time, predicted times per op and per step, and the packets. Exits with code 1 if a result is wrong.
    """
    from rich.console import Console

    from polyhal.cli.views.sim_page import duration, write

    target = _open(device)
    with printing_json() if json else nullcontext():
        log, verification = _run(script, arguments or [], target)
    events = log.to_json()
    if not events:
        fix = "let it take the default device, or name its device with --device"
        fail(f"{script} did not use {target.name}; {fix}")
        raise typer.Exit(BAD_INPUT)
    backend: Any = target.backend
    lines = "\n".join(f"#{e['sequence']:<6} {e['text']}" for e in events if e["action"] == "submit")
    facts = {**backend.describe(), "name": target.name}
    verified = {
        "kernels": verification.kernels,
        "elements": verification.elements,
        "transfers": verification.transfers,
        "problems": verification.problems,
    }
    page = out if out is not None else script.with_suffix(".html")
    page.write_text(write(script.name, facts, events, verified, lines), encoding="utf-8")
    total = max(e["end_ns"] for e in events) - min(e["start_ns"] for e in events)
    if json:
        seen = {"device": target.name, "events": len(events), "virtual_seconds": total * 1e-9, "page": page}
        print_json("sim explain", seen | {"verified": {**verified, "bytes": verification.nbytes}})
        if verification.problems:
            raise typer.Exit(1)
        return
    console = Console(highlight=False)
    if packets:
        typer.echo(lines)
    say(console, f"{len(events)} events in {duration(total)} of virtual time on {target.info.name}")
    kernels = f"{verification.kernels} kernel{'s' * (verification.kernels != 1)}"
    say(
        console,
        f"compared with NumPy: {kernels} ({verification.elements} elements) and {verification.transfers} "
        f"transfers ({verification.nbytes} bytes); {len(verification.problems) or 'none'} wrong",
    )
    say(console, f"page: {page}")
    if verification.problems:
        fail(verification.problems[0])
        raise typer.Exit(1)


def _open(name: str) -> Device:
    """Open a simulated device. Raises BadParameter for any other name."""
    from polyhal.hal.device import Device
    from polyhal.hal.errors import DeviceUnavailableError

    if name.partition(":")[0] != "sim":
        problem = f"{name!r} is not a simulated device; expected one of `polyhal sim devices`, such as sim:h200"
        raise typer.BadParameter(problem, param_hint="--device")
    try:
        return Device(name)
    except DeviceUnavailableError as error:
        # The first line states the reason; the others list devices that are not simulated.
        raise typer.BadParameter(str(error).partition("\n")[0], param_hint="--device") from None


def _run(script: Path, arguments: list[str], target: Device) -> tuple[Any, Any]:
    """Run the script with everything recorded. Returns the event log and the verification.

    Raises BadParameter if the script fails.
    """
    from polyhal.cli.workers.program import run_program

    backend: Any = target.backend
    try:
        with backend.record_events() as log, backend.verify_results() as verification:
            run_program(script, arguments, target)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise typer.BadParameter(f"the script ended with exit code {error.code}", param_hint="SCRIPT") from None
    except Exception as error:
        problem = f"the script failed with {type(error).__name__}: {sentence(error)}"
        raise typer.BadParameter(problem, param_hint="SCRIPT") from error
    return log, verification
