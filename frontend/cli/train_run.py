"""A training run from the command line: what it prints, in which folder it lives, how it is stopped."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from polyhal import training
from polyhal.cli.stop_request import StopRequest
from polyhal.cli.views.train_progress import duration, make_display
from polyhal.hal.device import Device
from polyhal.hal.discovery.registry import registry
from polyhal.hal.errors import message
from polyhal.training import Corpus, OptionError, RunFolder, Session
from polyhal.training import corpus as texts
from polyhal.training.folder import fresh, latest, writing
from polyhal.training.metrics import draw_losses

_RUNS = Path("runs")


def run(
    given: Mapping[str, Any], *, resume: bool, overwrite: bool, stop_after: int | None, eager: bool = False
) -> bool:
    """Carry out `polyhal train` with the settings in `given`. False if a signal ended it early, all saved.

    Raises the errors of preparing and running a session.
    """
    console = Console(highlight=False)
    wanted = dict(given)
    text, device_name, save_dir = (_text(name, wanted.pop(name, None)) for name in ("text", "device", "save_dir"))
    # A run that is resumed by its folder knows where its text is.
    known = resume and save_dir is not None and text is None
    corpus = None if known else texts.read(Path(text) if text is not None else None)
    folder = _folder(save_dir, corpus, resume=resume, overwrite=overwrite)
    device = Device(device_name)
    _say(console, f"device: {_reason(device, device_name)}")
    begin = time.perf_counter()
    with StopRequest() as stop:
        session = _prepare(corpus, wanted, device, folder, resume=resume, overwrite=overwrite, eager=eager)
        _introduce(console, session)
        limit = session.trainer.done + stop_after if stop_after is not None else None

        def stopping() -> bool:
            return stop() or session.trainer.done == limit

        with make_display(console, session) as display:
            finished = session.run(display, stopping)
        _draw(console, session)
    if finished:
        _conclude(console, session, device_name, time.perf_counter() - begin)
    else:
        _explain_resuming(console, session, device_name)
    return finished or not stop.requested


def _text(name: str, value: Any) -> str | None:
    """A path or name, which a configuration file might have as something else."""
    if value is not None and not isinstance(value, (str, Path)):
        raise OptionError(message(None, f"{name} is {value!r}", expected="text"))
    return None if value is None else str(value)


def _folder(save_dir: str | None, corpus: Corpus | None, *, resume: bool, overwrite: bool) -> RunFolder:
    """The folder that was named, or the one under runs/ that the text's name and the wish lead to."""
    if save_dir is not None:
        return RunFolder(Path(save_dir))
    assert corpus is not None
    if resume:
        return latest(_RUNS, corpus.name)
    return RunFolder(_RUNS / corpus.name) if overwrite else fresh(_RUNS, corpus.name)


def _prepare(
    corpus: Corpus | None,
    given: Mapping[str, Any],
    device: Device,
    folder: RunFolder,
    *,
    resume: bool,
    overwrite: bool,
    eager: bool,
) -> Session:
    """A session that can run. An earlier run in the folder goes only when nothing can be wrong with the new one."""
    if resume:
        return training.resume(corpus, given, device, folder, eager=eager)
    assert corpus is not None
    folder.check(overwrite=overwrite)
    session = training.start(corpus, given, device, folder, eager=eager)
    folder.claim(overwrite=overwrite)
    return session


def _say(console: Console, line: str, style: str = "") -> None:
    """One line, as it is: paths stay whole, so that they can be copied and searched for."""
    console.print(line, style=style, markup=False, soft_wrap=True)


def _reason(device: Device, name: str | None) -> str:
    """The device and why it is this one."""
    if name is not None:
        return f"{device.name} ({device.info.name}), because --device {name} asks for it"
    return registry().explain_default()


def _introduce(console: Console, session: Session) -> None:
    """What is going to happen."""
    o, trainer, corpus = session.trainer.options, session.trainer, session.corpus
    source = "the sources of Python's standard library" if corpus.source == texts.LIBRARY else corpus.source
    vocabulary = f"{session.tokenizer.vocab_size} tokens ({o.tokenizer})"
    _say(console, f"text: {source}, {len(corpus.text):,} characters, {vocabulary}")
    sizes = f"{o.layers} layers, {o.heads} heads, width {o.width}, context {o.context}"
    _say(console, f"model: GPT with {trainer.model.count_parameters():,} parameters ({sizes})")
    _say(
        console,
        f"training: {o.steps} steps of {o.tokens_per_step:,} tokens ({o.steps / trainer.steps_per_epoch:.2f} epochs), "
        f"learning rate {o.lr:g} ({o.schedule}), seed {o.seed}",
    )
    _say(console, f"run: {session.folder.path}" + (f", going on from step {trainer.done}" if trainer.done else ""))


def _draw(console: Console, session: Session) -> None:
    """Draw the losses if that is possible and there are any."""
    rows = session.folder.metrics.rows()
    if not rows:
        return
    try:
        with writing(session.folder.picture):
            draw_losses(rows, session.folder.picture, f"polyhal train: {session.corpus.name}")
    except ImportError:
        _say(console, "no picture of the losses: matplotlib is missing; install it with pip install 'polyhal[plot]'")


def _conclude(console: Console, session: Session, device: str | None, seconds: float) -> None:
    """What came of it and what to type next."""
    folder = session.folder
    rows = folder.metrics.rows()
    measured = [r.val_loss for r in rows if r.val_loss is not None]
    figures = f"training loss {rows[-1].loss:.4f}" if rows else "no steps were left to take"
    if measured:
        figures += f", validation loss {measured[-1]:.4f} (best {min(measured):.4f}) nats per token"
    _say(console, f"done in {duration(seconds)}: {figures}", "bold green")
    kept = {
        "best model": folder.best,
        "last state": folder.last,
        "figures": folder.metrics.path,
        "losses": folder.picture,
    }
    for what, path in kept.items():
        if path.exists():
            _say(console, f"  {what}: {path}")
    prompt = shlex.quote(session.prompt())
    _say(
        console, f"generate text with: polyhal generate {shlex.quote(str(folder.path))} --prompt {prompt}{_on(device)}"
    )


def _explain_resuming(console: Console, session: Session, device: str | None) -> None:
    """How to go on."""
    trainer, folder = session.trainer, session.folder
    _say(
        console,
        f"stopped after step {trainer.done} of {trainer.options.steps}; everything is saved in {folder.last}",
        "bold",
    )
    _say(console, f"resume with: polyhal train --resume --save-dir {shlex.quote(str(folder.path))}{_on(device)}")


def _on(device: str | None) -> str:
    return f" --device {shlex.quote(device)}" if device is not None else ""
