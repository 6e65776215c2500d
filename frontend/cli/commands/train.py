"""`polyhal train`: a language model from a text, with one command. Here are its options; `train_run.py` carries it out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from polyhal.cli.reporting import INTERRUPTED, reported

_model = partial(typer.Option, rich_help_panel="Model")
_training = partial(typer.Option, rich_help_panel="Training")
_data = partial(typer.Option, rich_help_panel="Data")
_run = partial(typer.Option, rich_help_panel="Run")
_PLACES = frozenset({"text", "device", "save_dir"})
"""Settings of a configuration file that are no settings of the training itself."""
_TEXT = "A UTF-8 text file; the sources of Python's own standard library if not given."


@reported
def train(
    text: Annotated[Path | None, typer.Argument(help=_TEXT, show_default=False)] = None,
    layers: Annotated[int | None, _model(help="Transformer blocks.")] = None,
    heads: Annotated[int | None, _model(help="Attention heads in each block.")] = None,
    width: Annotated[int | None, _model(help="Numbers per token inside the model; a multiple of the heads.")] = None,
    context: Annotated[int | None, _model(help="Tokens that the model sees at once.")] = None,
    dropout: Annotated[float | None, _model(help="Share of activations left out while training.")] = None,
    steps: Annotated[int | None, _training(help="Optimizer steps; two minutes' worth if not given.")] = None,
    epochs: Annotated[float | None, _training(help="Passes over the text, instead of steps.")] = None,
    batch_size: Annotated[int | None, _training(help="Windows of text in a batch.")] = None,
    accumulate: Annotated[int | None, _training(help="Batches whose gradients make one step.")] = None,
    lr: Annotated[float | None, _training(help="The highest learning rate.")] = None,
    warmup: Annotated[int | None, _training(help="Steps until the highest learning rate.")] = None,
    schedule: Annotated[str | None, _training(help="After the warm-up: cosine, linear or constant.")] = None,
    weight_decay: Annotated[float | None, _training(help="AdamW's pull of weights towards zero.")] = None,
    clip: Annotated[float | None, _training(help="The largest norm of the gradients; 0 for any.")] = None,
    seed: Annotated[int | None, _training(help="Decides weights, order of the data and dropout.")] = None,
    tokenizer: Annotated[str | None, _data(help="char, or bpe for byte-level byte-pair encoding.")] = None,
    vocabulary: Annotated[int | None, _data(help="Entries of the BPE tokenizer.")] = None,
    val_split: Annotated[float | None, _data(help="Share at the end of the text kept for validation.")] = None,
    device: Annotated[str | None, _run(help="Where to train, as `polyhal devices` names it.")] = None,
    save_dir: Annotated[Path | None, _run(help="The folder of the run; runs/NAME if not given.")] = None,
    resume: Annotated[bool, _run("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, _run("--overwrite", help="Replace the run in the folder.")] = False,
    eager: Annotated[bool, _run("--eager", help="Run every op by itself instead of capturing steps.")] = False,
    config: Annotated[Path | None, _run(help="A TOML file with settings; the command line wins.")] = None,
    stop_after: Annotated[int | None, _run(help="Save and stop after so many steps of this call.")] = None,
    log_every: Annotated[int | None, _run(help="Steps between figures.")] = None,
    eval_every: Annotated[int | None, _run(help="Steps between evaluations and checkpoints.")] = None,
    sample_every: Annotated[int | None, _run(help="Steps between samples; 0 for none.")] = None,
) -> None:
    """Train a GPT on a text file, on the best device of this machine.

    Without any option this takes about two minutes and shows what the model has learnt. Ctrl-C saves and says how to
    resume; a second Ctrl-C quits at once.
    """
    options = {
        "text": text, "layers": layers, "heads": heads, "width": width, "context": context, "dropout": dropout,
        "steps": steps, "epochs": epochs, "batch_size": batch_size, "accumulate": accumulate, "lr": lr,
        "warmup": warmup, "schedule": schedule, "weight_decay": weight_decay, "clip": clip, "seed": seed,
        "tokenizer": tokenizer, "vocabulary": vocabulary, "val_split": val_split, "device": device,
        "save_dir": save_dir, "log_every": log_every, "eval_every": eval_every, "sample_every": sample_every,
    }  # fmt: skip
    if resume and overwrite:
        raise typer.BadParameter("--resume continues a run and --overwrite replaces it; expected one of them")
    if stop_after is not None and stop_after < 1:
        raise typer.BadParameter(f"{stop_after} steps are too few; expected 1 or more", param_hint="--stop-after")
    from polyhal.cli.train_run import run

    if not run(_given(config, options), resume=resume, overwrite=overwrite, stop_after=stop_after, eager=eager):
        raise typer.Exit(INTERRUPTED)


def _given(config: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """What was asked for on the command line and in the configuration file, and nothing else."""
    from polyhal.cli import config_file
    from polyhal.training.preparation import GIVEN_NAMES

    file = config_file.read(config, GIVEN_NAMES | _PLACES) if config is not None else {}
    return config_file.merged(file, options)
