"""Weights in several files with an index of tensors, as on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.hal.core.settings import json_store
from polyhal.hal.errors import CorruptFileError, message
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.serialize.readers.stored import TensorSource, is_file

INDEXED = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
"""Entry files of a folder of weights, in order of preference."""


class ShardedTensors:
    """The tensors of several files as one source."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sources: dict[str, tuple[TensorSource, str]] = {}

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._sources)

    def add(self, shard: str, source: TensorSource) -> dict[str, str]:
        """Add the tensors of a shard. Returns new names by the names in the shard."""
        names = {name: f"{shard}/{name}" for name in source.names}
        self._sources.update({here: (source, there) for there, here in names.items()})
        return names

    def read(self, name: str) -> np.ndarray:
        """Read one tensor. Raises CorruptFileError."""
        source, there = self._sources[name]
        return source.read(there)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor."""
        source, there = self._sources[name]
        return source.shape(there)


def open_index(file: OpenedFile, open_file: Callable[[Path], tuple[Any, TensorSource]]) -> tuple[Any, ShardedTensors]:
    """Open the state of an index and its shards. Raises CorruptFileError, with the name of a missing file or tensor."""
    path = file.path
    try:
        places = json_store.parse(file.read(), path)["weight_map"]
        shards = sorted(set(places.values()))
        sound = all(isinstance(name, str) and Path(name).name == name for name in shards)
    except (CorruptFileError, LookupError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            message("load", f"{path} is damaged: {error!r}", expected="JSON with a weight_map, an index of shards")
        ) from error
    if not sound:
        raise CorruptFileError(message("load", f"{path} names files elsewhere", expected="files in the same folder"))
    combined = ShardedTensors(path)
    trees: dict[str, Any] = {}
    for shard in shards:
        if not is_file(path.parent / shard) or shard == path.name:
            raise CorruptFileError(message("load", f"{path.parent} lacks {shard}, which {path.name} names"))
        tree, source = open_file(path.parent / shard)
        trees[shard] = _renamed(tree, combined.add(shard, source))
    state: dict[str, Any] = {}
    for name, shard in places.items():
        if not isinstance(trees[shard], dict) or name not in trees[shard]:
            raise CorruptFileError(message("load", f"{shard} lacks tensor {name!r}, which {path.name} lists for it"))
        state[name] = trees[shard][name]
    return state, combined


def _renamed(tree: Any, names: dict[str, str]) -> Any:
    """Return a tree with renamed tensors."""
    if isinstance(tree, list):
        return [_renamed(v, names) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1 and isinstance(tree.get("$tensor"), str):
        return {"$tensor": names.get(tree["$tensor"], tree["$tensor"])}
    return {k: _renamed(v, names) for k, v in tree.items()}
