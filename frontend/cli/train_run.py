"""A training run from the command line: its folder, what it prints, and how it is interrupted."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from polyhal import training
from polyhal.cli.display import duration, say
from polyhal.cli.stop_request import StopRequest
from polyhal.cli.views.train_progress import train_progress
from polyhal.hal.device import Device
from polyhal.hal.discovery.registry import registry
from polyhal.hal.errors import message
from polyhal.training import Corpus, OptionError, RunFolder, Session
from polyhal.training import corpus as texts
from polyhal.training.folder import fresh, latest, writing
from polyhal.training.metrics import draw_losses

_RUNS = Path("runs")


def run(
    options: Mapping[str, Any], *, resume: bool, overwrite: bool, stop_after: int | None, eager: bool = False
) -> bool:
    """Carry out `polyhal train` with `options`. Returns False if a signal ended it early, with everything saved.

    Raises the errors of preparing and running a session.
    """
    console = Console(highlight=False)
    train_options = dict(options)
    text, device_name, save_dir = (
        _as_text(name, train_options.pop(name, None)) for name in ("text", "device", "save_dir")
    )
    # A run that is resumed by its folder records where its text is.
    text_is_recorded = resume and save_dir is not None and text is None
    corpus = None if text_is_recorded else texts.read(Path(text) if text is not None else None)
    folder = _run_folder(save_dir, corpus, resume=resume, overwrite=overwrite)
    device = Device(device_name)
    say(console, f"device: {_why_device(device, device_name)}")
    begin = time.perf_counter()
    with StopRequest() as stop:
        session = _prepare(corpus, train_options, device, folder, resume=resume, overwrite=overwrite, eager=eager)
        _print_plan(console, session)
        limit = session.trainer.done + stop_after if stop_after is not None else None

        def stopping() -> bool:
            return stop() or session.trainer.done == limit

        with train_progress(console, session) as progress:
            finished = session.run(progress, stopping)
        _draw_losses(console, session)
    if finished:
        _print_summary(console, session, device_name, time.perf_counter() - begin)
    else:
        _print_how_to_resume(console, session, device_name)
    return finished or not stop.requested


def _as_text(name: str, value: Any) -> str | None:
    """A path or name, which a configuration file may give as another type. Raises OptionError."""
    if value is not None and not isinstance(value, (str, Path)):
        raise OptionError(message(None, f"{name} is {value!r}", expected="text"))
    return None if value is None else str(value)


def _run_folder(save_dir: str | None, corpus: Corpus | None, *, resume: bool, overwrite: bool) -> RunFolder:
    """The folder given by --save-dir, or else one under runs/ that is named after the text."""
    if save_dir is not None:
        return RunFolder(Path(save_dir))
    assert corpus is not None
    if resume:
        return latest(_RUNS, corpus.name)
    return RunFolder(_RUNS / corpus.name) if overwrite else fresh(_RUNS, corpus.name)


def _prepare(
    corpus: Corpus | None,
    options: Mapping[str, Any],
    device: Device,
    folder: RunFolder,
    *,
    resume: bool,
    overwrite: bool,
    eager: bool,
) -> Session:
    """Prepare a session. An earlier run in the folder is deleted only once the new one is known to be valid."""
    if resume:
        return training.resume(corpus, options, device, folder, eager=eager)
    assert corpus is not None
    folder.check(overwrite=overwrite)
    session = training.start(corpus, options, device, folder, eager=eager)
    folder.claim(overwrite=overwrite)
    return session


def _why_device(device: Device, name: str | None) -> str:
    """The device and why it was chosen."""
    if name is not None:
        return f"{device.name} ({device.info.name}), chosen by --device {name}"
    return registry().explain_default()


def _print_plan(console: Console, session: Session) -> None:
    """Print what is about to be trained on what."""
    o, trainer, corpus = session.trainer.options, session.trainer, session.corpus
    source = "the sources of Python's standard library" if corpus.source == texts.LIBRARY else corpus.source
    vocabulary = f"{session.tokenizer.vocab_size} tokens ({o.tokenizer})"
    say(console, f"text: {source}, {len(corpus.text):,} characters, {vocabulary}")
    sizes = f"layers {o.layers}, heads {o.heads}, width {o.width}, context {o.context}"
    say(console, f"model: GPT with {trainer.model.count_parameters():,} parameters ({sizes})")
    say(
        console,
        f"training: {o.steps} steps of {o.tokens_per_step:,} tokens ({o.steps / trainer.steps_per_epoch:.2f} epochs), "
        f"learning rate {o.lr:g} ({o.schedule}), seed {o.seed}",
    )
    say(console, f"run: {session.folder.path}" + (f", resuming after step {trainer.done}" if trainer.done else ""))


def _draw_losses(console: Console, session: Session) -> None:
    """Draw the loss curves, if there are any and matplotlib is installed."""
    rows = session.folder.metrics.rows()
    if not rows:
        return
    try:
        with writing(session.folder.picture):
            draw_losses(rows, session.folder.picture, f"polyhal train: {session.corpus.name}")
    except ImportError:
        say(console, "the losses are not plotted: matplotlib is missing; run pip install 'polyhal[plot]'")


def _print_summary(console: Console, session: Session, device: str | None, seconds: float) -> None:
    """Print the results, the files, and the command that generates text."""
    folder = session.folder
    rows = folder.metrics.rows()
    val_losses = [r.val_loss for r in rows if r.val_loss is not None]
    figures = f"training loss {rows[-1].loss:.4f}" if rows else "no steps were left to take"
    if val_losses:
        figures += f", validation loss {val_losses[-1]:.4f} (best {min(val_losses):.4f}) nats per token"
    say(console, f"done in {duration(seconds)}: {figures}", "bold green")
    files = {
        "best model": folder.best,
        "last checkpoint": folder.last,
        "metrics": folder.metrics.path,
        "loss curves": folder.picture,
    }
    for title, path in files.items():
        if path.exists():
            say(console, f"  {title}: {path}")
    prompt = shlex.quote(session.prompt())
    command = f"polyhal generate {shlex.quote(str(folder.path))} --prompt {prompt}{_device_option(device)}"
    say(console, f"generate text with: {command}")


def _print_how_to_resume(console: Console, session: Session, device: str | None) -> None:
    trainer, folder = session.trainer, session.folder
    stopped = f"stopped after step {trainer.done} of {trainer.options.steps}"
    say(console, f"{stopped}; everything is saved in {folder.last}", "bold")
    command = f"polyhal train --resume --save-dir {shlex.quote(str(folder.path))}{_device_option(device)}"
    say(console, f"resume with: {command}")


def _device_option(device: str | None) -> str:
    return f" --device {shlex.quote(device)}" if device is not None else ""
