"""`polyhal merge`: write a model with an adapter in its weights."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.display import Json
from polyhal.cli.reporting import reported
from polyhal.commands.language_options import ModelPath, WeightDType

if TYPE_CHECKING:
    from rich.console import Console


@reported
def merge(
    model: ModelPath,
    adapter: Annotated[
        Path,
        typer.Argument(
            help="A folder of low-rank adapters, as [bold]polyhal finetune[/] and PEFT write them.", show_default=False
        ),
    ],
    target: Annotated[Path, typer.Argument(help="The folder to write, new or empty.", show_default=False)],
    dtype: WeightDType = None,
    json: Json = False,
) -> None:
    """Write a model with low-rank adapters added to its weights, as a folder of Hugging Face's form.

    Floats keep their dtype, and quantised weights become float16.
    """
    from rich.console import Console

    write_merged(Console(highlight=False, stderr=json), model, adapter, target, dtype, json=json)


def write_merged(
    console: Console, model: Path, adapter: Path, target: Path, dtype: str | None, *, json: bool = False
) -> None:
    """Write the folder, with its progress, and print its size and how to quantise it."""
    from polyhal.cli.display import memory, print_json, say, say_wrapped, status_line
    from polyhal.llm import merge_adapter, open_model

    with status_line(console, f"reading {model}") as show:
        merge_adapter(
            model, adapter, target, dtype, progress=lambda done, count, name: show(f"{done} of {count} tensors  {name}")
        )
    written = open_model(target)
    if json:
        print_json("merge", {"folder": target, "parameters": written.parameters, "bytes": written.nbytes})
        return
    say_wrapped(console, f"{target}: {written.parameters:,} weights with the adapter, {memory(written.nbytes)}")
    if not (model / "config.json").is_file():
        command = ["polyhal", "quantize", str(target), f"{target}.gguf", "--type", "q4_k_m"]
        say_wrapped(console, "Quantise it again with")
        say(console, f"  {shlex.join(command)}")
