"""Checkpoints of language models: a model with its tokenizer, or the whole state of a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhal import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.models import GPT, GPTConfig
from polyhal.random import default_generator
from polyhal.serialize import eager, load, load_checkpoint, save_checkpoint
from polyhal.text import Tokenizer, load_tokenizer
from polyhal.training import rank_files
from polyhal.training.corpus import Corpus
from polyhal.training.options import TrainOptions
from polyhal.training.trainer import Trainer

_KIND = "gpt"
_VERSION = 1
"""Version of the description that accompanies the weights. Only this version can be read."""


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata of a checkpoint."""

    config: GPTConfig
    tokenizer: Tokenizer
    options: TrainOptions
    source: str
    """Origin of the text: a path, or the name of the standard library."""
    sha256: str
    best: float | None
    trainer: Mapping[str, Any]
    devices: tuple[tuple[str, str], ...] = ()
    """Devices of rank 0: the names for opening them, and the names that their drivers report."""

    @property
    def step(self) -> int:
        """Number of optimizer steps that the run had made."""
        return int(self.trainer["step"])


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model with its tokenizer."""

    model: GPT
    tokenizer: Tokenizer
    description: Description


def save_model(path: Path, trainer: Trainer, tokenizer: Tokenizer, corpus: Corpus, best: float | None) -> None:
    """Save the state that generation requires. An old file is replaced when the new state is on disk. Raises OSError.

    All ranks call this, and rank 0 writes.
    """
    extra = _describe(trainer, tokenizer, corpus, best)
    if trainer.ranks.first:
        save_checkpoint(path, trainer.model, extra=extra)


def save_run(path: Path, trainer: Trainer, tokenizer: Tokenizer, corpus: Corpus, best: float | None) -> None:
    """Save the state that resuming a run requires, atomically. With several ranks, each writes its own state."""
    extra = _describe(trainer, tokenizer, corpus, best)
    if trainer.sharded is not None:
        extra["ranks"] = rank_files.write(path, trainer)
        settings = [{**g, "params": []} for g in trainer.optimizer.param_groups]
        extra["optimizer_settings"] = settings
    if trainer.ranks.first:
        optimizer = None if trainer.sharded is not None else trainer.optimizer
        save_checkpoint(path, trainer.model, optimizer, trainer.scheduler, trainer.loader, extra)
        rank_files.remove_others(path, extra.get("ranks", {}))
    trainer.ranks.group.barrier()  # afterwards all ranks may read it


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
        "devices": [[d.name, d.info.name] for d in trainer.devices],
    }


def describe(path: Path) -> Description:
    """Read the metadata of the checkpoint at `path`.

    Raises CorruptFileError for damaged files, IncompatibleFileError for other versions and other kinds of checkpoints.
    """
    return _description(path, load(path, Device("numpy"), lazy=True))


def _description(path: Path, state: Any) -> Description:
    """Return the metadata in the state of the file at `path`."""
    extra = state.get("extra") if isinstance(state, Mapping) and isinstance(state.get("model"), Mapping) else None
    kind = extra.get("kind") if isinstance(extra, Mapping) else None
    if not isinstance(extra, Mapping) or not isinstance(kind, str) or kind != _KIND:
        raise IncompatibleFileError(
            message(None, f"{path} is not a language model", expected="a checkpoint that `polyhal train` wrote")
        )
    if type(extra.get("version")) is not int or extra["version"] != _VERSION:
        raise IncompatibleFileError(
            message(
                None,
                f"{path} has version {extra.get('version')}",
                expected=f"version {_VERSION}",
                fix="use the version of Polyhal that wrote it",
            )
        )
    try:
        best = extra["best"]
        description = Description(
            config=GPTConfig.from_json(extra["config"]),
            tokenizer=load_tokenizer(json.dumps(_plain(extra["tokenizer"]))),
            options=TrainOptions.from_json(extra["options"]),
            source=str(extra["corpus"]["source"]),
            sha256=str(extra["corpus"]["sha256"]),
            best=best,
            trainer=dict(extra["trainer"]),
            devices=tuple((str(name), str(reported)) for name, reported in extra.get("devices", ())),
        )
        if best is not None and type(best) not in (int, float):
            raise TypeError(f"best is {best!r}")
        if type(description.trainer["step"]) is not int:
            raise TypeError(f"step is {description.trainer['step']!r}")
        return description
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, IncompatibleFileError):
            raise
        raise CorruptFileError(message(None, f"the description in {path} is damaged: {error!r}")) from error


def load_model(path: Path, device: Device) -> TrainedModel:
    """Load the model at `path` to `device`, with its tokenizer. Raises as `describe` does, also for altered weights."""
    state = load(path, Device("numpy"), lazy=True)
    description = _description(path, state)
    _check_sizes(path, state["model"], description.config)
    model = GPT(description.config, device=device)
    load_checkpoint(path, model, restore_random=False)
    model.eval()
    return TrainedModel(model, description.tokenizer, description)


def _check_sizes(path: Path, weights: Any, config: GPTConfig) -> None:
    """Raise CorruptFileError unless the weights have the sizes of the model, before memory is allocated for it."""
    expected = {
        "transformer.wte.weight": (config.vocab_size, config.n_embd),
        "transformer.wpe.weight": (config.block_size, config.n_embd),
    }
    for i in range(min(config.n_layer, len(weights))):
        expected[f"transformer.h.{i}.mlp.c_fc.weight"] = (4 * config.n_embd, config.n_embd)
    for name, shape in expected.items():
        saved = weights.shape_of(name) if name in weights else None
        if saved != shape:
            raise CorruptFileError(
                message(
                    None, f"{name} in {path} has shape {saved}", expected=f"{shape}, as in the model's configuration"
                )
            )


def load_run(path: Path, trainer: Trainer) -> None:
    """Load a state of `save_run` into `trainer`, including random numbers. Raises as `load_model` does.

    Another number of ranks may have written it; then dropout draws other numbers, and the rounding errors of gradients in half
    precision are dropped.
    """
    state = load(path, Device("numpy"), lazy=True)
    written = _plain(state["extra"].get("ranks")) if isinstance(state, Mapping) else None
    if written is None and trainer.sharded is None:
        extra = load_checkpoint(path, trainer.model, trainer.optimizer, trainer.scheduler, trainer.loader)
        trainer.load_state_dict(extra["trainer"])
        return
    if written is not None:
        files = rank_files.read(path, written)
        groups, settings = rank_files.joined(files), _plain(state["extra"]["optimizer_settings"])
    else:
        saved = eager(state["optimizer"])
        files = []
        groups = rank_files.of_groups(saved, [group for group, _ in trainer.groups])
        settings = saved["param_groups"]
    extra = load_checkpoint(path, trainer.model, None, trainer.scheduler, trainer.loader, restore_random=False)
    if trainer.sharded is not None:
        trainer.sharded.load_state(groups, settings)
    else:
        parameters = [group for group, _ in trainer.groups]
        numbers = _numbered(settings, parameters)
        trainer.optimizer.load_state_dict(
            {"state": rank_files.of_parameters(groups, parameters), "param_groups": numbers}
        )
    rank, same = trainer.ranks.rank, len(files) == trainer.ranks.size
    if same:
        default_generator.set_state(files[rank]["random"])
        if trainer.sharded is not None:
            trainer.sharded.load_errors(files[rank]["errors"])
    elif trainer.ranks.first:
        default_generator.set_state(_plain(state["random"]))
    trainer.load_state_dict(extra["trainer"], float(files[rank]["loss_sum"]) if same else None)


def _numbered(settings: list[dict[str, Any]], parameters: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the settings of groups, with the numbers of their parameters."""
    starts = [0, *itertools.accumulate(len(group) for group in parameters)]
    return [
        {**s, "params": [*range(start, start + len(group))]}
        for s, start, group in zip(settings, starts, parameters, strict=False)
    ]


def _plain(value: Any) -> Any:
    """Read lazy mappings into dictionaries."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
