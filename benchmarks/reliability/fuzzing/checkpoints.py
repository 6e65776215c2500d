"""Polyhal's own files: states as a file and as a folder, whole models, captured graphs, checkpoints of runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import polyhal as ph
from benchmarks.reliability.fuzzing.case import FileFormat, HostileInput
from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json, damaged_tree
from polyhal import nn, optim
from polyhal.hal.device import Device
from polyhal.models import GPT, GPTConfig
from polyhal.serialize import load_checkpoint, save_checkpoint
from polyhal.serialize.tensorfile import STATE, STATE_HASH, digest
from polyhal.training import Corpus, TrainOptions
from polyhal.training.checkpoint import load_model, save_model
from polyhal.training.preparation import tokenize
from polyhal.training.trainer import Trainer

NUMPY = "numpy"
_FILE, _FOLDER = "x.safetensors", "x"


def formats() -> list[FileFormat]:
    """Return all formats of this file."""
    file, folder = (_saved(_save_training, name) for name in (_FILE, _FOLDER))
    model, graph, run = (_saved(save, _FOLDER) for save in (_save_model, _save_graph, _save_run))
    return [
        FileFormat("checkpoint", _single(file), _read_training(_FILE), _whole(file)),
        FileFormat("checkpoint folder", _folder(folder), _read_training(_FOLDER), _whole(folder)),
        # Layers may have tables that are not in the file, so small files may need some memory.
        FileFormat("model", _folder(model), _read_state, _whole(model), allowance=512 << 20),
        FileFormat("graph", _folder(graph), _read_graph, _whole(graph)),
        FileFormat("run", _folder(run), _read_run, _whole(run)),
    ]


def _whole(files: Mapping[str, bytes]) -> HostileInput:
    return HostileInput(files, exact=True)


def _saved(save: Callable[[Path], object], name: str) -> dict[str, bytes]:
    """Return the files that `save` writes under a name, by path."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / name)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


# --- saved states ---------------------------------------------------------------------------------------------------


def _parts() -> tuple[nn.Module, Any, Any]:
    ph.manual_seed(0)
    model = nn.Linear(3, 2, device=NUMPY)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, optim.lr_scheduler.StepLR(optimizer, 2)


def _save_training(path: Path) -> None:
    model, optimizer, scheduler = _parts()
    model(ph.ones((1, 3), device=NUMPY)).sum().backward()
    optimizer.step()
    extra = {"list": [1, 2.5, None], "tuple": (1,), "nan": float("nan"), "array": np.arange(3), 3: "three"}
    save_checkpoint(path, model, optimizer, scheduler, extra=extra)


def _save_model(path: Path) -> None:
    ph.manual_seed(0)
    ph.save(nn.Sequential(nn.Linear(3, 4, device=NUMPY), nn.Tanh(), nn.LayerNorm(4, device=NUMPY)), path)


def _save_graph(path: Path) -> None:
    ph.manual_seed(0)
    weight = ph.ones((2,), device=NUMPY)
    step = ph.jit(lambda x: {"y": (x * weight).sum(axis=0), "z": [ph.relu(x), 3]}, warm_up=False)
    step(ph.ones((4, 2), device=NUMPY))
    ph.save_graph(step, path)


def _save_run(path: Path) -> None:
    ph.manual_seed(0)
    corpus = Corpus("text", "text", "one two three four five six seven eight nine ten " * 4)
    options = TrainOptions(layers=1, heads=1, width=4, context=8, batch_size=2, steps=1, vocabulary=258)
    from polyhal.text import CharTokenizer

    tokenizer = CharTokenizer.train(corpus.text)
    data = tokenize(corpus, options, tokenizer)
    model = GPT(GPTConfig(tokenizer.vocab_size, 8, 1, 1, 4), device=Device(NUMPY))
    save_model(path, Trainer(model, options, data.training, data.validation, eager=True), tokenizer, corpus, None)


# --- damage ---------------------------------------------------------------------------------------------------------


def _single(files: Mapping[str, bytes]) -> Callable[[Random], HostileInput]:
    data = files[_FILE]
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]

    def make(random: Random) -> HostileInput:
        if random.random() < 0.5:
            return HostileInput({_FILE: damaged_bytes(random, data, [data])}, exact=True)
        new = dict(header)
        if random.random() < 0.7:
            text = damaged_json(random, json.loads(header["__metadata__"][STATE])).decode(errors="replace")
            new["__metadata__"] = {**header["__metadata__"], STATE: text, STATE_HASH: digest(text.encode())}
        else:
            new = damaged_tree(random, header)
        packed = json.dumps(new).encode()
        packed += b" " * (-len(packed) % 8)
        return HostileInput({_FILE: len(packed).to_bytes(8, "little") + packed + body})

    return make


def _folder(files: Mapping[str, bytes]) -> Callable[[Random], HostileInput]:
    state = f"{_FOLDER}/state.json"
    tree = json.loads(files[state])

    def make(random: Random) -> HostileInput:
        if random.random() < 0.25:
            name = random.choice(list(files))
            return HostileInput({**files, name: damaged_bytes(random, files[name], [*files.values()])}, exact=True)
        if random.random() < 0.2:
            return HostileInput({**files, state: damaged_json(random, tree)})
        return HostileInput({**files, state: damaged_json(random, tree, lambda t: _sealed(random, tree, t))})

    return make


def _sealed(random: Random, tree: Any, damaged: Any) -> Any:
    """Return the file around a damaged state, with a checksum that agrees."""
    state = damaged["state"] if isinstance(damaged, dict) and "state" in damaged else damaged
    if state == tree["state"]:
        state = damaged_tree(random, state)
    return {**tree, "state": state, "sha256": digest(json.dumps(state).encode())}


# --- readers --------------------------------------------------------------------------------------------------------


def _read_training(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        content = ph.load(folder / name, NUMPY)
        model, optimizer, scheduler = _parts()
        extra = load_checkpoint(folder / name, model, optimizer, scheduler)
        return content, extra, model.state_dict()

    return read


def _read_state(folder: Path) -> Any:
    loaded = ph.load(folder / _FOLDER, NUMPY)
    return loaded.state_dict() if isinstance(loaded, nn.Module) else loaded


def _read_graph(folder: Path) -> Any:
    loaded = ph.load_graph(folder / _FOLDER, NUMPY)
    return loaded.state, dict(loaded.numbers), str(loaded.graph)


def _read_run(folder: Path) -> Any:
    loaded = load_model(folder / _FOLDER, Device(NUMPY))
    return loaded.model.state_dict(), loaded.tokenizer.to_json(), loaded.description.step
