"""`polyhal train`: the options of a training run. `polyhal.commands.train_run` carries it out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.reporting import INTERRUPTED, reported

_model = partial(typer.Option, rich_help_panel="Model")
_training = partial(typer.Option, rich_help_panel="Training")
_data = partial(typer.Option, rich_help_panel="Data")
_run = partial(typer.Option, rich_help_panel="Run")
_RUN_OPTIONS = frozenset({"text", "device", "devices", "save_dir"})
"""Options that a configuration file may set in addition to the options of training itself."""
_TEXT = "A UTF-8 text file. Default: the sources of Python's standard library."
_DEVICES = "Several devices that train together, such as [bold]opencl:0,opencl:1[/], [bold]gpu*[/] or [bold]all[/]."
_COMPRESS = "Dtype of gradients between ranks of [bold]polyhal launch[/]: none (float32), bfloat16 or float16."


@reported
def train(
    text: Annotated[Path | None, typer.Argument(help=_TEXT, show_default=False)] = None,
    layers: Annotated[int | None, _model(help="Transformer blocks.")] = None,
    heads: Annotated[int | None, _model(help="Attention heads in each block.")] = None,
    width: Annotated[int | None, _model(help="Embedding size; a multiple of the number of heads.")] = None,
    context: Annotated[int | None, _model(help="Context length in tokens.")] = None,
    dropout: Annotated[float | None, _model(help="Fraction of activations dropped in training.")] = None,
    steps: Annotated[int | None, _training(help="Optimizer steps. Default: about two minutes' worth.")] = None,
    epochs: Annotated[float | None, _training(help="Passes over the text, instead of steps.")] = None,
    batch_size: Annotated[int | None, _training(help="Windows of text in a batch.")] = None,
    accumulate: Annotated[int | None, _training(help="Batches whose gradients are added up for one step.")] = None,
    lr: Annotated[float | None, _training(help="The peak learning rate.")] = None,
    warmup: Annotated[int | None, _training(help="Steps until the peak learning rate.")] = None,
    schedule: Annotated[str | None, _training(help="After the warm-up: cosine, linear or constant.")] = None,
    weight_decay: Annotated[float | None, _training(help="Weight decay of AdamW.")] = None,
    clip: Annotated[float | None, _training(help="Largest gradient norm; 0 turns clipping off.")] = None,
    compress: Annotated[str | None, _training(help=_COMPRESS)] = None,
    seed: Annotated[int | None, _training(help="Seed of weights, data order and dropout.")] = None,
    tokenizer: Annotated[str | None, _data(help="char, or bpe for byte-level byte-pair encoding.")] = None,
    vocabulary: Annotated[int | None, _data(help="Vocabulary size of the BPE tokenizer.")] = None,
    val_split: Annotated[float | None, _data(help="Fraction at the end of the text used for validation.")] = None,
    device: Annotated[
        str | None, _run(autocompletion=device_names, help="The device, as named by `polyhal devices`.")
    ] = None,
    devices: Annotated[str | None, _run(autocompletion=device_names, help=_DEVICES)] = None,
    save_dir: Annotated[Path | None, _run(help="The folder of the run. Default: runs/NAME.")] = None,
    resume: Annotated[bool, _run("--resume", help="Continue the run in the folder.")] = False,
    overwrite: Annotated[bool, _run("--overwrite", help="Replace the run in the folder.")] = False,
    eager: Annotated[bool, _run("--eager", help="Run op by op instead of capturing steps.")] = False,
    placement: Annotated[bool, _run("--placement", help="Show the activity of each of several devices.")] = False,
    config: Annotated[Path | None, _run(help="A TOML file with options; the command line takes precedence.")] = None,
    stop_after: Annotated[int | None, _run(help="Save and stop after this many steps of this call.")] = None,
    log_every: Annotated[int | None, _run(help="Steps between logged figures.")] = None,
    eval_every: Annotated[int | None, _run(help="Steps between evaluations and checkpoints.")] = None,
    sample_every: Annotated[int | None, _run(help="Steps between samples; 0 for none.")] = None,
    tensorboard: Annotated[Path | None, _run(help="Also write events for TensorBoard to this folder.")] = None,
) -> None:
    """Train a GPT on a text file, on the best device of this machine.

    Without options this takes about two minutes and shows text that the model generates. Ctrl-C saves the run and prints the
    command that resumes it; a second Ctrl-C quits at once.
    """
    options = {
        "text": text,
        "layers": layers,
        "heads": heads,
        "width": width,
        "context": context,
        "dropout": dropout,
        "steps": steps,
        "epochs": epochs,
        "batch_size": batch_size,
        "accumulate": accumulate,
        "lr": lr,
        "warmup": warmup,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "clip": clip,
        "compress": compress,
        "seed": seed,
        "tokenizer": tokenizer,
        "vocabulary": vocabulary,
        "val_split": val_split,
        "device": device,
        "devices": devices,
        "save_dir": save_dir,
        "log_every": log_every,
        "eval_every": eval_every,
        "sample_every": sample_every,
    }
    if resume and overwrite:
        raise typer.BadParameter("--resume continues a run and --overwrite replaces it; expected one of them")
    if stop_after is not None and stop_after < 1:
        raise typer.BadParameter(f"--stop-after is {stop_after}; expected 1 or more")
    from polyhal.commands.train_run import run

    chosen = _merge(config, options)
    if not run(
        chosen,
        resume=resume,
        overwrite=overwrite,
        stop_after=stop_after,
        eager=eager,
        placement=placement,
        tensorboard=tensorboard,
    ):
        raise typer.Exit(INTERRUPTED)


def _merge(config: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the configuration file or the command line sets."""
    from polyhal.commands import config_file
    from polyhal.training.preparation import GIVEN_NAMES

    file = config_file.read(config, GIVEN_NAMES | _RUN_OPTIONS) if config is not None else {}
    return config_file.merged(file, options)
