"""`polyhal explain`: how an op runs on a device, and why not faster."""

from __future__ import annotations

from typing import Annotated

import typer

from polyhal.cli.reporting import reported


@reported
def explain(
    op: Annotated[str, typer.Argument(help="The op, for instance [bold]layer_norm[/].")],
    device: Annotated[str | None, typer.Option(help="The device; the default device if not given.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="The shape of one input, as in [bold]--shape 3,4[/]; repeat for each input."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="The element type of the inputs.")] = "float32",
) -> None:
    """Show how an op runs on a device: as which kernels, and why not as better ones."""
    from polyhal.hal.dtypes import as_dtype
    from polyhal.hal.planning.explain import explain as resolve

    shapes = [_shape(text) for text in shape or []]
    try:
        kind = as_dtype(dtype)
    except TypeError as error:
        raise typer.BadParameter(str(error), param_hint="--dtype") from None
    try:
        typer.echo(resolve(op, device, *shapes, dtype=kind))
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="OP") from None


def _shape(text: str) -> tuple[int, ...]:
    """The lengths in a text like `3,4`; an empty text is a scalar's shape."""
    try:
        lengths = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        lengths = (-1,)
    if any(n < 0 for n in lengths):
        raise typer.BadParameter(f"{text!r} is no shape; expected lengths such as 3,4", param_hint="--shape")
    return lengths
