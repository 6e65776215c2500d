"""`polyhal generate`: text from a trained model, shown as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from polyhal.text import Tokenizer


@reported
def generate(
    checkpoint: Annotated[
        Path, typer.Argument(help="A run's folder, or its [bold]best[/] or [bold]last[/] inside.", show_default=False)
    ],
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "\n",
    max_tokens: Annotated[int, typer.Option(help="How many tokens to write at most.")] = 500,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token; higher is wilder.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw from this many of the likeliest tokens only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest tokens that have this probability together.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed writes the same text; random if not given.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to compute, for instance [bold]opencl:1[/] or [bold]numpy[/].")
    ] = None,
) -> None:
    """Continue a prompt with a trained model, streaming the text."""
    from polyhal.hal.device import Device
    from polyhal.models import Sampling, stream
    from polyhal.training import load_model

    try:
        Sampling(temperature, top_k, top_p)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if max_tokens < 0:
        raise typer.BadParameter(f"{max_tokens} tokens cannot be written", param_hint="--max-tokens")
    if seed is not None and not 0 <= seed < 2**63:
        raise typer.BadParameter(f"{seed} is no seed; expected 0 to 2**63 - 1", param_hint="--seed")
    if not prompt:
        raise typer.BadParameter("the prompt is empty; give it at least one character", param_hint="--prompt")
    path = find_checkpoint(checkpoint)
    loaded = load_model(path, Device(device))
    ids = loaded.tokenizer.encode(prompt)
    sys.stdout.write(prompt)
    tokens = stream(loaded.model, ids, max_tokens, temperature, top_k, top_p, seed, [loaded.tokenizer.pad_id])
    for piece in pieces(loaded.tokenizer, tokens):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that a path stands for: itself, or the better one of a run's folder. Raises BadParameter."""
    if not path.exists():
        raise typer.BadParameter(f"there is no checkpoint {path}", param_hint="CHECKPOINT")
    if path.is_dir() and not (path / "state.json").exists():
        found = next((path / name for name in ("best", "last") if (path / name).exists()), None)
        if found is None:
            raise typer.BadParameter(f"{path} holds neither a checkpoint nor a run", param_hint="CHECKPOINT")
        return found
    return path


def pieces(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """Tokens as text, as soon as they make whole characters: one may be spread over several byte-level tokens."""
    longest = 4  # bytes of a character in UTF-8
    pending: list[int] = []
    for token in tokens:
        pending.append(token)
        text = tokenizer.decode(pending)
        if not text.endswith("\ufffd") or len(pending) >= longest:
            yield text
            pending = []
    if pending:
        yield tokenizer.decode(pending)
