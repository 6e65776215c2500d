"""`polyhal bench`: the speed of a device, compared with NumPy, PyTorch and the results of other machines."""

from __future__ import annotations

from typing import Annotated

import typer

from polyhal.cli.applications import extension
from polyhal.cli.completion import device_names
from polyhal.cli.display import Json
from polyhal.cli.reporting import reported


@reported
def bench(
    device: Annotated[
        str | None, typer.Option(autocompletion=device_names, help="The device. Default: the default device.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time for all measurements, without starting them.")] = 24,
    json: Json = False,
) -> None:
    """Measure a device in less than a minute, and compare it with NumPy, PyTorch and the results of other machines.

    The workloads are memory traffic, matrix products, a convolution, attention and a training step. The roofline is the
    greatest speed by the measured rates of the device. Results of others are from files of `polyhal doctor --report`. Exits
    with code 1 if the device fails.
    """
    extension("bench.measure")(device, seconds, json)
