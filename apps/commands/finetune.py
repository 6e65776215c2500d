"""`polyhal finetune`: the options of fine-tuning a language model. `polyhal.commands.finetune_run` carries it out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.reporting import INTERRUPTED, reported
from polyhal.commands.language_options import DeviceName, WeightDType

_training = partial(typer.Option, rich_help_panel="Training")
_adapters = partial(typer.Option, rich_help_panel="Adapters")
_data = partial(typer.Option, rich_help_panel="Data")
_run = partial(typer.Option, rich_help_panel="Run")


@reported
def finetune(
    call: typer.Context,
    model: Annotated[
        Path | None, typer.Argument(help="A folder of Hugging Face's form, or a GGUF file.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="JSON lines: conversations as messages, prompts with completions, or texts; or a plain text file.",
            show_default=False,
        ),
    ] = None,
    lora: Annotated[
        str, _adapters(help="Settings of the adapters: [bold]r=16,alpha=32,dropout=0.05[/]; alpha is r by default.")
    ] = "r=16",
    targets: Annotated[
        str | None,
        _adapters(
            help="Layers with adapters, such as [bold]q_proj,v_proj[/]. Default: all linear layers but the last."
        ),
    ] = None,
    epochs: Annotated[float, _training(help="Passes over the data, unless --steps is given.")] = 1.0,
    steps: Annotated[int | None, _training(help="Optimizer steps.")] = None,
    batch_size: Annotated[int, _training(help="Rows of tokens in a batch.")] = 4,
    accumulate: Annotated[int, _training(help="Batches whose gradients are added up for one step.")] = 1,
    lr: Annotated[float, _training(help="The peak learning rate.")] = 2e-4,
    warmup: Annotated[int, _training(help="Steps until the peak learning rate.")] = 10,
    schedule: Annotated[str, _training(help="After the warm-up: cosine, linear or constant.")] = "cosine",
    weight_decay: Annotated[float, _training(help="Weight decay of AdamW.")] = 0.0,
    clip: Annotated[float, _training(help="Largest gradient norm; 0 turns clipping off.")] = 1.0,
    seed: Annotated[int, _training(help="Seed of adapters, data order and dropout.")] = 0,
    context: Annotated[
        int | None,
        _data(
            help="Tokens of a row; longer conversations are cut, longer texts continued. Default: 512, or the model's."
        ),
    ] = None,
    packing: Annotated[bool, _data(help="Put several short records into a row.")] = True,
    learn_all: Annotated[bool, _data("--learn-all", help="Learn all tokens, also of questions and prompts.")] = False,
    special_tokens: Annotated[
        bool,
        _data("--special-tokens", help="Names of special tokens in the data are these tokens, and not ordinary text."),
    ] = False,
    device: DeviceName = None,
    dtype: WeightDType = None,
    save_dir: Annotated[Path | None, _run(help="The folder of the run. Default: runs/MODEL-DATA.")] = None,
    save_every: Annotated[int, _run(help="Steps between checkpoints.")] = 100,
    resume: Annotated[bool, _run("--resume", help="Continue the run in --save-dir, with its settings.")] = False,
    overwrite: Annotated[bool, _run("--overwrite", help="Replace the run in the folder.")] = False,
    stop_after: Annotated[int | None, _run(help="Save and stop after this many steps of this call.")] = None,
    tensorboard: Annotated[Path | None, _run(help="Also write events for TensorBoard to this folder.")] = None,
    merge: Annotated[
        Path | None, _run(help="After the last step, write the model with the adapters in its weights to this folder.")
    ] = None,
) -> None:
    """Fine-tune a language model with low-rank adapters (LoRA), on the best device of this machine.

    The weights stay as they are, also quantised ones (QLoRA). The adapters are saved in PEFT's form. Ctrl-C saves the run and
    prints the command that resumes it; a second Ctrl-C quits at once.
    """
    from polyhal.commands import finetune_run

    for name, value, least in (
        ("--save-every", save_every, 1),
        ("--stop-after", stop_after, 1),
        ("--context", context, 2),
    ):
        if value is not None and value < least:
            raise typer.BadParameter(f"{name} is {value}; expected {least} or more")
    if resume and overwrite:
        raise typer.BadParameter("--resume continues a run and --overwrite replaces it; expected one of them")
    if resume:
        if save_dir is None:
            raise typer.BadParameter("--resume needs --save-dir, the folder of the run")
        job = finetune_run.recorded(save_dir)
        sources = {name: call.get_parameter_source(name) for name in call.params}
        stated = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
        finetune_run.check_unchanged(job, {name: call.params[name] for name in stated}, save_dir)
    else:
        if model is None or data is None:
            missing = "the data is" if model is not None else "the model and the data are"
            raise typer.BadParameter(f"{missing} missing; expected polyhal finetune MODEL DATA")
        job = finetune_run.FinetuneJob(
            model=str(model.resolve()),
            data=str(data.resolve()),
            lora=finetune_run.lora_settings(lora, targets, str(model)),
            epochs=epochs,
            steps=steps,
            batch_size=batch_size,
            accumulate=accumulate,
            lr=lr,
            warmup=warmup,
            schedule=schedule,
            weight_decay=weight_decay,
            clip=clip,
            seed=seed,
            context=context,
            packing=packing,
            learn_all=learn_all,
            special_tokens=special_tokens,
            dtype=dtype,
        )
    folder = finetune_run.folder_of(job, save_dir)
    if not finetune_run.run(
        job,
        folder,
        device,
        resume=resume,
        overwrite=overwrite,
        save_every=save_every,
        stop_after=stop_after,
        merge=merge,
        tensorboard=tensorboard,
    ):
        raise typer.Exit(INTERRUPTED)
