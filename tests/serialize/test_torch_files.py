"""PyTorch's files load by name, compared with PyTorch, and hostile ones raise one clear error and run no code."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, PolyhalError, UnsupportedDTypeError
from polyhal.serialize.readers.pickle_names import DATA_NAMES
from polyhal.serialize.readers.pickles import PickleReader

torch = pytest.importorskip("torch")
WRITERS: dict[str, dict[str, Any]] = {
    "zip": {},
    "zip, protocol 4": {"pickle_protocol": 4},
    "legacy": {"_use_new_zipfile_serialization": False},
}


@pytest.fixture(params=WRITERS, ids=str)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Path]:
    """Save with PyTorch under a name that does not indicate the format."""

    def save(state: Any) -> Path:
        path = tmp_path / "weights"
        torch.save(state, path, **WRITERS[request.param])
        return path

    return save


def equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        theirs = theirs.detach()
        expected = (
            theirs.float().numpy().astype(ml_dtypes.bfloat16) if theirs.dtype is torch.bfloat16 else theirs.numpy()
        )
        actual = ours.numpy()
        return (
            isinstance(ours, ph.Tensor)
            and actual.dtype == expected.dtype
            and actual.shape == expected.shape
            and actual.tobytes() == expected.tobytes()
        )
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and list(ours) == list(theirs) and all(equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (list, tuple)):
        kind = list if isinstance(theirs, list) else tuple
        return type(ours) is kind and len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


def test_every_dtype(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    kinds = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    state = {name: torch.tensor([[0, 1, 3], [5, 1, 0]]).to(getattr(torch, name)) for name in kinds}
    assert equal(ph.load(write(state)), state)


def test_unsigned_dtypes(tmp_path: Path, numpy_device: ph.Device) -> None:
    state = {name: torch.tensor([0, 1, 3]).to(getattr(torch, name)) for name in ("uint16", "uint32", "uint64")}
    torch.save(state, tmp_path / "x.pt")
    assert equal(ph.load(tmp_path / "x.pt"), state)


def test_views_keep_their_strides_and_offsets(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    base = torch.arange(60.0).reshape(3, 4, 5)
    state = [
        base,
        base.permute(2, 0, 1),
        base[1:, ::2, 3],
        base[0, 0, :1].expand(4, 7),
        torch.tensor(2.0),
        base[:0],
        base[2, 3, 4],
        base[None].to(memory_format=torch.channels_last),
        base.as_strided((3, 3), (1, 2), 4),
    ]
    assert equal(ph.load(write(state)), state)


def test_plain_data(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    state = {
        "numbers": [1, -(2**70), 2.5, True, None, "text é"],
        "tuple": (1, (2,)),
        3: {"k": b"bytes"},
        "set": {1, 2},
        "ordered": OrderedDict(a=1, b=[torch.ones(2)]),
    }
    loaded = ph.load(write(state))
    assert equal(loaded, state | {"ordered": dict(state["ordered"])})  # type: ignore[call-overload]
    more = {"size": torch.Size([2, 3]), "counter": Counter("aab"), "default": defaultdict(list, x=[1])}
    assert ph.load(write(more)) == {"size": (2, 3), "counter": {"a": 2, "b": 1}, "default": {"x": [1]}}
    odd = {"dtype": torch.bfloat16, "device": torch.device("cuda:1"), "complex": 1 + 2j}
    assert ph.load(write(odd)) == {"dtype": ph.bfloat16, "device": "cuda:1", "complex": 1 + 2j}


def test_numpy_values_inside(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    loaded = ph.load(write({"scalar": np.float64(2.5), "array": array, "objects": np.array([1, "a"], object)}))
    assert loaded["scalar"] == 2.5
    assert loaded["objects"] == [1, "a"]
    assert np.array_equal(loaded["array"], array)
    assert loaded["array"].dtype == np.int32


def test_tied_weights_stay_tied(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    layer = torch.nn.Linear(3, 3)
    loaded = ph.load(write({"a": layer.weight, "b": layer.weight, "state": layer.state_dict()}))
    assert loaded["a"] is loaded["b"]
    assert loaded["a"] is loaded["state"]["weight"]


def test_a_model_and_its_optimizer_continue(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    x = torch.randn(5, 4)
    theirs(x).square().sum().backward()
    optimizer.step()
    state = ph.load(write({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}))
    ours = ph.nn.Sequential(ph.nn.Linear(4, 3), ph.nn.BatchNorm1d(3))
    ours.load_state_dict({k: v for k, v in state["model"].items() if k in ours.state_dict()})
    expected = theirs.eval()(x).detach().numpy()
    np.testing.assert_allclose(ours.eval()(ph.tensor(x.numpy())).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert equal(state["optimizer"]["state"], optimizer.state_dict()["state"])
    assert state["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)


def test_lazy_access_reads_shapes_and_tensors(write: Callable[[Any], Path], numpy_device: ph.Device) -> None:
    state = {"model": {"w": torch.ones(2, 3), "b": torch.zeros(3)}}
    lazy = ph.load(write(state), lazy=True)["model"]
    assert lazy.shape_of("w") == (2, 3)
    assert equal(dict(lazy), state["model"])


def test_big_endian_files(tmp_path: Path, numpy_device: ph.Device) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.tensor([1.0, 2.0])}, path)
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in content.items():
            data = b"big" if name.endswith("byteorder") else struct.pack(">2f", 1, 2) if "/data/" in name else data
            new.writestr(name, data)
    assert ph.load(path)["x"].tolist() == [1, 2]


def test_tensors_of_unknown_dtypes_are_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2, dtype=torch.complex64)}, tmp_path / "x.pt")
    with pytest.raises(UnsupportedDTypeError, match=r"ComplexFloatStorage|complex64"):
        ph.load(tmp_path / "x.pt")


def test_whole_modules_are_refused_with_the_remedy(write: Callable[[Any], Path]) -> None:
    with pytest.raises(IncompatibleFileError, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
        ph.load(write(torch.nn.Linear(2, 2)))


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path, function: Any = os.system) -> None:
        self.marker = marker
        self.function = function

    def __reduce__(self) -> Any:
        return self.function, (f"touch {self.marker}",)


def test_bombs_do_not_go_off(write: Callable[[Any], Path], tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    for function in (os.system, eval, exec, __import__, getattr):
        with pytest.raises(IncompatibleFileError, match="not data"):
            ph.load(write({"x": Bomb(marker, function)}))
    assert not marker.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cposix\nsystem\n(S'touch x'\ntR.",
        b"(S'touch x'\niposix\nsystem\n.",
        b"(cposix\nsystem\nS'touch x'\no.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01x\x85R.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04cnumpy\ndtype\n)}\x92.",
        b"cbuiltins\ngetattr\n.",
        b"ccollections\nOrderedDict\n}S'__class__'\nN\x86b.",
        b"cnumpy\ndtype\nN}S'make'\nI1\ns\x86b.",
        b"cbuiltins\nbytearray\nL99999999999L\n\x85R.",
        b"cbuiltins\nlist\nL99999999999L\n\x85R.",
        b"\x8e" + (2**62).to_bytes(8, "little") + b"x.",
        b"\x96" + (2**62).to_bytes(8, "little") + b"x.",
        b"\x8b\xff\xff\xff\x7f1.",
        b"]\x94h\x00a.",
        b"(" * 5000,
        b"Pname\n.",
        b"",
        b".",
        b"\x81.",
        b"K\x01\x87.",
    ],
)
def test_hostile_instructions_are_refused(data: bytes) -> None:
    allowed = (PolyhalError, ValueError, LookupError, TypeError, AttributeError)
    try:
        value = PickleReader(DATA_NAMES).read(io.BytesIO(data))
    except allowed:
        return
    assert value == [value] or type(value) in (list, dict), "only plain data comes out"


def test_names_refer_only_to_constructors_of_data() -> None:
    """No entry of the table is a class or function of Python that a file could call or change."""
    assert {type(entry).__name__ for entry in DATA_NAMES.values()} == {"PickleConstructor", "str"}


def test_state_that_contains_itself_is_refused(write: Callable[[Any], Path]) -> None:
    state: dict[str, Any] = {}
    state["self"] = [state]
    with pytest.raises(CorruptFileError, match="contains itself"):
        ph.load(write(state))


def test_state_that_grows_without_bound_is_refused(write: Callable[[Any], Path]) -> None:
    state: list[Any] = [0]
    for _ in range(60):
        state = [state] * 10
    with pytest.raises(CorruptFileError, match="values"):
        ph.load(write(state))


def test_deep_nesting_is_refused(write: Callable[[Any], Path], tmp_path: Path) -> None:
    path = tmp_path / "deep"
    path.write_bytes(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    with pytest.raises(CorruptFileError, match="damaged"):
        ph.load(path)


def test_huge_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.ones(1).expand(2**40)}, path)
    with pytest.raises(CorruptFileError, match="broadcast"):
        ph.load(path)


def test_zip_bombs_and_names_that_climb_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    storage = ("storage", torch.FloatStorage, "../../../etc/passwd", "cpu", 2)
    data = io.BytesIO()

    class Writer(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return storage if isinstance(value, bytearray) else None

    Writer(data, 2).dump({"x": bytearray()})
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("a/data.pkl", data.getvalue())
    with pytest.raises(CorruptFileError, match=r"lacks 'a/data/\.\./"):
        ph.load(path)
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("a/data.pkl", b"\x80\x02}.")
        new.writestr("../../evil", b"1")
    assert ph.load(path) == {}
    assert not (tmp_path.parent.parent / "evil").exists()


def _saved(**options: Any) -> bytes:
    file = io.BytesIO()
    state = {
        "w": torch.arange(6.0).reshape(2, 3).T,
        "o": OrderedDict(a=torch.ones(3, dtype=torch.bfloat16)),
        "n": [1, "x"],
    }
    torch.save(state, file, **options)
    return file.getvalue()


FILES = [_saved(), _saved(_use_new_zipfile_serialization=False)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_raise_one_kind_of_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content)) | st.just(len(content))) :]
    path = tmp_path_factory.getbasetemp() / "x.pt"
    path.write_bytes(content)
    try:
        loaded = ph.load(path, "numpy")
    except PolyhalError:
        return
    assert isinstance(loaded, (dict, list, int, str, ph.Tensor, tuple)) or loaded is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([bytes([i]) for i in range(40, 152)]) | st.binary(max_size=3), max_size=30))
def test_random_instructions_raise_one_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.pkl"
    path.write_bytes(b"\x80\x02" + b"".join(parts) + b".")
    with contextlib.suppress(PolyhalError):
        ph.load(path, "numpy")
