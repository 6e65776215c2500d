"""From what was asked for to a session that can run: settings, text and model, or the state of an earlier run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhal import random
from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.models import GPT, GPTConfig
from polyhal.text import BPETokenizer, CharTokenizer, Tokenizer
from polyhal.training import corpus as texts
from polyhal.training import presets
from polyhal.training.checkpoint import describe, load_run
from polyhal.training.corpus import Corpus, CorpusError
from polyhal.training.folder import RunFolder, writing
from polyhal.training.options import NAMES, OptionError, TrainOptions, flag
from polyhal.training.session import Session
from polyhal.training.trainer import Trainer

GIVEN_NAMES = frozenset({*NAMES, "epochs"})
"""Settings that can be asked for: `epochs` is another way to say `steps`."""
_FREE = frozenset({"steps", "log_every", "eval_every", "sample_every"})
"""Settings that may change when a run goes on, as they do not change what was computed so far."""

_REHEARSALS = 5
_PATIENCE = 2.0
"""Seconds after which no further rehearsal is begun."""


@dataclass(frozen=True, slots=True)
class Data:
    """A text as token numbers (int32), cut in two."""

    tokenizer: Tokenizer
    training: np.ndarray
    validation: np.ndarray


def start(
    corpus: Corpus, given: Mapping[str, Any], device: Device, folder: RunFolder, *, eager: bool = False
) -> Session:
    """A new run with the settings in `given` and, for the rest, defaults that suit the device.

    The steps follow from the device's measured speed unless `given` has them. Raises OptionError and CorpusError.
    """
    _exclusive(given)
    wanted = {k: v for k, v in given.items() if k != "epochs"}
    options = TrainOptions(**{**presets.for_device(device), **wanted})
    data = tokenize(corpus, options, _tokenizer(corpus, options))
    random.manual_seed(options.seed)
    model = GPT(config(options, data.tokenizer), device=device)
    trainer = Trainer(model, options, data.training, data.validation, eager=eager)
    steps = given.get("steps")
    if steps is None and given.get("epochs") is not None:
        steps = _steps_of(given["epochs"], trainer)
    elif steps is None:
        steps = presets.steps_for(_seconds_per_step(trainer), trainer.steps_per_epoch)
    # A short run must still reach its peak, so the default warm-up takes a tenth of it at most.
    derived = {**presets.intervals(steps), "warmup": min(options.warmup, steps // 10)}
    trainer.reschedule(options.with_changes(steps=steps, **{k: v for k, v in derived.items() if k not in given}))
    return Session(trainer, data.tokenizer, corpus, folder)


def resume(
    corpus: Corpus | None, given: Mapping[str, Any], device: Device, folder: RunFolder, *, eager: bool = False
) -> Session:
    """The run in `folder` where its last checkpoint left it.

    Settings in `given` and `corpus` must be those of the run, except that it may be made longer or shorter and talk
    more or less. Raises RunFolderError, OptionError, CorpusError and the errors of reading checkpoints.
    """
    folder.require_last()
    saved = describe(folder.last)
    _exclusive(given)
    for name, value in given.items():
        if name in NAMES and name not in _FREE and value != getattr(saved.options, name):
            raise OptionError(
                message(
                    None,
                    f"{flag(name)} {value} contradicts the run in {folder.path}, which has "
                    f"{getattr(saved.options, name)}",
                    fix=f"leave {flag(name)} out, or start a new run with another --save-dir",
                )
            )
    text = _same_text(corpus, saved.source, saved.sha256, folder)
    options = saved.options.with_changes(**{k: v for k, v in given.items() if k in _FREE})
    data = tokenize(text, options, saved.tokenizer)
    model = GPT(saved.config, device=device)
    trainer = Trainer(model, options, data.training, data.validation, eager=eager)
    if given.get("epochs") is not None:
        trainer.reschedule(options.with_changes(steps=_steps_of(given["epochs"], trainer)))
    load_run(folder.last, trainer)
    with writing(folder.metrics.path):
        folder.metrics.cut(trainer.done)
    return Session(trainer, saved.tokenizer, text, folder, saved.best)


def config(options: TrainOptions, tokenizer: Tokenizer) -> GPTConfig:
    """The model that the settings describe."""
    return GPTConfig(
        tokenizer.vocab_size, options.context, options.layers, options.heads, options.width, options.dropout
    )


def tokenize(corpus: Corpus, options: TrainOptions, tokenizer: Tokenizer) -> Data:
    """The text as numbers, its end set aside for validation. Raises CorpusError if a part has no room for a context."""
    tokens = np.asarray(tokenizer.encode(corpus.text), np.int32)
    held_out = int(len(tokens) * options.val_split)
    training, validation = tokens[: len(tokens) - held_out], tokens[len(tokens) - held_out :]
    shortest = min(len(part) for part in (training, validation) if part is training or options.val_split)
    if shortest <= options.context:
        longest = shortest - 1
        parts = f"{len(training)} for training and {len(validation)} for validation"
        fix = f"use --context {longest} or less, or a longer text" if longest >= 1 else "use a longer text"
        raise CorpusError(
            message(
                None,
                f"the text is too short: it has {len(tokens)} tokens ({parts}), and a context takes {options.context}",
                expected=f"more than {options.context} tokens in each part",
                fix=fix,
            )
        )
    return Data(tokenizer, training, validation)


def _tokenizer(corpus: Corpus, options: TrainOptions) -> Tokenizer:
    if options.tokenizer == "char":
        return CharTokenizer.train(corpus.text)
    try:
        return BPETokenizer.train(corpus.text, options.vocabulary)
    except ImportError as error:
        raise OptionError(str(error)) from error


def _exclusive(given: Mapping[str, Any]) -> None:
    if given.get("steps") is not None and given.get("epochs") is not None:
        raise OptionError(message(None, "--steps and --epochs are both given", expected="one of them"))


def _steps_of(epochs: Any, trainer: Trainer) -> int:
    if isinstance(epochs, bool) or not isinstance(epochs, (int, float)) or not 0 < epochs < float("inf"):
        raise OptionError(message(None, f"--epochs is {epochs}", expected="a number above 0"))
    return max(round(epochs * trainer.steps_per_epoch), 1)


def _seconds_per_step(trainer: Trainer) -> float:
    """The quickest of some rehearsals, as others may use the machine too; the first two record and build the step."""
    with trainer.rehearsal() as rehearse:
        rehearse()
        rehearse()
        times: list[float] = []
        while len(times) < _REHEARSALS and sum(times) < _PATIENCE:
            begin = time.perf_counter()
            rehearse()
            times.append(time.perf_counter() - begin)
    return min(times)


def _same_text(corpus: Corpus | None, source: str, sha256: str, folder: RunFolder) -> Corpus:
    """The text of a run, checked to be what it was."""
    text = corpus or texts.read(None if source == texts.LIBRARY else Path(source))
    if text.sha256 != sha256:
        raise CorpusError(
            message(
                None,
                f"{text.source} is not the text that the run in {folder.path} was started on: its content differs",
                fix="restore that text, or start a new run with another --save-dir",
            )
        )
    return text
