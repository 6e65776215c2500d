"""HTML of tensors and modules for notebooks: well-formed, escaped, abridged, with few reads."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn


class _Texts(HTMLParser):
    """Checks that elements close in order, and collects cells and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        assert not {name for name, _ in attrs} & {"src", "href"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def test_a_small_matrix_is_shown_whole(device: ph.Device) -> None:
    found = _Texts(ph.tensor([[1.5, -2.0, 3.25]], device=device)._repr_html_())
    assert found.cells == ["1.5", "-2", "3.25"]
    assert all(fact in found.text for fact in ("shape (1, 3)", "float32", device.name))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool_", "bfloat16", "complex64"])
def test_dtypes(numpy_device: ph.Device, dtype: str) -> None:
    x = ph.zeros((2,), dtype=getattr(ph, dtype), device=numpy_device)
    expected = {"bool_": "False", "complex64": "0+0j"}.get(dtype, "0")
    assert _Texts(x._repr_html_()).cells == [expected, expected]


def test_a_large_tensor_is_abridged(device: ph.Device) -> None:
    """The corners of the first matrix, as NumPy has them."""
    values = np.arange(2 * 20 * 30, dtype=np.float32).reshape(2, 20, 30)
    cells = np.array(_Texts(ph.tensor(values, device=device)._repr_html_()).cells).reshape(7, 7)
    assert (cells[3] == "⋮").all()
    assert set(cells[[0, 1, 2, 4, 5, 6], 3]) == {"…"}
    at = [0, 1, 2, -3, -2, -1]
    shown = np.delete(np.delete(cells, 3, 0), 3, 1).astype(np.float32)
    np.testing.assert_array_equal(shown, values[0][np.ix_(at, at)])


def test_odd_shapes(numpy_device: ph.Device) -> None:
    assert _Texts(ph.tensor(2.5, device=numpy_device)._repr_html_()).cells == ["2.5"]
    assert _Texts(ph.zeros((0, 3), device=numpy_device)._repr_html_()).cells == []
    assert len(_Texts(ph.zeros((100,), device=numpy_device)._repr_html_()).cells) == 7
    assert "requires grad" in ph.ones((2,), device=numpy_device, requires_grad=True)._repr_html_()


def test_a_lazy_layer_has_no_count_yet(numpy_device: ph.Device) -> None:
    with numpy_device:
        model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    assert "4 parameters, and 2 without a shape yet, 16 B" in _Texts(model._repr_html_()).text


def test_a_module_is_a_tree_with_parameter_counts(numpy_device: ph.Device) -> None:
    class Odd(nn.Module):
        def extra_repr(self) -> str:
            return "<script>&"

    with numpy_device:
        model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 1), Odd()))
    for p in model[0].parameters():
        p.requires_grad_(False)
    text = model._repr_html_()
    assert "<script>" not in text
    found = _Texts(text)
    assert "21 parameters, 5 trainable, 84 B" in found.text  # 3 * 4 + 4 + 4 + 1 floats
    assert "0: Linear(in_features=3, out_features=4, bias=True) 16" in found.text
    assert "1: Sequential() 5" in found.text
    assert "Odd(<script>&)" in found.text
