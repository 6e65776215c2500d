"""`polyhal explain`: the kernels that an op runs as on a device, and reasons for declined ones."""

from __future__ import annotations

from typing import Annotated

import typer

from polyhal.cli.reporting import reported


@reported
def explain(
    op: Annotated[str, typer.Argument(help="The op, for example [bold]layer_norm[/].")],
    device: Annotated[str | None, typer.Option(help="The device. Default: the default device.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="The shape of one input, as in [bold]--shape 3,4[/]. Repeat it for each input."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="The dtype of the inputs.")] = "float32",
) -> None:
    """Show the kernels that an op runs as on a device, and the reasons for declined ones."""
    from polyhal.hal.dtypes import as_dtype
    from polyhal.hal.system.diagnostics.explain_op import explain as resolve

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
    """Parse a shape such as `3,4`. The empty string is the shape of a scalar. Raises BadParameter."""
    try:
        lengths = tuple(int(length) for length in text.split(",") if length.strip())
    except ValueError:
        lengths = (-1,)
    if any(n < 0 for n in lengths):
        raise typer.BadParameter(f"{text!r} is not a shape; expected lengths such as 3,4", param_hint="--shape")
    return lengths
