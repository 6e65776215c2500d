"""Checkpoints as single files and as folders, and detection of other formats by content."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.core.settings import json_store
from polyhal.hal.core.settings.atomic import new_folder, replacing, sync_folder
from polyhal.hal.core.settings.file_lock import exclusive
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.module import Module
from polyhal.serialize import models
from polyhal.serialize.readers import shards, torch_file
from polyhal.serialize.readers.archive import Archive
from polyhal.serialize.readers.numpy_file import open_npy, open_npz
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.serialize.readers.stored import TensorSource, is_file
from polyhal.serialize.tensorfile import HASHES, SCHEMA, STATE, STATE_HASH, TensorFile, digest, write
from polyhal.serialize.tree import Encoder, check, decode
from polyhal.tensor import Tensor

VERSION = 1
"""Schema version. Only files of this version can be read."""
_STATE_FILE = "state.json"
_PATIENCE = 600.0
"""Timeout in seconds for the lock on a folder into which another process saves."""
_PICKLE_PROTOCOLS = (b"\x02", b"\x03", b"\x04", b"\x05")


@overload
def save(state: Mapping[str, Any] | Module, path: str | os.PathLike[str]) -> Path: ...


@overload
def save(state: Mapping[str, Any] | Module, path: BinaryIO) -> BinaryIO: ...


@top_level
def save(state: Mapping[str, Any] | Module, path: str | os.PathLike[str] | BinaryIO) -> Path | BinaryIO:
    """Save nested dictionaries and lists of tensors, arrays, numbers, strings and None, or a whole model.

    A model is saved as the class and arguments of its layers and their state; `load` reconstructs it. A `path` with a suffix
    is one safetensors file, a path without one is a folder with `state.json` and a tensor file. Old data is replaced only
    when the new data is complete and on disk. With a binary file open for writing, such as an `io.BytesIO`, a safetensors
    file is written at its position. Tensors that share memory are stored once. Raises TypeError for other types in the state,
    and OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = polyhal.save({"w": polyhal.ones(2), "epoch": 3}, f"{folder}/state.safetensors")
    ...     state = polyhal.load(path)
    >>> state["w"].tolist(), state["epoch"]
    ([1.0, 1.0], 3)
    """
    encoder = Encoder()
    tree = encoder.encode(models.describe(state) if isinstance(state, Module) else state)
    if not isinstance(path, (str, os.PathLike)):
        with tempfile.TemporaryFile() as whole:
            _write_file(whole, tree, encoder)
            whole.seek(0)
            shutil.copyfileobj(whole, path)
        return path
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        _replace_content(target, tree, encoder)
        return target
    if not target.suffix:
        try:
            with new_folder(target) as folder:
                _write_folder(folder, 1, tree, encoder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            _replace_content(target, tree, encoder)  # another process has created the folder meanwhile
        return target
    with replacing(target) as file:
        _write_file(file, tree, encoder)
    return target


def _write_file(file: BinaryIO, tree: Any, encoder: Encoder) -> None:
    text = json.dumps(tree)
    write(file, encoder.tensors, {SCHEMA: str(VERSION), STATE: text, STATE_HASH: digest(text.encode())})


def _replace_content(folder: Path, tree: Any, encoder: Encoder) -> None:
    """Save into an existing folder: the new tensor file has a new name, and old ones are removed at the end.

    A file lock serializes saves of several processes into the same folder, which would remove each other's files.
    """
    with exclusive(folder / ".saving.lock", _PATIENCE):
        old = set(folder.glob("tensors-*.safetensors"))
        number = 1 + max((_number(p) for p in old), default=0)
        try:
            _write_folder(folder, number, tree, encoder)
        except BaseException:
            if not _is_current(folder, _tensor_file(number)):
                (folder / _tensor_file(number)).unlink(missing_ok=True)
            raise
        for path in old:
            path.unlink(missing_ok=True)
    sync_folder(folder)


def _write_folder(folder: Path, number: int, tree: Any, encoder: Encoder) -> None:
    """Write a tensor file, then `state.json` with its name: the replacement of `state.json` commits the checkpoint."""
    with replacing(folder / _tensor_file(number)) as file:
        write(file, encoder.tensors, {SCHEMA: str(VERSION)})
    text = json.dumps(tree)
    content = {"schema": VERSION, "tensors": _tensor_file(number), "sha256": digest(text.encode()), "state": tree}
    with replacing(folder / _STATE_FILE) as file:
        file.write(json.dumps(content, indent=1).encode())


def _tensor_file(number: int) -> str:
    return f"tensors-{number:06d}.safetensors"


def _is_current(folder: Path, tensors: str) -> bool:
    """Return whether `state.json` names this tensor file, as after a late interrupt."""
    state = folder / _STATE_FILE
    return state.exists() and tensors in state.read_text()


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("tensors-")
    return int(digits) if digits.isdigit() else 0


@top_level
def load(
    path: str | os.PathLike[str] | BinaryIO,
    device: Device | str | None = None,
    lazy: bool = False,
    classes: Iterable[type] = (),
    *,
    map_location: Device | str | None = None,
    weights_only: bool = True,
) -> Any:
    """Load a state of `save`, with tensors on `device` (the default device if None).

    A whole model is reconstructed from layers of Polyhal and from `classes` of the caller; weights are read one by one.

    With `lazy`, dictionaries read a tensor from the file at each access. Other formats are recognized by their content:
    safetensors, also in shards with an index; PyTorch's `torch.save` files of state dicts and other data; NumPy's .npz and
    .npy. Nothing in a file is executed, not even with `weights_only=False`; `map_location` is PyTorch's name of `device`.
    Raises CorruptFileError, with the name of the tensor, for damaged files, and IncompatibleFileError for files of another
    schema or with objects that are not data. Raises TypeError for a `map_location` other than one device.

    An open file or `io.BytesIO` is read from its position to its end; `lazy` is not supported for it.
    """
    if callable(map_location) or isinstance(map_location, Mapping) or (device is not None and map_location is not None):
        raise TypeError(message("load", f"map_location is {map_location!r}", expected="one device for all tensors"))
    if not isinstance(path, (str, os.PathLike)):
        return _load_stream(path, map_location if device is None else device, lazy, classes)
    source = Path(path)
    target = dispatch.target_device(map_location if device is None else device)
    tree, file = open_state(source)
    if models.is_model(tree):
        state = decode(tree, _Tensors(file, Device("numpy"), keep=False), lazy=True)
        return models.rebuild(state, target, classes)
    return decode(tree, _Tensors(file, target, keep=not lazy), lazy)


def _load_stream(file: Any, device: Device | str | None, lazy: bool, classes: Iterable[type]) -> Any:
    """Copy the rest of an open file to disk and load the copy, because readers require random access."""
    if lazy or isinstance(file, io.TextIOBase) or not hasattr(file, "read"):
        problem = f"got a {type(file).__name__}" + (" with lazy=True" if lazy else "")
        raise TypeError(message("load", problem, expected="a path, or without `lazy` a file that is open for bytes"))
    with tempfile.TemporaryDirectory(prefix="polyhal-load-") as folder:
        copied = Path(folder) / "open-file"
        with copied.open("wb") as out:
            shutil.copyfileobj(file, out)
        return load(copied, device, classes=classes)


class _Tensors:
    """The tensors of an opened file, on a device. With `keep`, repeated reads of a name return the same object."""

    def __init__(self, file: TensorSource, device: Device, keep: bool) -> None:
        self._file = file
        self._device = device
        self._kept: dict[str, Tensor] | None = {} if keep else None
        self._arrays: dict[str, np.ndarray] | None = {} if keep else None

    def tensor(self, name: str) -> Tensor:
        if self._kept is None:
            return Tensor(self._file.read(name), device=self._device)
        if name not in self._kept:
            self._kept[name] = Tensor(self._file.read(name), device=self._device)
        return self._kept[name]

    def array(self, name: str) -> np.ndarray:
        if self._arrays is None:
            return self._file.read(name)
        if name not in self._arrays:
            self._arrays[name] = self._file.read(name)
        return self._arrays[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.shape(name)


def open_state(path: Path) -> tuple[Any, TensorSource]:
    """Open a file or folder of any format, recognized by its content. Returns the state as a tree, and its tensors.

    Raises CorruptFileError unless `decode` supports the tree.
    """
    tree, source = _open(path)
    check(tree, frozenset(source.names), path)
    return tree, source


def _open(path: Path) -> tuple[Any, TensorSource]:
    if path.is_dir():
        weights = next((path / name for name in shards.INDEXED if (path / name).exists()), None)
        return _open_folder(path) if weights is None or (path / _STATE_FILE).exists() else _open(weights)
    file = OpenedFile(path)
    start = file.read(0, 16)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        archive = Archive(file)
        return torch_file.open_torch_archive(archive) if torch_file.is_torch_archive(archive) else open_npz(archive)
    if start[:6] == b"\x93NUMPY":
        return open_npy(file)
    if start[:1] == b"\x80" and start[1:2] in _PICKLE_PROTOCOLS and start[2:3] != b"\x00":
        return torch_file.open_pickle(file)
    if start.lstrip()[:1] == b"{" and start[8:9] != b"{":
        return shards.open_index(file, open_state)
    return _open_safetensors(path)


def _open_safetensors(path: Path) -> tuple[Any, TensorFile]:
    file = TensorFile(path)
    if SCHEMA not in file.metadata:
        if file.metadata.keys() & {HASHES, STATE, STATE_HASH}:
            raise CorruptFileError(message("load", f"the header of {path} was altered: it lacks {SCHEMA}"))
        return {name: {"$tensor": name} for name in file.names}, file
    _check_schema(path, file.metadata[SCHEMA])
    text = file.metadata.get(STATE, "")
    if digest(text.encode()) != file.metadata.get(STATE_HASH):
        raise CorruptFileError(message("load", f"the state in the header of {path} was altered"))
    return json_store.parse(text, f"the state in the header of {path}"), file


def _open_folder(folder: Path) -> tuple[Any, TensorFile]:
    """Open a folder written by `save`. If another process replaces its tensor file meanwhile, open the new one."""
    missing = ""
    while True:
        tree, name = _read_state(folder)
        if is_file(folder / name):
            with suppress(FileNotFoundError):
                return tree, TensorFile(folder / name)
        if name == missing:
            raise CorruptFileError(message("load", f"{folder} lacks {name}, which {_STATE_FILE} names"))
        missing = name


def _read_state(folder: Path) -> tuple[Any, str]:
    """Return the state in `state.json` as a tree, and the name of the tensor file."""
    path = folder / _STATE_FILE
    if not path.exists():
        raise FileNotFoundError(
            message("load", f"{folder} lacks {_STATE_FILE}", expected="a folder that polyhal.save wrote")
        )
    try:
        content = json_store.parse(OpenedFile(path).read(), path)
        schema, name, sha256, tree = (content[k] for k in ("schema", "tensors", "sha256", "state"))
    except (CorruptFileError, KeyError, TypeError) as error:
        problem = f"{path} is damaged: {str(error) or type(error).__name__}"
        raise CorruptFileError(message("load", problem, expected="JSON that polyhal.save wrote")) from error
    _check_schema(path, schema)
    if digest(json.dumps(tree).encode()) != sha256:
        raise CorruptFileError(message("load", f"the state in {path} was altered"))
    if not isinstance(name, str) or Path(name).name != name:
        raise CorruptFileError(
            message("load", f"{path} names the tensor file {name!r}", expected="a file in the same folder")
        )
    return tree, name


def _check_schema(path: Path, schema: int | str) -> None:
    if str(schema) != str(VERSION):
        raise IncompatibleFileError(
            message(
                "load",
                f"{path} has schema {schema}",
                expected=f"schema {VERSION}",
                fix="load it with the version of Polyhal that wrote it",
            )
        )


__all__ = ["VERSION", "load", "save"]
