"""Checkpoints of language models: a model with its tokenizer, or the whole state of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.models import GPT, GPTConfig
from polyhal.serialize import load, load_checkpoint, save_checkpoint
from polyhal.text import Tokenizer, load_tokenizer
from polyhal.training.corpus import Corpus
from polyhal.training.options import TrainOptions
from polyhal.training.trainer import Trainer

_KIND = "gpt"
_VERSION = 1
"""Version of the description that accompanies the weights. A reader accepts its own version only."""


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata of a checkpoint."""

    config: GPTConfig
    tokenizer: Tokenizer
    options: TrainOptions
    source: str
    """Where the text came from, and its SHA-256."""
    sha256: str
    best: float | None
    trainer: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Number of optimizer steps that the run had made."""
        return int(self.trainer["step"])


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model with its tokenizer."""

    model: GPT
    tokenizer: Tokenizer
    description: Description


def save_model(path: Path, trainer: Trainer, tokenizer: Tokenizer, corpus: Corpus, best: float | None) -> None:
    """Save what generation needs. An old file is replaced when the new state is on the disk. Raises OSError."""
    save_checkpoint(path, trainer.model, extra=_describe(trainer, tokenizer, corpus, best))


def save_run(path: Path, trainer: Trainer, tokenizer: Tokenizer, corpus: Corpus, best: float | None) -> None:
    """Save everything that resuming a run needs, in the same way."""
    extra = _describe(trainer, tokenizer, corpus, best)
    save_checkpoint(path, trainer.model, trainer.optimizer, trainer.scheduler, trainer.loader, extra)


def _describe(trainer: Trainer, tokenizer: Tokenizer, corpus: Corpus, best: float | None) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "version": _VERSION,
        "config": trainer.model.config.to_json(),
        "tokenizer": json.loads(tokenizer.to_json()),
        "options": trainer.options.to_json(),
        "corpus": {"source": corpus.source, "sha256": corpus.sha256},
        "best": best,
        "trainer": trainer.state_dict(),
    }


def describe(path: Path) -> Description:
    """Read the metadata of the checkpoint at `path`.

    Raises CorruptFileError for damaged files, IncompatibleFileError for other versions and other kinds of checkpoints.
    """
    state = load(path, Device("numpy"), lazy=True)
    extra = state.get("extra", {}) if isinstance(state, Mapping) else {}
    if extra.get("kind") != _KIND or "model" not in state:
        raise IncompatibleFileError(
            message(None, f"{path} holds no language model", expected="a checkpoint that `polyhal train` wrote")
        )
    if extra.get("version") != _VERSION:
        raise IncompatibleFileError(
            message(
                None,
                f"{path} has version {extra.get('version')}",
                expected=f"version {_VERSION}",
                fix="use the version of Polyhal that wrote it",
            )
        )
    try:
        return Description(
            config=GPTConfig.from_json(extra["config"]),
            tokenizer=load_tokenizer(json.dumps(_plain(extra["tokenizer"]))),
            options=TrainOptions.from_json(extra["options"]),
            source=str(extra["corpus"]["source"]),
            sha256=str(extra["corpus"]["sha256"]),
            best=extra["best"],
            trainer=dict(extra["trainer"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(message(None, f"the description in {path} is damaged: {error!r}")) from error


def load_model(path: Path, device: Device) -> LanguageModel:
    """Load the model at `path` to `device`, with its tokenizer. Raises as `describe` does, also for altered weights."""
    description = describe(path)
    model = GPT(description.config, device=device)
    load_checkpoint(path, model, restore_random=False)
    model.eval()
    return LanguageModel(model, description.tokenizer, description)


def load_run(path: Path, trainer: Trainer) -> None:
    """Load a state of `save_run` into `trainer`, including random numbers. Raises as `load_model` does."""
    extra = load_checkpoint(path, trainer.model, trainer.optimizer, trainer.scheduler, trainer.loader)
    trainer.load_state_dict(extra["trainer"])


def _plain(value: Any) -> Any:
    """Read lazy mappings into dictionaries."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
