"""Tensors: making them, reading them, changing them in place."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1.0, 2.0], "float32"),
        ([1, 2], "int64"),
        ([True, False], "bool_"),
        (1.5, "float32"),
        (3, "int64"),
        ([], "float32"),
        (np.ones(2, np.float64), "float64"),
        (np.ones(2, np.float16), "float16"),
        (np.arange(3, dtype=np.uint8), "uint8"),
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16"),
        (np.float32(2), "float32"),
        ([[1, 2.5]], "float32"),
    ],
)
def test_dtype_of_data(data: Any, dtype: str, numpy_device: Device) -> None:
    x = Tensor(data, device=numpy_device)
    assert x.dtype.name == dtype
    np.testing.assert_array_equal(x.numpy().astype(np.float64), np.asarray(data, np.float64))


@pytest.mark.parametrize("data", [[[1, 2], [3]], ["a"], [None], [1j], object()])
def test_data_that_is_no_array(data: Any, numpy_device: Device) -> None:
    with pytest.raises(TypeError, match=r"\[tensor\]"):
        Tensor(data, device=numpy_device)


def test_making_a_tensor_copies(device: Device) -> None:
    source = np.arange(3, dtype=np.float32)
    x = Tensor(source, device=device)
    source[:] = 9
    assert x.tolist() == [0.0, 1.0, 2.0]
    y = Tensor(x)
    y.fill_(7)
    assert x.tolist() == [0.0, 1.0, 2.0]
    out = x.numpy()
    out[:] = 5
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_metadata(device: Device) -> None:
    x = polyhal.zeros((2, 3, 4), dtype="float16", device=device)
    assert (x.shape, x.ndim, x.size, x.numel(), x.itemsize, x.nbytes, x.strides) == (
        (2, 3, 4),
        3,
        24,
        24,
        2,
        48,
        (12, 4, 1),
    )
    assert x.is_contiguous
    assert not x.mT.is_contiguous
    assert x.T.shape == (4, 3, 2)
    assert len(x) == 2
    assert [row.shape for row in x] == [(3, 4)] * 2
    assert x.device is device


def test_in_looks_for_an_equal_element(device: Device) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert 2 in x
    assert 5.0 not in x
    assert x[0, 1] in x
    assert 1.0 not in Tensor(np.zeros((0, 2), np.float32), device=device)


def test_a_number_beyond_half_precision_is_infinite_without_a_warning(device: Device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert polyhal.full((2,), 1e6, dtype="float16", device=device).tolist() == [np.inf] * 2


def test_numbers_from_tensors(device: Device) -> None:
    x = Tensor([[2.5]], device=device)
    assert (x.item(), float(x), int(x), x.tolist()) == (2.5, 2.5, 2, [[2.5]])
    assert bool(x)
    assert not Tensor(0, device=device)
    assert [10, 20, 30][Tensor(1, device=device)] == 20
    with pytest.raises(ValueError, match=r"\[item\] a tensor of shape \(2,\) has 2 elements; expected 1"):
        polyhal.zeros((2,), device=device).item()
    with pytest.raises(ValueError, match=r"neither true nor false; use \.any\(\) or \.all\(\)"):
        bool(polyhal.zeros((2,), device=device))
    with pytest.raises(TypeError, match="cannot be an index"):
        [1, 2][x]
    with pytest.raises(TypeError, match="no length"):
        len(Tensor(1.0, device=device))


def test_numpy_protocol(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device)
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    np.testing.assert_allclose(x, [1, 2])
    if device.name.startswith(("wgpu", "numpy:contiguous_only")):  # without host-visible memory
        with pytest.raises(ValueError, match="copy=False"):
            np.asarray(x, copy=False)
        return
    shared = np.asarray(x, copy=False)
    x.fill_(3.0)
    device.synchronize()
    assert shared.tolist() == [3, 3], "memory of CPU devices is host-visible"


def test_moving_and_casting(device: Device) -> None:
    x = Tensor([1.5, -2.5], device=device)
    assert x.to(device) is x
    assert x.to("float32") is x
    assert x.to("f4").dtype is x.to("float32").dtype, "NumPy's short names are dtypes, not devices"
    assert x.astype("float32") is not x
    assert x.to("int32").tolist() == [1, -2]
    assert x.half().dtype is polyhal.float16
    assert x.bfloat16().dtype is polyhal.bfloat16
    assert x.half().float().tolist() == [1.5, -2.5]
    assert x.cpu().device is x.to("cpu").device is Device("cpu")
    there = x.to("numpy", polyhal.float16)
    assert (there.device.name, there.dtype) == ("numpy", polyhal.float16)
    back = there.to(device)
    assert back.tolist() == [1.5, -2.5]


def test_casts_under_pytorch_names(numpy_device: Device) -> None:
    x = Tensor([1.5, 0.0], device=numpy_device)
    casts = [x.bool(), x.byte(), x.char(), x.short(), x.int(), x.long(), x.half(), x.double()]
    names = [c.dtype.name for c in casts]
    assert names == ["bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "float64"]
    assert x.int().type_as(x).tolist() == [1.0, 0.0]
    assert x.to(x) is x
    assert x.to(x.double()).dtype is polyhal.float64
    assert x.to(dtype=polyhal.int8).dtype is polyhal.int8
    assert x.to(device="numpy", dtype="float64", non_blocking=True).dtype is polyhal.float64
    assert x.to("numpy", polyhal.float32, True) is x
    assert x.to("float32", copy=True) is not x
    assert x.astype("float32", copy=False) is x
    assert x.is_floating_point()
    assert not x.bool().is_floating_point()
    assert (x.dim(), x.nelement(), x.element_size(), x.stride(), x.stride(0)) == (1, 2, 4, (1,), 1)


def test_one_number_takes_a_format(numpy_device: Device) -> None:
    assert f"{Tensor(1.23456):.3f}" == "1.235"
    assert f"{Tensor([[7]]):>4d}" == "   7"
    assert f"{Tensor([1, 2])}" == repr(Tensor([1, 2]))
    with pytest.raises(TypeError, match=r"\[format\].* shape \(2,\) has 2"):
        f"{Tensor([1.0, 2.0]):.3f}"


def test_gradients_flow_between_devices(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device, requires_grad=True)
    other = Device("numpy:no_f64") if device.name == "numpy" else Device("numpy")
    (x.to(other) * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.device is device
    assert x.grad.tolist() == [3.0, 3.0]


def test_in_place_changes_count_versions(device: Device) -> None:
    x = polyhal.ones((2, 2), device=device)
    version = x.buffer.version
    for step, change in enumerate(
        [
            lambda: x.fill_(2),
            lambda: x.zero_(),
            lambda: x.add_(1),
            lambda: x.copy_(polyhal.ones((2,), device=device)),
            lambda: x.mul_(polyhal.full((2, 2), 3.0, device=device)),
            lambda: x[0].sub_(1),
            lambda: x[:, 1].div_(2),
        ],
        1,
    ):
        change()
        assert x.buffer.version == version + step
    assert x.tolist() == [[2.0, 1.0], [3.0, 1.5]]
    x[0, 0] = 9
    x[1:] = Tensor([7, 8], device=device)
    assert x.buffer.version == version + 9
    assert x.tolist() == [[9.0, 1.0], [7.0, 8.0]]


def test_in_place_keeps_shape_and_dtype(device: Device) -> None:
    x = polyhal.ones((2,), dtype="int32", device=device)
    with pytest.raises(ValueError, match="expected the target's"):
        x.add_(1.5)
    with pytest.raises(ValueError, match="expected the target's"):
        x.add_(polyhal.ones((3, 2), dtype="int32", device=device))
    assert x.tolist() == [1, 1]


def test_in_place_on_a_view_changes_the_whole(device: Device) -> None:
    x = polyhal.zeros((3, 4), device=device)
    x.mT[1].fill_(5)
    x[::2, ::3].add_(1)
    assert x.tolist() == [[1.0, 5.0, 0.0, 1.0], [0.0, 5.0, 0.0, 0.0], [1.0, 5.0, 0.0, 1.0]]


def test_detach_shares_memory(device: Device) -> None:
    x = polyhal.ones((2,), device=device, requires_grad=True)
    y = x.detach()
    assert not y.requires_grad
    assert y.buffer is x.buffer
    assert x.clone().buffer is not x.buffer


def test_leaves_and_results(device: Device) -> None:
    x = polyhal.ones((2,), device=device, requires_grad=True)
    y = x * 2
    assert x.is_leaf
    assert not y.is_leaf
    with pytest.raises(AutogradError, match="set on leaves only"):
        y.requires_grad_(False)
    with pytest.raises(AutogradError, match="int64 tensor cannot have gradients"):
        Tensor([1, 2], device=device, requires_grad=True)


def test_printing(device: Device) -> None:
    x = Tensor([[1.0, 2.5]], device=device)
    assert repr(x) == f"tensor([[1. , 2.5]], dtype=polyhal.float32, device='{device.name}')"
    assert "requires_grad=True" in repr(Tensor(1.0, device=device, requires_grad=True))
    assert "grad_fn=multiply" in repr(Tensor(1.0, device=device, requires_grad=True) * 2)
    assert "shape=(0, 3)" in repr(polyhal.zeros((0, 3), device=device))
    assert "1.5" in repr(Tensor([1.5], dtype="bfloat16", device=device))


@pytest.mark.parametrize("shape", [(70_000,), (7, 10_000), (10_000, 8), (3, 2, 20_000), (8, 9, 1_000)])
def test_a_large_tensor_prints_as_its_array_does(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(5).normal(0, 1000, shape).astype("float32")
    values.ravel()[30_000] = np.nan  # not shown, so that columns are no wider
    expected = np.array2string(values, separator=", ", prefix="tensor(", precision=4, threshold=200)
    assert repr(polyhal.tensor(values, device="numpy")).startswith(f"tensor({expected}, dtype=")


def test_printing_reads_shown_elements() -> None:
    wide = polyhal.zeros((1,), device="numpy").expand((10**6, 10**6))  # 3.6 TiB, if all were read
    assert repr(wide).count("...") == 7


def test_creation(device: Device) -> None:
    assert polyhal.eye(2, 3, device=device).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert polyhal.linspace(0, 1, 3, device=device).tolist() == [0.0, 0.5, 1.0]
    assert polyhal.arange(5, 0, -2, device=device).tolist() == [5, 3, 1]
    assert polyhal.full((2,), True, device=device).dtype is polyhal.bool_
    like = polyhal.zeros((2,), dtype="float16", device=device)
    for made in (polyhal.zeros_like(like), polyhal.ones_like(like), polyhal.full_like(like, 3)):
        assert (made.shape, made.dtype, made.device) == ((2,), polyhal.float16, device)


def test_comparison_is_elementwise_and_hash_is_identity(device: Device) -> None:
    x, y = Tensor([1.0, 2.0], device=device), Tensor([1.0, 3.0], device=device)
    assert (x == y).tolist() == [True, False]
    assert (x != y).tolist() == [False, True]
    assert len({x, y, x}) == 2


@pytest.mark.parametrize(
    "name", ["sum", "mean", "reshape", "exp", "softmax", "matmul", "transpose", "relu", "squeeze", "flip", "std"]
)
def test_functions_are_methods_too(name: str) -> None:
    assert callable(getattr(Tensor, name))
    assert callable(getattr(polyhal, name))


def test_composites(device: Device) -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = Tensor(a, device=device)
    np.testing.assert_array_equal(x.moveaxis(0, 2).numpy(), np.moveaxis(a, 0, 2))
    np.testing.assert_array_equal(x[None, :, None].squeeze().numpy(), a)
    np.testing.assert_array_equal(x.flatten(1).numpy(), a.reshape(2, 12))
    np.testing.assert_array_equal(x.flip((0, 2)).numpy(), np.flip(a, (0, 2)))
    np.testing.assert_array_equal(polyhal.stack([x, x], -1).numpy(), np.stack([a, a], -1))
    np.testing.assert_array_equal(polyhal.concat(x.split([1, 2], 1), 1).numpy(), a)
    assert [p.shape for p in x.chunk(3, -1)] == [(2, 3, 2), (2, 3, 2)]
    np.testing.assert_allclose(x.std(axis=1, correction=1).numpy(), a.std(axis=1, ddof=1), rtol=1e-6)
    np.testing.assert_array_equal(x.take(Tensor([[2, -1]], device=device), 1).numpy(), a.take([[2, -1]], 1))


def test_matmul_follows_numpy(device: Device) -> None:
    rng = np.random.default_rng(0)
    for shape_a, shape_b in [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 1, 2, 3), (4, 3, 5)),
    ]:
        a, b = rng.normal(size=shape_a).astype(np.float32), rng.normal(size=shape_b).astype(np.float32)
        np.testing.assert_allclose(
            (Tensor(a, device=device) @ Tensor(b, device=device)).numpy(), a @ b, rtol=1e-5, atol=1e-6
        )
    with pytest.raises(ValueError, match="at least one axis each"):
        Tensor(2.0, device=device) @ Tensor([1.0], device=device)


def test_dtypes_and_devices_travel_by_name() -> None:
    assert pickle.loads(pickle.dumps(polyhal.bfloat16)) is polyhal.bfloat16
