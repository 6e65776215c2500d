"""Checkpoint files: round trips, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.core.settings import processes
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.serialize import LazyState, files
from polyhal.serialize.tree import Encoder, decode

FORMS = ["state.safetensors", "folder"]


@pytest.fixture(params=FORMS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "deeper" / str(request.param)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, ph.Tensor):
        return (
            isinstance(b, ph.Tensor)
            and a.dtype is b.dtype
            and a.shape == b.shape
            and a.numpy().tobytes() == b.numpy().tobytes()
        )
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def test_round_trip(path: Path, device: ph.Device) -> None:
    kinds = list(device.capabilities.storage)
    state = {
        "tensors": {d.name: ph.tensor([1, 0, 3], dtype=d, device=device) for d in kinds},
        "shapes": [ph.tensor(2.5, device=device), ph.zeros((0, 3), device=device), ph.ones((2, 3, 4), device=device)],
        "view": ph.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3), device=device).T,
        "array": np.arange(4, dtype=np.uint16),
        "numbers": (1, -(2**70), 0.1, 1e-320, math.inf, -math.inf, math.nan, True, False, None),
        "text": 'Ünïcödé \x00 "quoted"',
        "keys": {0: {"step": 3}, "1": [], None: 2},
        "$odd": {"$tensor": "not one"},
        "empty": {},
    }
    ph.save(state, path)
    assert same(ph.load(path, device), state)
    assert ph.load(path, device)["view"].device is device


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(trees)
@settings(deadline=None)
def test_plain_values_survive(value: Any) -> None:
    text = json.dumps(Encoder().encode(value))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert same(decode(json.loads(text), None), value)  # type: ignore[arg-type]


def test_shared_tensors_stay_shared(path: Path) -> None:
    x = ph.ones((1000,), device="numpy")
    ph.save({"a": x, "b": {"c": x.detach()}, "d": x.clone()}, path)
    loaded = ph.load(path, "numpy")
    assert loaded["a"] is loaded["b"]["c"]
    assert loaded["a"] is not loaded["d"]


def test_names_cannot_collide(path: Path) -> None:
    state = {
        "a": {"b": ph.zeros((1,), device="numpy")},
        "a.b": ph.ones((1,), device="numpy"),
        "__metadata__": ph.ones((2,), device="numpy"),
    }
    ph.save(state, path)
    assert same(ph.load(path, "numpy"), state)


def test_lazy(path: Path) -> None:
    ph.save({"model": {"w": ph.ones((2, 3), device="numpy")}, "step": 3, "list": [ph.ones((1,), device="numpy")]}, path)
    state = ph.load(path, "numpy", lazy=True)
    assert isinstance(state["model"], LazyState)
    assert state["step"] == 3
    assert state["model"].shape_of("w") == (2, 3)
    assert state.shape_of("step") is None
    assert state["list"][0].tolist() == [1]
    assert state["model"]["w"] is not state["model"]["w"]
    layer = ph.nn.Module()
    layer.w = ph.nn.Parameter(ph.zeros((2, 3), device="numpy"))
    layer.load_state_dict(state["model"])
    assert layer.w.tolist() == [[1] * 3] * 2
    damage(path, b"\x00\x00\x80\x3f", b"\x00\x00\x80\x40")
    state = ph.load(path, "numpy", lazy=True)  # nothing is read yet
    with pytest.raises(CorruptFileError, match="altered"):
        state["model"]["w"]


def test_other_libraries_read_and_write_the_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    ph.save({"model": {"w": ph.tensor([1.0, 2], device="numpy"), "h": ph.tensor([1.0], ph.bfloat16, "numpy")}}, path)
    found = safetensors.numpy.load_file(path)
    assert found["model.w"].tolist() == [1, 2]
    safetensors.numpy.save_file({"a": np.arange(3), "b": np.ones((2, 2), np.float32)}, path)
    loaded = ph.load(path, "numpy")
    assert loaded["a"].tolist() == [0, 1, 2]
    assert loaded["b"].shape == (2, 2)


# --- damage ---------------------------------------------------------------------------------------------------------


def tensor_file(path: Path) -> Path:
    return path if path.is_file() else next(path.glob("*.safetensors"))


def damage(path: Path, old: bytes, new: bytes) -> None:
    file = tensor_file(path)
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new))


def write(path: Path) -> None:
    ph.save(
        {"first": ph.tensor([1.0, 2, 3], device="numpy"), "second": ph.tensor([4.0, 5, 6], device="numpy"), "n": 5},
        path,
    )


def test_every_truncation_is_noticed(path: Path) -> None:
    write(path)
    file = tensor_file(path)
    data = file.read_bytes()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(CorruptFileError) as caught:
            ph.load(path, "numpy")
        if size >= len(data) - 12:
            assert "'second'" in str(caught.value)
        elif size >= len(data) - 24:
            assert "'first'" in str(caught.value)


def test_every_altered_byte_is_noticed(path: Path) -> None:
    write(path)
    file = tensor_file(path)
    data = file.read_bytes()
    expected = ph.load(path, "numpy")
    for i in range(len(data)):
        file.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        try:
            found = ph.load(path, "numpy")
        except (CorruptFileError, IncompatibleFileError):
            continue
        # Only changes of the writer's name or of padding may go unnoticed.
        assert same(found, expected), f"byte {i} of {data[max(0, i - 20) : i + 20]!r}"


def test_altered_tensor_is_named(path: Path) -> None:
    write(path)
    damage(path, np.float32(5).tobytes(), np.float32(7).tobytes())
    with pytest.raises(CorruptFileError, match=r"tensor 'second' .* was altered"):
        ph.load(path, "numpy")


def test_other_schema(tmp_path: Path) -> None:
    write(tmp_path / "f")
    state = tmp_path / "f" / "state.json"
    state.write_text(state.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(IncompatibleFileError, match="schema 2; expected schema 1"):
        ph.load(tmp_path / "f", "numpy")
    write(tmp_path / "s.st")
    damage(tmp_path / "s.st", b'"polyhal.schema":"1"', b'"polyhal.schema":"9"')
    with pytest.raises(IncompatibleFileError, match="schema 9"):
        ph.load(tmp_path / "s.st", "numpy")


def test_damaged_folder(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path)
    state = path / "state.json"
    text = state.read_text()
    for broken, reason in [
        (text[:-9], "damaged"),
        ("[]", "damaged"),
        (text.replace('"n": 5', '"n": 6'), "altered"),
        (text.replace("tensors-000001", "tensors-000002"), "lacks tensors-000002"),
        (text.replace("tensors-000001", "../tensors-000001"), "in the same folder"),
    ]:
        assert broken != text
        state.write_text(broken)
        with pytest.raises(CorruptFileError, match=reason):
            ph.load(path, "numpy")
    state.unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks state\.json"):
        ph.load(path, "numpy")


def test_not_a_file_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(b"\x80\x04\x95 not safetensors")
    with pytest.raises(CorruptFileError, match="damaged"):
        ph.load(path, "numpy")
    path.write_bytes(b"text of somebody")
    with pytest.raises(
        CorruptFileError, match="damaged, or its format is unknown; expected a file of safetensors, PyTorch"
    ):
        ph.load(path, "numpy")
    with pytest.raises(FileNotFoundError):
        ph.load(tmp_path / "nothing.safetensors", "numpy")


def test_unsavable_values(path: Path) -> None:
    with pytest.raises(TypeError, match=r"a\.1\.f is a function"):
        ph.save({"a": [1, {"f": lambda: 0}]}, path)
    with pytest.raises(TypeError, match="a tuple as a key"):
        ph.save({"a": {(1, 2): 3}}, path)


# --- replacing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Make the operating system reject files beyond 20 kB, as on a full disk."""
    resource = pytest.importorskip("resource")
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, old)
    signal.signal(signal.SIGXFSZ, handler)


def test_full_disk_leaves_the_old_checkpoint(path: Path, small_disk: None) -> None:
    write(path)
    before = sorted(p.name for p in path.parent.rglob("*"))
    with pytest.raises(OSError, match="File too large"):
        ph.save({"big": ph.zeros((100_000,), device="numpy")}, path)
    assert sorted(p.name for p in path.parent.rglob("*")) == before
    assert ph.load(path, "numpy")["n"] == 5
    with pytest.raises(OSError, match="File too large"):
        ph.save({"big": ph.zeros((100_000,), device="numpy")}, path.with_name("new" + path.suffix))
    assert sorted(p.name for p in path.parent.rglob("*")) == before


def test_saving_over_an_old_checkpoint(path: Path) -> None:
    write(path)
    for n in range(3):
        ph.save({"n": n, "x": ph.tensor([float(n)], device="numpy")}, path)
        loaded = ph.load(path, "numpy")
        assert loaded["n"] == loaded["x"].item() == n
    assert len([p for p in path.parent.rglob("*") if p.is_file()]) == (1 if path.suffix else 2)


def test_permissions_equal_other_files(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    path = ph.save({"n": 1}, tmp_path / "x.safetensors")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o600)
    ph.save({"n": 2}, path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    kill = "import os, pathlib, sys; from polyhal.hal.core.settings.atomic import replacing\n"
    kill += "with replacing(pathlib.Path(sys.argv[1])) as file: os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", kill, str(tmp_path / "tensors-000001.safetensors")], check=False)
    assert len(list(tmp_path.glob(".tensors-*.tmp"))) == 1
    mine = tmp_path / f".x.{processes.mark()}.01234567.tmp"
    mine.touch()  # another thread of this process is writing
    ph.save({"n": 1, "x": ph.ones((2,), device="numpy")}, tmp_path)
    assert list(tmp_path.glob(".*.tmp")) == [mine]


def test_two_first_saves_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder = files._write_folder

    def overtaken(folder: Path, number: int, tree: Any, encoder: Encoder) -> None:
        write_folder(folder, number, tree, encoder)
        if not (tmp_path / "x").exists():
            (tmp_path / "x").mkdir()
            write_folder(tmp_path / "x", 1, {"n": 1}, Encoder())

    monkeypatch.setattr(files, "_write_folder", overtaken)
    ph.save({"n": 2}, tmp_path / "x")
    assert ph.load(tmp_path / "x", "numpy") == {"n": 2}
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == ["state.json", "tensors-000002.safetensors"]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
