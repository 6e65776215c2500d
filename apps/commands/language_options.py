"""Arguments and options that commands for language models share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.completion import device_names

if TYPE_CHECKING:
    from polyhal.generation import TokenStream
    from polyhal.llm import LanguageModel

ModelPath = Annotated[
    Path, typer.Argument(help="A folder of Hugging Face's form, or a GGUF file.", metavar="MODEL", show_default=False)
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        "--context", help="The largest number of tokens of a prompt with its answer. Default: 8192, or the model's."
    ),
]
WeightDType = Annotated[
    str | None, typer.Option("--dtype", help="The dtype of weights that are not quantised. Default: the file's.")
]
CacheDType = Annotated[
    str | None,
    typer.Option(
        "--cache-dtype",
        help="The dtype of keys and values of earlier tokens: float32, float16, bfloat16, or int8, which takes half of their "
        "memory. Default: the dtype of the weights.",
    ),
]
AdapterFolder = Annotated[
    Path | None,
    typer.Option("--adapter", help="A folder of low-rank adapters, as [bold]polyhal finetune[/] and PEFT write them."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        autocompletion=device_names,
        help="The device, for example [bold]opencl:1[/] or [bold]numpy[/]. Default: the fastest one.",
    ),
]
DraftPath = Annotated[
    Path | None,
    typer.Option(
        "--draft", help="A smaller language model with the same tokens, which proposes tokens: speculative decoding."
    ),
]
LookupFlag = Annotated[
    bool, typer.Option("--lookup", help="Propose tokens that followed the same words before: speculative decoding.")
]


def load_for_answers(
    path: Path,
    device: str | None,
    dtype: str | None,
    context: int | None,
    adapter: Path | None,
    draft: Path | None,
    lookup: bool,
    cache_dtype: str | None,
    sequences: int = 1,
) -> LanguageModel:
    """Load a model that is to write text, by the options that commands share. Raises BadParameter, and errors of `load`."""
    if draft is not None and lookup:
        raise typer.BadParameter("--draft and --lookup are two sources of proposed tokens; expected one of them")
    from polyhal.llm import load

    return load(path, device, dtype, context, adapter, draft=draft, sequences=sequences, cache_dtype=cache_dtype)


def speed(tokens: TokenStream, seconds: float) -> str:
    """Describe the speed of an answer, and how many proposed tokens it has."""
    count = len(tokens.tokens)
    text = f"{count} {'token' if count == 1 else 'tokens'}, {count / max(seconds, 1e-9):.1f} per second"
    return f"{text}; {tokens.accepted} of {tokens.proposed} proposed tokens kept" if tokens.proposed else text
