"""Tensors that other libraries use without a copy."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph

DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_is_shared_without_a_copy(dtype: str) -> None:
    x = ph.tensor(np.arange(24).reshape(2, 3, 4) % 2, dtype=dtype, device="numpy")
    shared = np.from_dlpack(ph.to_dlpack(x, device=True))
    assert shared.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(shared, x.numpy())
    x += x
    np.testing.assert_array_equal(shared, x.numpy())


def test_pytorch_takes_views_and_bfloat16_and_writes_into_them() -> None:
    x = ph.arange(24, dtype="bfloat16", device="numpy").reshape((4, 6))
    taken = torch.from_dlpack(ph.to_dlpack(x[1:3, ::2].mT, device=True))
    assert taken.dtype is torch.bfloat16
    assert taken.tolist() == x[1:3, ::2].mT.tolist()
    taken.zero_()
    assert x[1:3, ::2].float().sum().item() == 0
    assert x[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_memory_lives_as_long_as_it_is_used() -> None:
    device = ph.Device("numpy")
    x = ph.ones((1000,), device=device)
    buffer = weakref.ref(x.buffer)
    export = ph.to_dlpack(x, device=True)
    capsule: Any = export.__dlpack__()
    del x, export
    gc.collect()
    assert buffer() is not None, "the capsule keeps it"
    del capsule
    gc.collect()
    assert buffer() is None, "a capsule that nobody has taken releases it"
    y = ph.ones((1000,), device=device)
    buffer = weakref.ref(y.buffer)
    taken = torch.from_dlpack(ph.to_dlpack(y, device=True))
    del y
    gc.collect()
    assert buffer() is not None
    assert taken.sum() == 1000
    del taken
    gc.collect()
    assert buffer() is None


def test_other_devices_are_refused() -> None:
    export = ph.to_dlpack(ph.ones((2,), device="numpy"), device=True)
    assert export.__dlpack_device__() == (1, 0)
    for wrong in ({"dl_device": (2, 0)}, {"copy": True}):
        with pytest.raises(BufferError, match=r"expected \(1, 0\) and no copy"):
            export.__dlpack__(**wrong)


def test_a_device_without_addresses_says_so() -> None:
    with pytest.raises(BufferError, match="no memory that other libraries reach"):
        ph.to_dlpack(ph.ones((2,), device="sim"), device=True)
