"""`polyhal sim calibrate`: measure a device, and write a profile of it for the simulator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, print_json, say, status_line
from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.console import Console


@reported
def calibrate(
    device: Annotated[
        str,
        typer.Argument(
            autocompletion=device_names, help="A device of [bold]polyhal devices[/], such as [bold]opencl:0[/]."
        ),
    ],
    output: Annotated[Path | None, typer.Option(help="The file. Default: the device's name with .toml.")] = None,
    json: Json = False,
) -> None:
    """Measure a device for about half a minute, and write a card of it for the simulator.

    Micro-benchmarks measure bandwidths, rates of kinds of kernels, and the driver's overhead; `Device("sim:FILE.toml")` then
    predicts times on that device. Run nothing else meanwhile.
    """
    from rich.console import Console

    from polyhal import Device
    from polyhal.calibration import measure, profile_text
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
    console = Console(highlight=False, stderr=json)
    try:
        with status_line(console, f"{target.name}: warming up") as show:
            measured = measure(target, lambda what: show(f"{target.name}: {what}"))
        path.write_text(profile_text(measured), encoding="utf-8")
    except BaseException:
        if not path.stat().st_size:
            path.unlink()
        raise
    if json:
        facts = {
            "device": target.name,
            "card": path,
            "measurements": len(measured.samples),
            "seconds": measured.seconds,
        }
        print_json("sim calibrate", facts | {"figures": _figures(path)})
        return
    say(console, f"{target.name}, {target.info.name}: {len(measured.samples)} measurements in {measured.seconds:.0f} s")
    _print_figures(console, path)
    say(console, f"card: {path}; to use it: Device({f'sim:{path}'!r})")


def _figures(path: Path) -> dict[str, Any]:
    """Return the figures of a card."""
    from polyhal import Device

    backend: Any = Device(f"sim:{path},compute=off").backend
    figures: dict[str, Any] = backend.describe()
    return figures


def _print_figures(console: Console, path: Path) -> None:
    """Print the main figures of a card."""
    figures = _figures(path)
    rates = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name}" for name, rate in figures["peak_flops_per_s"].items())
    say(console, f"  arithmetic  {rates}")
    memory = f"{figures['bandwidth'] / 1e9:.3g} GB/s"
    if figures["cache"]:
        memory += f", {figures['cache_bandwidth'] / 1e9:.3g} GB/s up to {figures['cache'] / 2**20:.3g} MiB"
    say(console, f"  memory      {memory}")
    say(console, f"  products    {figures['product_flops_per_s'] / 1e12:.3g} TFLOP/s in float32")
    say(console, f"  driver      {figures['launch_ns'] / 1e3:.3g} us between kernels")
