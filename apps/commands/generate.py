"""`polyhal generate`: generate text with a trained model, and stream it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.reporting import reported


@reported
def generate(
    checkpoint: Annotated[
        Path,
        typer.Argument(help="The folder of a run, or [bold]best[/] or [bold]last[/] inside it.", show_default=False),
    ],
    prompt: Annotated[
        str, typer.Option(help="The text to continue. Default: a line break.", show_default=False)
    ] = "\n",
    max_tokens: Annotated[int, typer.Option(help="The largest number of tokens to generate.")] = 500,
    temperature: Annotated[
        float, typer.Option(help="0 always takes the most likely token; higher is more random.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Sample only from this many of the most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample only from the most likely tokens whose probabilities add up to this."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed; equal seeds generate equal text. Default: random.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="The device, for example [bold]opencl:1[/] or [bold]numpy[/].")
    ] = None,
) -> None:
    """Continue a prompt with a trained model, streaming the text."""
    from polyhal import Device
    from polyhal.models import Sampling, stream
    from polyhal.text import decode_stream, without_text
    from polyhal.training import load_model

    try:
        Sampling(temperature, top_k, top_p)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if max_tokens < 0:
        raise typer.BadParameter(f"--max-tokens is {max_tokens}; expected 0 or more")
    if seed is not None and not 0 <= seed < 2**63:
        raise typer.BadParameter(f"--seed is {seed}; expected 0 to 2**63 - 1")
    if not prompt:
        raise typer.BadParameter("the prompt is empty; expected at least one character", param_hint="--prompt")
    path = _find_checkpoint(checkpoint)
    loaded = load_model(path, Device(device))
    ids = loaded.tokenizer.encode(prompt)
    sys.stdout.write(prompt)
    stop = [loaded.tokenizer.pad_id]
    excluded = [i for i in without_text(loaded.tokenizer) if i not in stop]
    tokens = stream(loaded.model, ids, max_tokens, temperature, top_k, top_p, seed, stop, excluded_ids=excluded)
    for text in decode_stream(loaded.tokenizer, tokens):
        sys.stdout.write(text)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _find_checkpoint(path: Path) -> Path:
    """Return the checkpoint at `path`, or the best one in a run's folder. Raises BadParameter."""
    if not path.exists():
        raise typer.BadParameter(f"checkpoint {path} does not exist", param_hint="CHECKPOINT")
    if path.is_dir() and not (path / "state.json").exists():
        checkpoint = next((path / name for name in ("best", "last") if (path / name).exists()), None)
        if checkpoint is None:
            raise typer.BadParameter(f"{path} contains neither a checkpoint nor a run", param_hint="CHECKPOINT")
        return checkpoint
    return path
