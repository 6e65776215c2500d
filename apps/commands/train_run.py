"""A training run from the command line: its folder, its output, and its interruption."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from polyhal import Device, distributed, training
from polyhal.cli.chosen_devices import ChosenDevices, default_is_set
from polyhal.cli.display import duration, say, say_wrapped
from polyhal.cli.stop_request import StopRequest
from polyhal.commands.train_progress import train_progress
from polyhal.hal.errors import DeviceUnavailableError, SettingError, message
from polyhal.profiler import StepActivity
from polyhal.training import Corpus, OptionError, Ranks, RunFolder, Session
from polyhal.training import corpus as texts
from polyhal.training.checkpoint import describe
from polyhal.training.folder import fresh, latest, writing
from polyhal.training.metrics import draw_losses
from polyhal.utils.metrics import TensorBoard

_RUNS = Path("runs")


def run(
    options: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    stop_after: int | None,
    eager: bool = False,
    placement: bool = False,
    tensorboard: Path | None = None,
) -> bool:
    """Carry out `polyhal train` with `options`. Returns False if a signal ended it early; the run is then saved.

    Raises the errors of preparing and running a session.
    """
    ranks = Ranks.joined()
    console = Console(highlight=False, quiet=not ranks.first)
    train_options = dict(options)
    text, save_dir = (_as_text(name, train_options.pop(name, None)) for name in ("text", "save_dir"))
    named = train_options.pop("device", None), train_options.pop("devices", None)
    corpus, folder = _agreed_corpus_and_folder(ranks, text, save_dir, resume=resume, overwrite=overwrite)
    recorded = _recorded_devices(folder) if resume and named == (None, None) and ranks.size == 1 else None
    devices = recorded or ChosenDevices.of(*named)
    say_wrapped(console, f"{devices.explain()}{_of_ranks(ranks)}")
    begin = time.perf_counter()
    events = TensorBoard(tensorboard) if tensorboard is not None and ranks.first else None
    with events or nullcontext(), StopRequest() as stop, folder.reserved() if ranks.first else nullcontext():
        session = _prepare(
            corpus, train_options, devices.opened, folder, ranks, resume=resume, overwrite=overwrite, eager=eager
        )
        session.sinks = [events] if events is not None else []
        _print_plan(console, session)
        distributed.note_resume(["train", "--resume", "--save-dir", str(folder.path), *devices.option])
        if placement:
            session.trainer.activity = StepActivity()
        limit = session.trainer.done + stop_after if stop_after is not None else None

        def stopping() -> bool:
            return stop() or session.trainer.done == limit

        with train_progress(console, session) as progress:
            finished = session.run(progress, stopping)
        if ranks.first:
            _draw_losses(console, session)
    if session.trainer.activity is not None:
        say_wrapped(console, f"activity of the devices: {session.trainer.activity}")
    requested = ranks.any(bool(stop.requested))
    if not ranks.first:
        return finished or not requested
    if finished:
        _print_summary(console, session, devices, time.perf_counter() - begin)
    else:
        _print_how_to_resume(console, session, devices)
    return finished or not requested


def _agreed_corpus_and_folder(
    ranks: Ranks, text: str | None, save_dir: str | None, *, resume: bool, overwrite: bool
) -> tuple[Corpus | None, RunFolder]:
    """Return the text and folder that the first rank reads and chooses. The corpus is None if the folder records it."""
    corpus: Corpus | None = None
    path = ""
    if ranks.first:
        is_recorded = resume and save_dir is not None and text is None
        corpus = None if is_recorded else texts.read(Path(text) if text is not None else None)
        folder = _run_folder(save_dir, corpus, resume=resume, overwrite=overwrite)
        folder.require_last() if resume else folder.check(overwrite=overwrite)
        path = str(folder.path)
    content = ranks.agree(None if corpus is None else asdict(corpus))
    return None if content is None else Corpus(**content), RunFolder(Path(ranks.agree(path)))


def _recorded_devices(folder: RunFolder) -> ChosenDevices | None:
    """Return the devices of an earlier run, so that it continues bit-identically; None if one is missing on this machine.

    The default device may have changed since: it depends on measured speeds and on POLYHAL_DEVICE.
    """
    recorded = describe(folder.last).devices
    if not recorded or default_is_set():
        return None
    names = [name for name, _ in recorded]
    try:
        devices = ChosenDevices.of(*((names[0], None) if len(names) == 1 else (None, names)))
    except (SettingError, DeviceUnavailableError):
        return None
    return devices if [d.info.name for d in devices.opened] == [reported for _, reported in recorded] else None


def _as_text(name: str, value: Any) -> str | None:
    """Return a path or name, which may have another type in a configuration file. Raises OptionError."""
    if value is not None and not isinstance(value, (str, Path)):
        raise OptionError(message(None, f"{name} is {value!r}", expected="text"))
    return None if value is None else str(value)


def _run_folder(save_dir: str | None, corpus: Corpus | None, *, resume: bool, overwrite: bool) -> RunFolder:
    """Return the folder given by --save-dir, or else one under runs/ that is named after the text."""
    if save_dir is not None:
        return RunFolder(Path(save_dir))
    assert corpus is not None
    if resume:
        return latest(_RUNS, corpus.name)
    return RunFolder(_RUNS / corpus.name) if overwrite else fresh(_RUNS, corpus.name)


def _prepare(
    corpus: Corpus | None,
    options: Mapping[str, Any],
    devices: Sequence[Device],
    folder: RunFolder,
    ranks: Ranks,
    *,
    resume: bool,
    overwrite: bool,
    eager: bool,
) -> Session:
    """Prepare a session. An earlier run in the folder is deleted only after the new one is validated."""
    if resume:
        return training.resume(corpus, options, devices, folder, eager=eager, ranks=ranks)
    assert corpus is not None
    session = training.start(corpus, options, devices, folder, eager=eager, ranks=ranks)
    if ranks.first:
        folder.claim(overwrite=overwrite)
    ranks.group.barrier()
    return session


def _of_ranks(ranks: Ranks) -> str:
    """Describe the number of processes."""
    return f"; {ranks.size} ranks, each with its part of every batch" if ranks.size > 1 else ""


def _print_plan(console: Console, session: Session) -> None:
    """Print the model, the text and the devices of the run."""
    o, trainer, corpus = session.trainer.options, session.trainer, session.corpus
    source = "the sources of Python's standard library" if corpus.source == texts.LIBRARY else corpus.source
    vocabulary = f"{session.tokenizer.vocab_size} tokens ({o.tokenizer})"
    say_wrapped(console, f"text: {source}, {len(corpus.text):,} characters, {vocabulary}")
    sizes = f"layers {o.layers}, heads {o.heads}, width {o.width}, context {o.context}"
    say_wrapped(console, f"model: GPT with {trainer.model.count_parameters():,} parameters ({sizes})")
    say_wrapped(
        console,
        f"training: {o.steps} steps of {o.tokens_per_step:,} tokens ({o.steps / trainer.steps_per_epoch:.2f} epochs), "
        f"learning rate {o.lr:g} ({o.schedule}), seed {o.seed}",
    )
    if trainer.parallel is not None:
        counts = zip(trainer.devices, trainer.parallel.counts(o.batch_size // trainer.ranks.size), strict=True)
        parts = ", ".join(f"{device.name} {n}" for device, n in counts)
        say_wrapped(console, f"shares: of the {o.batch_size} windows in a batch, {parts}")
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
        say_wrapped(console, 'the losses are not plotted: matplotlib is missing; run pip install "polyhal[plot]"')


def _print_summary(console: Console, session: Session, devices: ChosenDevices, seconds: float) -> None:
    """Print the results, the files, and the command that generates text."""
    folder = session.folder
    rows = folder.metrics.rows()
    val_losses = [r.val_loss for r in rows if r.val_loss is not None]
    figures = f"training loss {rows[-1].loss:.4f}" if rows else "no steps were left"
    if val_losses:
        figures += f", validation loss {val_losses[-1]:.4f} (best {min(val_losses):.4f}) nats per token"
    say_wrapped(console, f"done in {duration(seconds)}: {figures}", "bold green")
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
    command = f"polyhal generate {shlex.quote(str(folder.path))} --prompt {prompt}{devices.first}"
    say(console, f"generate text with: {command}")


def _print_how_to_resume(console: Console, session: Session, devices: ChosenDevices) -> None:
    trainer, folder = session.trainer, session.folder
    stopped = f"stopped after step {trainer.done} of {trainer.options.steps}"
    say_wrapped(console, f"{stopped}; everything is saved in {folder.last}", "bold")
    launch = distributed.launch_command() or "polyhal"
    command = f"{launch} train --resume --save-dir {shlex.quote(str(folder.path))}{devices.arguments}"
    say(console, f"resume with: {command}")
