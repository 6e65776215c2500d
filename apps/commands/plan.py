"""`polyhal plan`: predict the training speed of a model on devices that this machine need not have, and divide the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from polyhal.cli.display import Json, print_json, say, status_line
from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.forecast.cluster import Cluster
    from polyhal.forecast.curve import Batch
    from polyhal.forecast.recipes import ModelRecipe
    from polyhal.forecast.strategy import Constraints

T = TypeVar("T")


def _model_names(incomplete: str) -> list[str]:
    """Return the models that begin like `incomplete`, for the shell."""
    from polyhal.forecast.recipes import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


@reported
def plan(
    model: Annotated[
        str, typer.Option(autocompletion=_model_names, help="A name, such as gpt2-124m, or the path of a config.json.")
    ] = "gpt2-124m",
    devices: Annotated[
        str,
        typer.Option(help="Number and kind: [bold]1024xh200[/], [bold]128x8xh200[/], or [bold]1xh200,2xrx480[/]."),
    ] = "8xh200",
    link: Annotated[
        str, typer.Option(help="Links within and between nodes: [bold]nvlink4,8xinfiniband-ndr[/], or GB/s@us.")
    ] = "",
    batch: Annotated[str, typer.Option(help="Samples in a step: [bold]512[/], or [bold]16/device[/].")] = "16/device",
    context: Annotated[int | None, typer.Option(help="Tokens of a sample. Default: the model's.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: bfloat16 where that is faster.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(help="Constraints, as in [bold]data=8,tensor=4[/]; also pipeline, micro and shard=optimizer."),
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="Strategies to show.")] = 8,
    curve: Annotated[bool, typer.Option("--curve/--no-curve", help="Plan for fewer devices, too.")] = True,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve as a PNG file.")] = None,
    json: Json = False,
) -> None:
    """Predict how fast a model trains on many devices, and find the best way to divide it among them.

    A training step of the real model is captured on a simulated device, which predicts the memory and the time of each
    kernel. The times of collectives follow from the speed of links.
    """
    from rich.console import Console

    from polyhal.commands import plan_report
    from polyhal.commands.plan_picture import draw
    from polyhal.forecast.cluster import parse_cluster
    from polyhal.forecast.curve import curve as predict_curve
    from polyhal.forecast.curve import parse_batch
    from polyhal.forecast.forecaster import Forecaster
    from polyhal.forecast.recipes import find_model
    from polyhal.forecast.result import to_json
    from polyhal.forecast.search import search
    from polyhal.forecast.strategy import parse_constraints
    from polyhal.forecast.unequal import parse_kinds

    several = "," in devices
    where = "--devices, --link" if link else "--devices"
    kinds = _read(where, lambda: parse_kinds(devices, link) if several else [parse_cluster(devices, link)])
    recipe = _read("--model, --context", lambda: find_model(model, context))
    samples = _read("--batch", lambda: parse_batch(batch))
    required = _read("--strategy", lambda: parse_constraints(strategy))
    console = Console(highlight=False)
    if several:
        _plan_unequal(console, recipe, kinds, samples, required, dtype, json)
        return
    cluster = kinds[0]
    forecaster = _read("--dtype", lambda: Forecaster(recipe, cluster, dtype or _dtype_of(cluster)))
    with status_line(console, f"{recipe.name} on {cluster.devices} {cluster.device}"):
        found = _read("--strategy, --batch", lambda: search(forecaster, cluster, samples.of(cluster.devices), required))
        best = found.best
        points = predict_curve(forecaster, samples, required) if curve or plot else []
    if json:
        print_json("plan", to_json(forecaster, found, points))
    else:
        plan_report.show(console, forecaster, found, best, points, top)
    if plot is not None:
        try:
            draw(forecaster, points, plot)
        except ImportError:
            typer.echo('the curve is not drawn: matplotlib is missing; run pip install "polyhal[plot]"', err=True)
        else:
            say(Console(highlight=False, stderr=True), f"picture: {plot}")


def _plan_unequal(
    console: Console,
    recipe: ModelRecipe,
    kinds: list[Cluster],
    samples: Batch,
    required: Constraints,
    dtype: str | None,
    json: bool,
) -> None:
    """Plan for devices of several kinds."""
    from polyhal.commands import plan_report
    from polyhal.forecast.result import unequal_to_json
    from polyhal.forecast.unequal import UnequalForecaster

    faster = dtype or min(map(_dtype_of, kinds), key=["float32", "bfloat16"].index)
    forecaster = _read("--dtype", lambda: UnequalForecaster(recipe, kinds, faster))
    total = sum(kind.devices for kind in kinds)
    with status_line(console, f"{recipe.name} on {total} devices"):
        found = _read("--strategy", lambda: forecaster.plan(samples.of(total), required))
    if json:
        print_json("plan", unequal_to_json(forecaster, found))
    else:
        plan_report.show_unequal(console, forecaster, found)


def _dtype_of(cluster: Cluster) -> str:
    """Return the dtype with the higher known peak rate: bfloat16 or float32."""
    peak = cluster.peak
    return "bfloat16" if peak.get("bfloat16", 0) > peak.get("float32", 0) else "float32"


def _read(option: str, read: Callable[[], T]) -> T:
    """Call `read`, and convert its ValueErrors to BadParameter for an option."""
    try:
        return read()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
