"""Arguments and options that commands for language models share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
AdapterFolder = Annotated[
    Path | None,
    typer.Option("--adapter", help="A folder of low-rank adapters, as [bold]polyhal finetune[/] and PEFT write them."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device", help="The device, for example [bold]opencl:1[/] or [bold]numpy[/]. Default: the fastest one."
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
