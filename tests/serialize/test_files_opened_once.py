"""Files are opened once: concurrent saves, pipes and forged sizes do no harm, and loading takes linear time."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import CorruptFileError
from polyhal.serialize.files import open_state

SAVER = """
import sys, numpy as np, polyhal as ph
for i in range(10**9):
    ph.save({f"x{j}": np.full(50, i, np.int32) for j in range(40)}, sys.argv[1])
"""


@pytest.mark.parametrize("name", ["x.safetensors", "folder"])
def test_a_state_that_another_process_saves_all_the_time_is_always_one_of_its_states(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    saver = subprocess.Popen([sys.executable, "-c", SAVER, str(path)])
    try:
        while not ((path.is_dir() and (path / "state.json").exists()) or path.is_file()):
            assert saver.poll() is None
            time.sleep(0.01)
        seen, end = set(), time.monotonic() + 2
        while time.monotonic() < end:
            state = ph.load(path, "numpy")
            values = {int(v) for array in state.values() for v in np.asarray(array)}
            assert len(values) == 1
            seen |= values
    finally:
        saver.kill()
        saver.wait()
    assert len(seen) > 2


def torch_like(path: Path, arrays: dict[str, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({k: torch.tensor(v) for k, v in arrays.items()}, path)


WRITERS = {
    "x.safetensors": lambda path, arrays: ph.save(arrays, path),
    "x.npz": lambda path, arrays: np.savez(path, **arrays),
    "x.pt": torch_like,
}


@pytest.mark.parametrize("name", WRITERS)
def test_tensors_are_read_from_the_file_that_was_opened(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    old, new = ({f"x{i}": np.full((30_000,), value + i, np.int32) for i in range(3)} for value in (0, 100))
    WRITERS[name](path, old)
    _, source = open_state(path)
    (tmp_path / "new").mkdir()
    WRITERS[name](tmp_path / "new" / name, new)
    os.replace(tmp_path / "new" / name, path)
    for i, stored in enumerate(source.names):
        assert np.array_equal(source.read(stored), old[f"x{i}"])


def test_loading_is_linear_in_the_number_of_tensors(tmp_path: Path) -> None:
    seconds = []
    for count in (500, 4000):
        ph.save({f"x{i}": np.zeros(0, np.float32) for i in range(count)}, tmp_path / "x.safetensors")
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            assert len(ph.load(tmp_path / "x.safetensors", "numpy")) == count
            times.append(time.perf_counter() - begin)
        seconds.append(min(times))
    assert seconds[1] < 4 * 8 * seconds[0]  # 8 times as many tensors; quadratic would be 64 times as long


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("place", ["x.safetensors", "folder/state.json", "folder/tensors-000001.safetensors"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, place: str) -> None:
    ph.save({"x": np.zeros(3)}, tmp_path / "folder")
    (tmp_path / place).unlink(missing_ok=True)
    os.mkfifo(tmp_path / place)
    with pytest.raises(CorruptFileError, match=r"expected a file or a folder|lacks tensors"):
        ph.load(tmp_path / place.partition("/")[0], "numpy")


def test_a_device_is_refused_at_once() -> None:
    with pytest.raises(CorruptFileError, match="is a pipe or a device"):
        ph.load("/dev/zero", "numpy")


@pytest.mark.parametrize("shape", [[2**62, 0, 2**62], [1] * 200, [0] * 200, [2**40, 2**40, 0]], ids=str)
def test_an_impossible_shape_counts_as_damage(tmp_path: Path, shape: list[int]) -> None:
    data = b"" if 0 in shape else bytes(4)
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    with pytest.raises(CorruptFileError, match=r"'a' of .* cannot be read|overflow computing"):
        ph.load(path, "numpy")
    lengths = tuple(shape)
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {lengths}, }}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    with pytest.raises(CorruptFileError):
        ph.load(tmp_path / "x.npy", "numpy")


def test_zeros_next_to_a_small_tensor_take_no_memory(tmp_path: Path) -> None:
    """The zip is deflated to a thousandth of its storage of 64 MiB. The tensor is a view of 3 elements."""
    torch = pytest.importorskip("torch")
    small = io.BytesIO()
    torch.save({"x": torch.arange(3.0)}, small)
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            data = old.read(member)
            with new.open(member, "w") as out:
                out.write(data)
                if member.endswith("data/0"):
                    for _ in range(64):
                        out.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    assert ph.load(path, "numpy")["x"].tolist() == [0, 1, 2]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_pickle_of_zeros_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new, new.open("x/data.pkl", "w") as out:
        for _ in range(100):
            out.write(bytes(1 << 20))
    with pytest.raises(CorruptFileError, match="a description of the tensors of 104857600 bytes"):
        ph.load(path, "numpy")


def test_views_of_one_large_storage_read_only_their_parts(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    flat = torch.arange(1 << 20, dtype=torch.int32)
    torch.save([flat[i << 10 : (i + 1) << 10] for i in range(1 << 10)], tmp_path / "x.pt")
    parts = ph.load(tmp_path / "x.pt", "numpy")
    assert np.array_equal(np.concatenate([p.numpy() for p in parts]), flat.numpy())
