"""`polyhal explain`: how a public name runs on a device: its ops, their kernels, and reasons for declined ones."""

from __future__ import annotations

from typing import Annotated

import typer

from polyhal.cli.completion import device_names, public_names
from polyhal.cli.display import Json, print_json, say_wrapped
from polyhal.cli.reporting import reported


@reported
def explain(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=public_names,
            help="A name, for example [bold]layer_norm[/], [bold]eigh[/] or [bold]nn.LSTM[/].",
        ),
    ],
    device: Annotated[
        str | None, typer.Option(autocompletion=device_names, help="The device. Default: the default device.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="The shape of one input, as in [bold]--shape 3,4[/]. Repeat it for each input."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="The dtype of the inputs.")] = "float32",
    json: Json = False,
) -> None:
    """Show how a public name runs on a device: the kernels of an op, and the reasons for declined ones.

    Of a function, a module or an optimizer, the ops that its code may call are shown.
    """
    from polyhal.explanation import explanation
    from polyhal.hal.dtypes import as_dtype

    shapes = [_shape(text) for text in shape or []]
    try:
        kind = as_dtype(dtype)
    except TypeError as error:
        raise typer.BadParameter(str(error), param_hint="--dtype") from None
    try:
        found = explanation(name, device, *shapes, dtype=kind)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="NAME") from None
    if json:
        print_json("explain", found.to_json())
    else:
        from rich.console import Console

        console = Console(highlight=False)
        for line in str(found).splitlines():
            say_wrapped(console, line)


def _shape(text: str) -> tuple[int, ...]:
    """Parse a shape such as `3,4`. The empty string is the shape of a scalar. Raises BadParameter."""
    try:
        lengths = tuple(int(length) for length in text.split(",") if length.strip())
    except ValueError:
        lengths = (-1,)
    if any(n < 0 for n in lengths):
        raise typer.BadParameter(f"{text!r} is not a shape; expected lengths such as 3,4", param_hint="--shape")
    return lengths
