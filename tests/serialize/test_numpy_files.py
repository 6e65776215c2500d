"""NumPy's archives and sharded weights load by name."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, PolyhalError, UnsupportedDTypeError


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_are_dictionaries_of_tensors(save: Any, tmp_path: Path, device: ph.Device) -> None:
    arrays = {
        "0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns": np.asfortranarray(np.ones((2, 3), np.int32)),
        "number": np.float32(2),
        "none": np.zeros((0, 3), np.uint8),
        "big": np.arange(3, dtype=">i4"),
    }
    save(tmp_path / "x.npz", **arrays)
    loaded = ph.load(tmp_path / "x.npz", device)
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        assert loaded[name].shape == array.shape
        assert np.array_equal(loaded[name].numpy(), array)
        assert loaded[name].device == device
    assert ph.load(tmp_path / "x.npz", device, lazy=True).shape_of("0.weight") == (2, 3)


def test_names_with_slashes_are_nested(tmp_path: Path, numpy_device: ph.Device) -> None:
    np.savez(tmp_path / "x.npz", **{"model/a/w": np.ones(2), "model/b": np.zeros(1), "step": 3})  # type: ignore[arg-type]
    loaded = ph.load(tmp_path / "x.npz")
    assert loaded["model"]["a"]["w"].tolist() == [1, 1]
    assert loaded["model"]["b"].tolist() == [0]
    assert loaded["step"].item() == 3


def test_text_and_pickled_objects_become_data(tmp_path: Path, numpy_device: ph.Device) -> None:
    config = {"lr": 0.1, "layers": [1, 2], "w": np.ones((2, 2), np.float32)}
    objects: Any = {"name": np.array("net"), "words": np.array(["a", "bc"]), "config": np.array(config, object)}
    np.savez(tmp_path / "x.npz", **objects, many=np.array([{"a": 1}, None], object))
    loaded = ph.load(tmp_path / "x.npz")
    assert loaded["name"] == "net"
    assert loaded["words"] == ["a", "bc"]
    assert loaded["many"] == [{"a": 1}, None]
    assert loaded["config"]["layers"] == [1, 2]
    assert np.array_equal(loaded["config"]["w"], config["w"])


class Callable:
    """Unpickling this would print."""

    def __reduce__(self) -> Any:
        return print, ("executed",)


def test_pickled_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", x=np.array(Callable(), object))
    with pytest.raises(IncompatibleFileError, match=r"builtins\.print"):
        ph.load(tmp_path / "x.npz")
    assert "executed" not in capsys.readouterr().out


def test_single_arrays_are_tensors(tmp_path: Path, device: ph.Device) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    assert ph.load(tmp_path / "x.npy", device).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_unknown_dtypes_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.clongdouble))
    with pytest.raises(UnsupportedDTypeError, match="complex256"):
        ph.load(tmp_path / "x.npz")


def test_archives_of_something_else_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("letter.txt", "hello")
    with pytest.raises(CorruptFileError, match=r"letter\.txt"):
        ph.load(tmp_path / "x.npz")


def test_claims_of_huge_size_are_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(CorruptFileError, match="bytes for shape"):
        ph.load(tmp_path / "x.npz")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_archives_raise_one_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.npz"
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(path, a=np.arange(6.0).reshape(2, 3), o=np.array({"x": [1, np.ones(2)]}, object), t=np.array("text"))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content)) | st.just(len(content))) :]
    path.write_bytes(content)
    with contextlib.suppress(PolyhalError):
        ph.load(path, "numpy")


def _shards(folder: Path) -> Path:
    safetensors.numpy.save_file({"a": np.ones(2, np.float32)}, folder / "model-1.safetensors")
    safetensors.numpy.save_file({"b": np.zeros((2, 3), np.float32)}, folder / "model-2.safetensors")
    index = folder / "model.safetensors.index.json"
    places = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": places}, indent=2))
    return index


@pytest.mark.parametrize("lazy", [False, True])
def test_shards_load_by_their_index_or_folder(lazy: bool, tmp_path: Path, device: ph.Device) -> None:
    for path in (_shards(tmp_path), tmp_path):
        loaded = ph.load(path, device, lazy=lazy)
        assert {name: loaded[name].shape for name in loaded} == {"a": (2,), "b": (2, 3)}
        assert loaded["a"].tolist() == [1, 1]
    if lazy:
        assert loaded.shape_of("b") == (2, 3)


def test_shards_of_pytorch(tmp_path: Path, numpy_device: ph.Device) -> None:
    torch = pytest.importorskip("torch")
    tied = torch.ones(2)
    torch.save({"a": tied, "c": tied}, tmp_path / "p-1.bin")
    torch.save({"b": torch.zeros(3)}, tmp_path / "p-2.bin")
    places = {"a": "p-1.bin", "b": "p-2.bin", "c": "p-1.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    loaded = ph.load(tmp_path)
    assert list(loaded) == ["a", "b", "c"]
    assert loaded["a"] is loaded["c"]


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({"a": "../model-1.safetensors"}, "elsewhere"),
        ({"a": "absent.safetensors"}, "lacks absent"),
        ({"b": "model-1.safetensors"}, "lacks tensor 'b'"),
        ([], "damaged"),
        ({"a": 3}, "elsewhere"),
        ({"a": [3]}, "damaged"),
    ],
)
def test_wrong_indexes_are_refused(places: Any, problem: str, tmp_path: Path) -> None:
    index = _shards(tmp_path)
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(CorruptFileError, match=problem):
        ph.load(index, "numpy")
