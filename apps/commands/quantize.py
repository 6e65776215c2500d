"""`polyhal quantize`: a GGUF file with weights of fewer bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.reporting import reported


@reported
def quantize(
    source: Annotated[Path, typer.Argument(help="A GGUF file.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="The GGUF file to write.", show_default=False)],
    kind: Annotated[
        str,
        typer.Option("--type", help="The type, such as [bold]q8_0[/], [bold]q4_k_m[/], [bold]q4_0[/], [bold]f16[/]."),
    ] = "q4_k_m",
) -> None:
    """Write a model with weights of fewer bits, in the mixtures of formats that llama.cpp uses.

    The file appears when it is complete. Its source should have floats: quantising twice adds errors.
    """
    from rich.console import Console

    from polyhal.cli.display import memory, say_wrapped, status_line
    from polyhal.llm import quantize as write

    console = Console(highlight=False)
    with status_line(console, f"reading {source}") as show:
        write(source, target, kind, lambda done, count, name: show(f"{done} of {count} tensors  {name}"))
    before, after = source.stat().st_size, target.stat().st_size
    say_wrapped(console, f"{target}: {memory(after)}, {after / before:.0%} of {memory(before)}")
