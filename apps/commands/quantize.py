"""`polyhal quantize`: a GGUF file of a model, with weights of fewer bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.display import Json
from polyhal.cli.reporting import reported


@reported
def quantize(
    source: Annotated[
        Path, typer.Argument(help="A folder of Hugging Face's form, or a GGUF file.", show_default=False)
    ],
    target: Annotated[Path, typer.Argument(help="The GGUF file to write.", show_default=False)],
    kind: Annotated[
        str,
        typer.Option("--type", help="The type, such as [bold]q8_0[/], [bold]q4_k_m[/], [bold]q4_0[/], [bold]f16[/]."),
    ] = "q4_k_m",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Write a model with weights of fewer bits, in the mixtures of formats that llama.cpp uses.

    A folder's settings, tokenizer and chat templates become metadata. The file appears when it is complete. Its source should
    have floats: quantising twice adds errors.
    """
    from rich.console import Console

    from polyhal.cli.display import memory, print_json, say_wrapped, status_line
    from polyhal.hal.errors import SettingError, message
    from polyhal.llm import quantize as write

    if target.is_file() and not overwrite and not (source.exists() and target.samefile(source)):
        raise SettingError(message(None, f"{target} exists", fix="use --overwrite to replace it, or another name"))
    console = Console(highlight=False, stderr=json)
    with status_line(console, f"reading {source}") as show:
        notes = write(source, target, kind, lambda done, count, name: show(f"{done} of {count} tensors  {name}"))
    weights = source.glob("*.safetensors") if source.is_dir() else [source]
    before, after = sum(file.stat().st_size for file in weights), target.stat().st_size
    if json:
        print_json("quantize", {"file": target, "type": kind, "bytes": after, "source_bytes": before, "notes": notes})
        return
    say_wrapped(console, f"{target}: {memory(after)}, {after / before:.0%} of {memory(before)}")
    for note in notes:
        say_wrapped(console, f"note: {note}")
