"""Preparation of a session from requested settings and a text, or from the state of an earlier run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhal import Device, random
from polyhal.hal.errors import message
from polyhal.models import GPT, GPTConfig
from polyhal.text import BPETokenizer, CharTokenizer, Tokenizer, load_tokenizer
from polyhal.training import corpus as texts
from polyhal.training import presets
from polyhal.training.checkpoint import describe, load_run
from polyhal.training.corpus import Corpus, CorpusError
from polyhal.training.folder import RunFolder, writing
from polyhal.training.options import NAMES, OptionError, TrainOptions, flag
from polyhal.training.ranks import Ranks
from polyhal.training.session import Session
from polyhal.training.trainer import Trainer

GIVEN_NAMES = frozenset({*NAMES, "epochs"})
"""Settings that may be requested: `epochs` is an alternative to `steps`."""
_FREE = frozenset({"steps", "log_every", "eval_every", "sample_every"})
"""Settings that may change when a run is resumed, because they do not affect the steps so far."""

_REHEARSALS = 5
_PATIENCE = 2.0
"""Seconds after which no further rehearsal starts."""


@dataclass(frozen=True, slots=True)
class Data:
    """A text as token ids (int32), in two parts."""

    tokenizer: Tokenizer
    training: np.ndarray
    validation: np.ndarray


def start(
    corpus: Corpus,
    requested: Mapping[str, Any],
    devices: Sequence[Device],
    folder: RunFolder,
    *,
    eager: bool = False,
    ranks: Ranks | None = None,
) -> Session:
    """Prepare a new run with the requested settings, and defaults for the first device of rank 0 for the rest.

    The default number of steps follows from the measured speed of the device. Raises OptionError and CorpusError.
    """
    _exclusive(requested)
    overrides = {k: v for k, v in requested.items() if k != "epochs"}
    ranks = ranks or Ranks()
    options = TrainOptions(**ranks.agree({**presets.for_device(devices[0]), **overrides}))
    _check_batch(options.batch_size, devices, ranks)
    trained = json.loads(_tokenizer(corpus, options).to_json()) if ranks.first else None
    data = tokenize(corpus, options, load_tokenizer(json.dumps(ranks.agree(trained))))
    random.manual_seed(options.seed)
    model = GPT(config(options, data.tokenizer), device=devices[0])
    _part_streams(options.seed, 0, ranks)
    trainer = Trainer(model, options, data.training, data.validation, devices=devices, eager=eager, ranks=ranks)
    steps = requested.get("steps")
    if steps is None and requested.get("epochs") is not None:
        steps = _steps_of(requested["epochs"], trainer)
    elif steps is None:
        steps = presets.steps_for(_seconds_per_step(trainer), trainer.steps_per_epoch)
    # The default warm-up takes at most a tenth of the run, so that a short run reaches its peak rate.
    derived = {**presets.intervals(steps), "warmup": min(options.warmup, steps // 10)}
    trainer.reschedule(options.with_changes(steps=steps, **{k: v for k, v in derived.items() if k not in requested}))
    return Session(trainer, data.tokenizer, corpus, folder)


def resume(
    corpus: Corpus | None,
    requested: Mapping[str, Any],
    devices: Sequence[Device],
    folder: RunFolder,
    *,
    eager: bool = False,
    ranks: Ranks | None = None,
) -> Session:
    """Prepare to resume the run in `folder` from its last checkpoint.

    Requested settings and `corpus` must equal the run's, except for its length and its output; devices may differ.
    Raises RunFolderError, OptionError, CorpusError and the errors of reading checkpoints.
    """
    ranks = ranks or Ranks()
    folder.require_last()
    saved = describe(folder.last)
    _check_batch(saved.options.batch_size, devices, ranks)
    _exclusive(requested)
    for name, value in requested.items():
        if name in NAMES and name not in _FREE and value != getattr(saved.options, name):
            raise OptionError(
                message(
                    None,
                    f"{flag(name)} {value} contradicts the run in {folder.path}, which has "
                    f"{getattr(saved.options, name)}",
                    fix=f"leave {flag(name)} out, or start a new run with another --save-dir",
                )
            )
    same = _same_text(corpus, saved.source, saved.sha256, folder) if ranks.first else None
    text = Corpus(**ranks.agree(None if same is None else asdict(same)))
    options = saved.options.with_changes(**{k: v for k, v in requested.items() if k in _FREE})
    data = tokenize(text, options, saved.tokenizer)
    model = GPT(saved.config, device=devices[0])
    _part_streams(options.seed, saved.step, ranks)
    trainer = Trainer(model, options, data.training, data.validation, devices=devices, eager=eager, ranks=ranks)
    if requested.get("epochs") is not None:
        trainer.reschedule(options.with_changes(steps=_steps_of(requested["epochs"], trainer)))
    load_run(folder.last, trainer)
    if ranks.first:
        with writing(folder.metrics.path):
            folder.metrics.cut(trainer.done)
    return Session(trainer, saved.tokenizer, text, folder, saved.best)


def _check_batch(batch_size: int, devices: Sequence[Device], ranks: Ranks) -> None:
    """Raise OptionError if a rank or a device would have no part of a batch."""
    if batch_size < ranks.size:
        raise OptionError(
            message(
                None,
                f"--batch-size {batch_size} cannot be divided among {ranks.size} ranks",
                expected="a batch for all ranks, with at least one window for each",
                fix="raise --batch-size, or start fewer ranks",
            )
        )
    if batch_size // ranks.size < len(devices):
        problem = f"--batch-size {batch_size} leaves some of {len(devices) * ranks.size} devices without work"
        expected = "at least one window of text for each"
        raise OptionError(message(None, problem, expected=expected, fix="name fewer --devices, or raise --batch-size"))


def _part_streams(seed: int, step: int, ranks: Ranks) -> None:
    """Seed the random generator of every rank but the first differently, for its dropout masks."""
    if not ranks.first:
        words = np.random.SeedSequence([seed, step, ranks.size, ranks.rank]).generate_state(1, np.uint64)
        random.manual_seed(int(words[0]) >> 1)


def config(options: TrainOptions, tokenizer: Tokenizer) -> GPTConfig:
    """Return the model configuration for these settings."""
    return GPTConfig(
        tokenizer.vocab_size, options.context, options.layers, options.heads, options.width, options.dropout
    )


def tokenize(corpus: Corpus, options: TrainOptions, tokenizer: Tokenizer) -> Data:
    """Encode the text, and hold out its end for validation. Raises CorpusError if a part is shorter than a context."""
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


def _exclusive(requested: Mapping[str, Any]) -> None:
    if requested.get("steps") is not None and requested.get("epochs") is not None:
        raise OptionError(message(None, "--steps and --epochs are both given", expected="one of them"))


def _steps_of(epochs: Any, trainer: Trainer) -> int:
    if isinstance(epochs, bool) or not isinstance(epochs, (int, float)) or not 0 < epochs < float("inf"):
        raise OptionError(message(None, f"--epochs is {epochs}", expected="a number above 0"))
    return max(round(epochs * trainer.steps_per_epoch), 1)


def _seconds_per_step(trainer: Trainer) -> float:
    """Return the time of the fastest of some rehearsals; the first two, which record and compile the step, do not count."""
    with trainer.rehearsal() as rehearse:
        rehearse()
        rehearse()
        times: list[float] = []
        while len(times) < _REHEARSALS and sum(times) < _PATIENCE:
            begin = time.perf_counter()
            rehearse()
            times.append(trainer.ranks.largest(time.perf_counter() - begin))
    return min(times)


def _same_text(corpus: Corpus | None, source: str, sha256: str, folder: RunFolder) -> Corpus:
    """Return the text of a run. Raises CorpusError if it has changed."""
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
