"""Names and promotion of dtypes, and arrays of other libraries."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal.signal import windows


def test_names_of_pytorch_are_the_same_dtypes() -> None:
    names = {"bool": "bool_", "half": "float16", "float": "float32", "double": "float64"}
    names |= {"short": "int16", "int": "int32", "long": "int64"}
    for theirs, ours in names.items():
        assert getattr(ph, theirs) is getattr(ph, ours)
    assert not {"bool", "int", "float"} & {*vars(ph)}


def test_promotion_of_tensors_dtypes_and_numbers(numpy_device: ph.Device) -> None:
    x = ph.ones(2, dtype=ph.float16, device=numpy_device)
    assert ph.result_type(x, 1.5) is ph.float16
    assert ph.result_type(ph.int32, 1.5) is ph.float32
    assert ph.result_type(x, ph.float64, 2) is ph.float64
    assert ph.result_type(1, True) is ph.int64
    assert ph.promote_types("int8", "uint8") is ph.int16
    assert ph.can_cast(ph.int8, ph.int16)
    assert not ph.can_cast(ph.float64, ph.float32)
    assert ph.is_floating_point(x)
    assert ph.is_signed(x)
    assert not ph.is_complex(x)
    assert ph.numel(x) == 2
    assert ph.broadcast_shapes(3, (2, 1)) == (2, 3)


def test_the_default_dtype_is_fixed() -> None:
    ph.set_default_dtype(ph.get_default_dtype())
    with pytest.raises(ValueError, match="not float64"):
        ph.set_default_dtype(ph.float64)


def test_arrays_become_tensors(device: ph.Device) -> None:
    a = np.arange(3, dtype=np.float32)
    x = ph.asarray(a, device=device)
    assert ph.asarray(x) is x
    assert ph.asarray(x, copy=True) is not x
    assert ph.from_dlpack(a, device=device).tolist() == [0.0, 1.0, 2.0]
    for data, dtype in ((a, "int32"), (a.tolist(), None), (np.asarray([True]), "uint8")):
        with pytest.raises(ValueError, match="takes a copy"):
            ph.asarray(data, dtype, device=device, copy=False)


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("bartlett", "blackman", "cosine", "hamming", "hann", "nuttall")),
        ("exponential", {"tau": 2.0}),
        ("gaussian", {"std": 1.5}),
        ("general_cosine", {"a": [0.5, 0.3, 0.2]}),
        ("general_hamming", {"alpha": 0.7}),
        ("kaiser", {"beta": 8.0}),
    ],
)
def test_windows_agree_with_scipy(
    name: str, options: dict[str, float], sym: bool, length: int, numpy_device: ph.Device
) -> None:
    scipy_signal = pytest.importorskip("scipy.signal", reason="SciPy is a development dependency")
    theirs = getattr(scipy_signal.windows, name)(length, sym=sym, **options)
    ours = getattr(windows, name)(length, sym=sym, dtype=ph.float64, device=numpy_device, **options)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-14)
