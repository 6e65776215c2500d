"""Files that were made to hang, to crash, or to take all memory: each is refused in time, by name."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedDTypeError
from polyhal.models import load_llama2c
from polyhal.serialize import load_checkpoint, save_checkpoint
from polyhal.serialize.readers.archive import Archive
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.serialize.tensorfile import digest
from polyhal.training.checkpoint import describe


def _altered(folder: Path, change: Any) -> Path:
    """Change the state of a saved folder, and its checksum with it."""
    path = folder / "state.json"
    content = json.loads(path.read_text())
    content["state"] = change(content["state"])
    content["sha256"] = digest(json.dumps(content["state"]).encode())
    path.write_text(json.dumps(content))
    return folder


def _pickled(path: Path, instructions: bytes) -> Path:
    path.write_bytes(b"\x80\x02" + instructions + b".")
    return path


@pytest.mark.parametrize(
    "instructions",
    [
        b")q\x00" + b"h\x00\x86q\x00" * 60 + b"}h\x00Ns",  # a key of 2^60 parts
        b"}" + b")" + b"\x85" * 300_000 + b"Ns",  # a key that is deeper than the stack of C
        b"\x8f(" + b")" + b"\x85" * 300_000 + b"\x90",
        b"(" + b")" + b"\x85" * 300_000 + b"\x91",
        b")q\x00" + b"h\x00\x86q\x00" * 60 + b"0ctorch\ndevice\nh\x00\x85R",  # whose text has 2^60 characters
        b")q\x00" + b"h\x00\x86q\x00" * 60 + b"0ctorch\nSize\nh\x00\x85R",
    ],
)
def test_pickles_that_python_cannot_hash_or_print(instructions: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="damaged"):
        ph.load(_pickled(tmp_path / "x.pkl", instructions), "numpy")


def test_empty_arrays_of_any_number_of_rows(tmp_path: Path) -> None:
    for content in (np.zeros((10**9, 0), "U1"), np.empty((10**9, 0), object)):
        np.save(tmp_path / "x.npy", content, allow_pickle=True)
        with pytest.raises(CorruptFileError, match="empty array of shape"):
            ph.load(tmp_path / "x.npy", "numpy")
    np.save(tmp_path / "x.npy", np.zeros((3, 0), "U1"))
    assert ph.load(tmp_path / "x.npy", "numpy") == [[], [], []]


def test_members_of_an_archive_that_share_their_bytes(tmp_path: Path) -> None:
    path, file = tmp_path / "x.npz", io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("a.npy", bytes(100_000))
    data = file.getvalue()
    at = data.index(b"PK\x01\x02")
    entry, end = data[at : data.index(b"PK\x05\x06")], bytearray(data[data.index(b"PK\x05\x06") :])
    copies = b"".join(entry.replace(b"a.npy", b"%c.npy" % c) for c in b"abcdefghij")
    struct.pack_into("<HHI", end, 8, 10, 10, len(copies))
    path.write_bytes(data[:at] + copies + bytes(end))
    with pytest.raises(CorruptFileError, match="overlap"):
        Archive(OpenedFile(path))


def test_an_index_that_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": path.name}}))
    with pytest.raises(CorruptFileError, match="lacks"):
        ph.load(path, "numpy")
    path.write_text(json.dumps({"weight_map": {"a": "x" * 1000}}))
    with pytest.raises(CorruptFileError, match="lacks"):
        ph.load(path, "numpy")


@pytest.mark.parametrize(
    "state",
    [
        {"$dict": [[1]]},
        {"$dict": [[[], 1]]},
        {"$dict": 3},
        {"$tuple": 3},
        {"$float": []},
        {"$float": "x"},
        {"$tensor": []},
        {"$array": {}},
        {"$tensor": "gone"},
        {"$other": 1},
    ],
    ids=str,
)
def test_marks_that_stand_for_nothing(state: Any, tmp_path: Path) -> None:
    folder = _altered(ph.save({"x": 1}, tmp_path / "x"), lambda old: {"deep": [state]})
    with pytest.raises(CorruptFileError, match=r"the state in .* has an unknown tag|lacks the tensor 'gone'"):
        ph.load(folder, "numpy")
    with pytest.raises(CorruptFileError):
        ph.load(folder, "numpy", lazy=True)


def test_nesting_is_bounded_when_saving_and_when_loading(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(TypeError, match="levels of nesting"):
        ph.save({"x": deep}, tmp_path / "x")
    folder = _altered(ph.save({"x": 1}, tmp_path / "x"), lambda old: {"x": deep})
    with pytest.raises(CorruptFileError, match="levels of nesting"):
        ph.load(folder, "numpy")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="contains itself"):
        ph.save({"x": endless}, tmp_path / "y")


def test_arrays_that_were_one_are_one(tmp_path: Path) -> None:
    array = np.arange(3)
    loaded = ph.load(ph.save({"x": [array, array]}, tmp_path / "x"), "numpy")
    assert loaded["x"][0] is loaded["x"][1]


@pytest.mark.parametrize("sizes", [(10**6, 10**6), (2**62, 2), (1, 2**40)])
def test_models_larger_than_their_weights(sizes: tuple[int, int], tmp_path: Path) -> None:
    def enlarge(state: Any) -> Any:
        state["construction"]["args"] = list(sizes)
        return state

    folder = _altered(ph.save(nn.Linear(2, 2, device="numpy"), tmp_path / "x"), enlarge)
    with pytest.raises(CorruptFileError, match="need more than"):
        ph.load(folder, "numpy")
    assert ph.Device("numpy").pool.check is None


def test_a_model_is_loaded_where_the_caller_says(tmp_path: Path, device: ph.Device) -> None:
    model = nn.Sequential(nn.Linear(2, 3, True, "numpy"), nn.Linear(3, 1, device="numpy"))
    folder = ph.save(model, tmp_path / "x")
    assert "numpy" not in (folder / "state.json").read_text()
    loaded = ph.load(folder, device)
    assert {p.device for p in loaded.parameters()} == {device}

    def elsewhere(state: Any) -> Any:  # as files of earlier versions say
        return json.loads(json.dumps(state).replace('["device", null]', '["device", "opencl:99"]'))

    assert isinstance(ph.load(_altered(folder, elsewhere), device), nn.Sequential)


@pytest.mark.parametrize(
    "construction",
    [
        3,
        [],
        {"kind": "module"},
        {"kind": "module", "class": 3, "number": 0, "args": [], "kwargs": []},
        {"kind": "module", "class": "polyhal.nn.Linear", "number": 0, "args": [], "kwargs": []},
        {"kind": "module", "class": "polyhal.nn.Linear", "number": [], "args": 5, "kwargs": [[1]]},
        {"kind": "container", "class": "polyhal.nn.Sequential", "number": 0, "children": [["a", 3]]},
    ],
    ids=str,
)
def test_invalid_descriptions_of_models(construction: Any, tmp_path: Path) -> None:
    def alter(state: Any) -> Any:
        return {**state, "construction": construction}

    folder = _altered(ph.save(nn.Linear(2, 2, device="numpy"), tmp_path / "x"), alter)
    with pytest.raises((CorruptFileError, IncompatibleFileError)):
        ph.load(folder, "numpy")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("random", {"seed": []}),
        ("random", 3),
        ("optimizer", {"param_groups": 3, "state": {}}),
        ("optimizer", []),
        ("scheduler", [1]),
        ("model", 1),
    ],
)
def test_parts_of_a_checkpoint_that_are_something_else(part: str, value: Any, tmp_path: Path) -> None:
    model = nn.Linear(2, 2, device="numpy")
    optimizer = optim.AdamW(model.parameters())
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    folder = save_checkpoint(tmp_path / "x", model, optimizer, scheduler)
    _altered(folder, lambda state: {**state, part: value})
    with pytest.raises(CorruptFileError, match=f"{part} of .* cannot be loaded"):
        load_checkpoint(folder, model, optimizer, scheduler)


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("size", [2**31 - 1, 2**20, -1, 0])
def test_sizes_that_a_file_of_llama2c_has_not(number: int, size: int, tmp_path: Path) -> None:
    sizes = np.array([4, 8, 1, 2, 1, 5, 3], "<i4")
    sizes[number] = size
    (tmp_path / "x.bin").write_bytes(sizes.tobytes() + bytes(4000))
    with pytest.raises(CorruptFileError):
        load_llama2c(tmp_path / "x.bin", "numpy")


def test_shared_parts_are_bounded_by_the_size_of_the_file(tmp_path: Path) -> None:
    state: list[Any] = [0]
    for _ in range(7):
        state = [state] * 10
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"x": state}, 2))
    with pytest.raises(CorruptFileError, match="values, for the size of its file"):
        ph.load(path, "numpy")


def test_elements_that_numpy_has_not(tmp_path: Path) -> None:
    text = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    with pytest.raises(UnsupportedDTypeError, match="elements of F4"):
        ph.load(tmp_path / "x.safetensors", "numpy")


@pytest.mark.parametrize("load", [ph.load, ph.load_graph, lambda path: describe(Path(path))])
@pytest.mark.parametrize("name", ["polyhal.model", "format", "schema", "extra"])
def test_tensors_instead_of_versions(name: str, load: Any, tmp_path: Path) -> None:
    tensor = ph.ones((2,), device="numpy")
    state = {"format": "polyhal graph", "model": {}, "extra": {"kind": "gpt", "version": tensor}, name: tensor}
    path = ph.save(state, tmp_path / "x")
    if load is ph.load and name != "polyhal.model":
        assert ph.load(path, "numpy")[name].tolist() == [1, 1]
        return
    with pytest.raises(IncompatibleFileError):
        load(path)
