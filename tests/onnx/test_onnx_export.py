"""Exported modules: onnxruntime and a loaded module compute the results of the module itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import CaptureError, UnsupportedOpError
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn import functional as F
from polyhal.onnx import export, load

pytestmark = pytest.mark.slow


class FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: ph.Tensor) -> Any:
        """Call the function."""
        return self.function(*args)


def _image_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 1, groups=2),
        nn.AvgPool2d(2, 1, 1),
        nn.AvgPool2d(2, 1, 0, divisor_override=3),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def _activations() -> nn.Module:
    kinds = (
        nn.Hardtanh,
        nn.ReLU6,
        nn.Hardsigmoid,
        nn.ELU,
        nn.SELU,
        nn.CELU,
        nn.Softplus,
        nn.Mish,
        nn.LeakyReLU,
        nn.PReLU,
    )
    return nn.Sequential(*(kind() for kind in (*kinds, nn.SiLU, nn.GELU, nn.Tanh, nn.LogSoftmax)))


def _assigned(x: ph.Tensor, value: ph.Tensor) -> tuple[ph.Tensor, ...]:
    """Return copies in which slices, columns, rows by number and elements of another dtype are written."""
    a, b, c, d = (x * 1 for _ in range(4))
    a[1:, ::2] = 0.5
    b[:, 1:3] = value
    b[1:3] += 2.0
    c[::-1, 0] = value[:, 1]
    d[ph.tensor([0, 2, -1], device=x.device)] = value[0, 1]
    counts = x.argmax(1)
    counts[1] = 7
    return a, b, c, d, counts


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "image": (_image_model, ((2, 3, 16, 16),)),
    "activations": (_activations, ((3, 4),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), ((2, 5, 8),)),
    "lstm": (lambda: nn.LSTM(3, 4, 2, bidirectional=True), ((5, 2, 3),)),
    "gru": (lambda: nn.GRU(3, 4), ((5, 2, 3),)),
    "volume": (lambda: nn.Sequential(nn.Conv3d(2, 3, 3), nn.GroupNorm(3, 3)), ((1, 2, 5, 5, 5),)),
    "norms": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.InstanceNorm1d(4), nn.RMSNorm(9)), ((2, 3, 9),)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4)), (np.array([[1, 6, 0]]),)),
    "causal": (
        lambda: FunctionModule(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        ((1, 2, 4, 8),),
    ),
    "elementwise": (
        lambda: FunctionModule(
            lambda x: ph.where(x > 0, ph.log1p(x * x) + x.std(1, keepdims=True), ph.cumsum(x, 1)).clip(-1, 2)
        ),
        ((3, 4),),
    ),
    "integers": (
        lambda: FunctionModule(lambda i: (i % 3, i // 2, i != 2, i.sum(), i.float() / 3)),
        (np.array([[1, 2, -5], [7, 0, 4]]),),
    ),
    "assignments": (lambda: FunctionModule(_assigned), ((4, 6), (4, 2))),
    "windows": (
        lambda: FunctionModule(lambda x: FUNCTIONS["window"](x, (3, 2, 2), (1, 5, 1), 2) * 2),
        ((4, 5),),
    ),
    "orders": (
        lambda: FunctionModule(
            lambda x: (x.sort(-1)[0], x.topk(2)[0], (x > 0).any(1), x.argmax(1), x.tril(), x.flip(0), x[:, ::2])
        ),
        ((3, 4),),
    ),
}


def _flat(value: Any) -> list[np.ndarray]:
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple) else [value.numpy()]


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_computes_the_same(name: str) -> None:
    ph.manual_seed(0)
    make, inputs = CASES[name]
    module = make().eval()
    given = tuple(ph.tensor(i) if isinstance(i, np.ndarray) else ph.randn(*i) for i in inputs)
    model = export(module, given)
    with ph.no_grad():
        expected = _flat(module(*given))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    runtime = session.run(None, {n: x.numpy() for n, x in zip(names, given, strict=True)})
    loaded = _flat(load(model, device="numpy")(*given))
    for wanted, *found in zip(expected, runtime, loaded, strict=True):
        for array in found:
            assert array.dtype == wanted.dtype
            # sums of up to a few hundred products of float32, in another order
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6 * max(np.abs(wanted).max(), 1))


def test_an_exported_model_keeps_names_and_is_written(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    path = tmp_path / "model.onnx"
    export(module, ph.ones((2, 4)), path, input_names=["features"], output_names=["scores"])
    model = onnx.load(path)
    assert [i.name for i in model.graph.input] == ["features"]
    assert [o.name for o in model.graph.output] == ["scores"]
    assert {t.name for t in model.graph.initializer} == {"0.weight", "0.bias"}
    loaded = load(path)
    assert sorted(loaded.state_dict()) == sorted(module.state_dict())
    assert module.training  # as before


def test_all_ops_without_a_form_are_listed() -> None:
    module = FunctionModule(lambda x: (ph.linalg.eigvalsh(x), ph.special.bessel_j0(x)))
    with pytest.raises(UnsupportedOpError, match="2 ops have no form in ONNX: symmetric_eigenvalues, bessel_j0"):
        export(module, ph.ones((2, 2)))


def test_a_module_that_counts_its_calls_is_refused() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", ph.zeros(()))

        def forward(self, x: ph.Tensor) -> ph.Tensor:
            self.calls.add_(1)
            return x * self.calls

    with pytest.raises(CaptureError, match="changes its state"):
        export(Counter(), ph.ones((2,)))


def test_bitwise_ops_of_booleans_and_writes_to_views(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    x, y = np.array([True, True, False]), np.array([True, False, False])
    export(FunctionModule(lambda x, y: (x & y, x | y, x ^ y, ~x)), (ph.tensor(x), ph.tensor(y)), path)
    session = onnxruntime.InferenceSession(path)
    given = dict(zip([i.name for i in session.get_inputs()], (x, y), strict=True))
    for found, expected in zip(session.run(None, given), (x & y, x | y, x ^ y, ~x), strict=True):
        np.testing.assert_array_equal(found, expected)

    def write(x: ph.Tensor) -> ph.Tensor:
        doubled = x * 2.0
        doubled[:, 0].add_(5.0)
        return doubled

    export(FunctionModule(write), (ph.ones((3, 4)),), path)
    session = onnxruntime.InferenceSession(path)
    expected = np.full((3, 4), 2.0, np.float32)
    expected[:, 0] += 5
    (found,) = session.run(None, {session.get_inputs()[0].name: np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(found, expected)


def test_constant_results_are_tensors_of_the_call(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export(FunctionModule(lambda x: (x * 2.0, ph.ones((2,)))), (ph.ones((3,)),), path)
    model = load(path, device="numpy")
    model(np.ones(3, np.float32))[1].fill_(7.0)
    np.testing.assert_array_equal(model(np.ones(3, np.float32))[1].numpy(), [1.0, 1.0])
