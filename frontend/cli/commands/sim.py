"""`polyhal sim`: list simulated devices, run a script on one, and calibrate cards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.display import plain_table, print_json, say, status_line
from polyhal.cli.reporting import BAD_INPUT, fail, reported, sentence

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.device import Device

app = typer.Typer(
    help="Simulated devices: GPUs that run anywhere, with virtual time. See docs/simulator.md.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@reported
def devices(json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """List the cards that can be simulated."""
    from polyhal.hal.hardware.profile import load_profile, profile_names

    profiles = [load_profile(name).to_json() for name in profile_names()]
    if json:
        print_json(profiles)
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
    device: Annotated[str, typer.Option(help="A device of [bold]polyhal sim devices[/].")] = "sim",
    out: Annotated[Path | None, typer.Option(help="The page. Default: the script's name with .html.")] = None,
    packets: Annotated[bool, typer.Option("--packets", help="Print the decoded packets, too.")] = False,
) -> None:
    """Run a script on a simulated device, verify every result against NumPy, and write a page that shows the run.

    The script runs on this device unless it names another one. The page shows where data moves, a timeline, device memory
    over time, predicted times per op and per step, and the packets. Exits with code 1 if a result is wrong.
    """
    from rich.console import Console

    from polyhal.cli.views.sim_page import duration, write

    target = _open(device)
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
        "kernels": verification.kernels, "elements": verification.elements, "transfers": verification.transfers,
        "problems": verification.problems,
    }  # fmt: skip
    page = out if out is not None else script.with_suffix(".html")
    page.write_text(write(script.name, facts, events, verified, lines), encoding="utf-8")
    console = Console(highlight=False)
    if packets:
        typer.echo(lines)
    total = max(e["end_ns"] for e in events) - min(e["start_ns"] for e in events)
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


@app.command()
@reported
def calibrate(
    device: Annotated[str, typer.Argument(help="A device of [bold]polyhal devices[/], such as [bold]opencl:0[/].")],
    output: Annotated[Path | None, typer.Option(help="The file. Default: the device's name with .toml.")] = None,
) -> None:
    """Measure a device for about half a minute, and write a card of it for the simulator.

    Micro-benchmarks measure bandwidths, rates of kinds of kernels, and the driver's overhead; `Device("sim:FILE.toml")` then
    predicts times on that device. Run nothing else meanwhile.
    """
    from rich.console import Console

    from polyhal.calibration import measure, profile_text
    from polyhal.hal.device import Device
    from polyhal.hal.errors import DeviceUnavailableError

    try:
        target = Device(device)
    except DeviceUnavailableError as error:
        raise typer.BadParameter(str(error).partition("\n")[0], param_hint="DEVICE") from None
    if target.info.backend == "described":
        raise typer.BadParameter(f"{device} is a described device, which cannot be measured", param_hint="DEVICE")
    path = output if output is not None else Path(f"{re.sub(r'[^A-Za-z0-9]+', '_', target.name).strip('_')}.toml")
    if path.suffix != ".toml":
        raise typer.BadParameter(f"{path} does not end in .toml, which device names require", param_hint="--output")
    with path.open("a", encoding="utf-8"):  # fails before the measurement if the file cannot be written
        pass
    console = Console(highlight=False)
    try:
        with status_line(console, f"{target.name}: warming up") as show:
            measured = measure(target, lambda what: show(f"{target.name}: {what}"))
        path.write_text(profile_text(measured), encoding="utf-8")
    except BaseException:
        if not path.stat().st_size:
            path.unlink()
        raise
    say(console, f"{target.name}, {target.info.name}: {len(measured.samples)} measurements in {measured.seconds:.0f} s")
    _print_figures(console, path)
    say(console, f"card: {path}; to use it: Device({f'sim:{path}'!r})")


def _print_figures(console: Console, path: Path) -> None:
    """Print the main figures of a card."""
    figures = _open(f"sim:{path},compute=off").backend.describe()  # type: ignore[attr-defined]
    rates = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name}" for name, rate in figures["peak_flops_per_s"].items())
    say(console, f"  arithmetic  {rates}")
    memory = f"{figures['bandwidth'] / 1e9:.3g} GB/s"
    if figures["cache"]:
        memory += f", {figures['cache_bandwidth'] / 1e9:.3g} GB/s up to {figures['cache'] / 2**20:.3g} MiB"
    say(console, f"  memory      {memory}")
    say(console, f"  products    {figures['product_flops_per_s'] / 1e12:.3g} TFLOP/s in float32")
    say(console, f"  driver      {figures['launch_ns'] / 1e3:.3g} us between kernels")


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
    import polyhal
    from polyhal.cli.workers.program import run_program

    backend: Any = target.backend
    polyhal.set_default_device(target)
    try:
        with backend.record_events() as log, backend.verify_results() as verification:
            run_program(script, arguments)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise typer.BadParameter(f"the script ended with exit code {error.code}", param_hint="SCRIPT") from None
    except Exception as error:
        problem = f"the script failed with {type(error).__name__}: {sentence(error)}"
        raise typer.BadParameter(problem, param_hint="SCRIPT") from error
    finally:
        polyhal.set_default_device(None)
    return log, verification
