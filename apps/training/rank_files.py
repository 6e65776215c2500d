"""Files of the ranks next to a checkpoint: each contains a rank's part of the optimizer state.

Rank 0 writes the checkpoint itself when all files are complete, with their names and hashes; until then the last checkpoint
and its files are unchanged. Any number of ranks can read the files of any other number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyhal import Device, Tensor
from polyhal.hal.errors import CorruptFileError, PolyhalError, message
from polyhal.random import default_generator
from polyhal.serialize import eager, load, save
from polyhal.training.trainer import Trainer

_SUFFIX = ".ranks"
_BLOCK = 1 << 20


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of the ranks' files."""
    return checkpoint.with_name(checkpoint.name + _SUFFIX)


def write(checkpoint: Path, trainer: Trainer) -> dict[str, Any]:
    """Write this rank's file. Returns the entry of the checkpoint for the files of all ranks. Raises OSError.

    Raises PolyhalError if rank 0 cannot read a file that another rank wrote.
    """
    ranks, sharded = trainer.ranks, trainer.sharded
    assert sharded is not None
    folder = folder_of(checkpoint)
    if ranks.first:
        folder.mkdir(parents=True, exist_ok=True)
    number = ranks.agree(1 + max((_number(p) for p in folder.glob("*.safetensors")), default=0))
    name = f"{number:06d}-rank-{ranks.rank:05d}-of-{ranks.size:05d}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)  # on this machine; the check below fails if the file system is not shared
    state = {
        "groups": sharded.state(),
        "errors": sharded.errors,
        "random": default_generator.get_state(),
        "loss_sum": trainer.loss_sum,
    }
    path = save(state, folder / name)
    files = ranks.collect({"name": name, "bytes": path.stat().st_size, "sha256": _digest(path)})
    missing = [f["name"] for f in files if not (folder / f["name"]).exists()] if ranks.first else []
    missing = ranks.agree(missing)
    if missing:
        raise PolyhalError(
            message(
                None,
                f"rank 0 cannot find {folder / missing[0]}, which another rank has written",
                expected="a --save-dir that all machines of the job share",
            )
        )
    return {"size": ranks.size, "files": files}


def remove_others(checkpoint: Path, written: Mapping[str, Any]) -> None:
    """Remove the files of earlier checkpoints, once the one that lists `written` is complete."""
    current = {f["name"] for f in written.get("files", ())}
    folder = folder_of(checkpoint)
    for path in folder.glob("*.safetensors"):
        if path.name not in current:
            path.unlink(missing_ok=True)
    if not current and folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def read(checkpoint: Path, written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the files that a checkpoint lists, in the order of the ranks, tensors as arrays. Raises CorruptFileError."""
    try:
        listed = [(str(f["name"]), str(f["sha256"])) for f in written["files"]]
    except (KeyError, TypeError) as error:
        raise CorruptFileError(message(None, f"the list of files in {checkpoint} is damaged: {error!r}")) from error
    states = []
    for name, sha256 in listed:
        path = folder_of(checkpoint) / name
        if not path.exists():
            raise CorruptFileError(
                message(None, f"{path} is missing", expected="the files of all ranks that wrote the checkpoint")
            )
        if _digest(path) != sha256:
            raise CorruptFileError(message(None, f"{path} was altered: its hash differs from the one in {checkpoint}"))
        states.append(_arrays(eager(load(path, Device("numpy"), lazy=True))))
    return states


def joined(states: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the state of whole groups: vectors concatenated over buckets, and within buckets over ranks; and numbers."""
    groups = []
    for of_ranks in zip(*(s["groups"] for s in states), strict=True):
        parts = [part for of_bucket in zip(*of_ranks, strict=True) for part in of_bucket]
        groups.append(
            {
                name: np.concatenate([p[name] for p in parts]) if isinstance(value, np.ndarray) else value
                for name, value in parts[0].items()
            }
        )
    return groups


def of_parameters(
    groups: Sequence[Mapping[str, Any]], parameters: Sequence[Sequence[Tensor]]
) -> dict[int, dict[str, Any]]:
    """Convert the state of whole groups to the state of single parameters, numbered as in optimizers."""
    state: dict[int, dict[str, Any]] = {}
    number = 0
    for group, members in zip(groups, parameters, strict=True):
        start = 0
        for p in members:
            entry = {
                name: value[start : start + p.size].reshape(p.shape) if isinstance(value, np.ndarray) else value
                for name, value in group.items()
            }
            if entry:
                state[number] = entry
            number, start = number + 1, start + p.size
    return state


def of_groups(saved: Mapping[str, Any], parameters: Sequence[Sequence[Tensor]]) -> list[dict[str, Any]]:
    """Convert the state of single parameters, as an optimizer saves it, to the state of whole groups."""
    state = {int(number): _arrays(entry) for number, entry in saved["state"].items()}
    groups: list[dict[str, Any]] = []
    number = 0
    for members in parameters:
        entries = [state.get(number + i, {}) for i in range(len(members))]
        number += len(members)
        groups.append(
            {
                name: np.concatenate([e[name].reshape(-1) for e in entries]) if isinstance(value, np.ndarray) else value
                for name, value in entries[0].items()
            }
        )
    return groups


def _arrays(value: Any) -> Any:
    """Convert all tensors of a tree to arrays."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, Mapping):
        return {k: _arrays(v) for k, v in value.items()}
    return [_arrays(v) for v in value] if isinstance(value, (list, tuple)) else value


def _number(path: Path) -> int:
    digits = path.name.partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()
