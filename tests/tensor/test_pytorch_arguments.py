"""Arguments of PyTorch's programs, by position and by name, have PyTorch's meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import polyhal
from polyhal import nn
from polyhal.autograd import backward, grad, gradgradcheck

X = np.arange(6.0, dtype=np.float32).reshape(2, 3) ** 2


@pytest.fixture
def x() -> polyhal.Tensor:
    return polyhal.tensor(X, device="numpy")


@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("arguments", [(True,), (False,), (0, True), (1, False), (1, True, True)], ids=str)
def test_unbiased_is_recognized_by_position(x: polyhal.Tensor, name: str, arguments: tuple[object, ...]) -> None:
    """It was taken for an axis, or for `keepdims`."""
    expected = getattr(torch.tensor(X), name)(*arguments).numpy()
    result = getattr(x, name)(*arguments).numpy()
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_unbiased_and_correction_exclude_each_other(x: polyhal.Tensor) -> None:
    with pytest.raises(TypeError, match="two spellings"):
        x.std(unbiased=True, correction=1)


def test_names_of_arguments_are_pytorchs(x: polyhal.Tensor) -> None:
    np.testing.assert_array_equal(polyhal.roll(x, shifts=1, dims=0).numpy(), np.roll(X, 1, 0))
    np.testing.assert_array_equal(
        polyhal.take_along_dim(x, indices=x.argmax(1, keepdim=True), dim=1).numpy()[:, 0], X.max(1)
    )
    assert polyhal.as_tensor([1, 2], polyhal.float64, "numpy").dtype is polyhal.float64
    assert nn.init.constant_(tensor=x.clone(), val=3.0).numpy().min() == 3


def test_where_accepts_only_a_condition_and_is_a_method(x: polyhal.Tensor) -> None:
    rows, columns = polyhal.where(x > 3)
    assert (rows.tolist(), columns.tolist()) == tuple(map(list, np.where(X > 3)))
    np.testing.assert_array_equal(x.where(x > 3, -1.0).numpy(), np.where(X > 3, X, -1))


def test_a_state_is_loaded_to_a_device_under_pytorchs_name(x: polyhal.Tensor, tmp_path: Path) -> None:
    polyhal.save({"x": x}, tmp_path / "x.safetensors")
    loaded = polyhal.load(tmp_path / "x.safetensors", map_location="numpy", weights_only=True)
    assert loaded["x"].device.name == "numpy"
    with pytest.raises(TypeError, match="one device"):
        polyhal.load(tmp_path / "x.safetensors", map_location={"cuda:0": "cpu"})  # type: ignore[arg-type]


def test_a_backward_pass_may_be_for_chosen_tensors() -> None:
    a, b = (polyhal.ones(2, device="numpy", requires_grad=True) for _ in range(2))
    product = a * b
    backward([product], [polyhal.tensor([2.0, 3.0], device="numpy")], retain_graph=True, inputs=a)
    assert a.grad is not None
    assert a.grad.tolist() == [2, 3]
    assert b.grad is None
    product.sum().backward(None, True, inputs=[a, product])
    assert a.grad.tolist() == [3, 4]
    assert product.grad is not None
    assert product.grad.tolist() == [1, 1]


def test_gradients_of_unused_tensors_may_be_zeros() -> None:
    a, b = (polyhal.ones(2, device="numpy", requires_grad=True) for _ in range(2))
    used, unused = grad(a.sum(), [a, b], materialize_grads=True)
    assert used is not None
    assert unused is not None
    assert unused.tolist() == [0, 0]
    with pytest.raises(ValueError, match="vmap"):
        grad(a.sum(), [a], is_grads_batched=True)


def test_the_third_argument_of_gradgradcheck_weights_the_gradients() -> None:
    a = polyhal.tensor([0.5, 1.5], dtype="float64", device="numpy", requires_grad=True)
    weights = polyhal.ones(2, dtype="float64", device="numpy", requires_grad=True)
    assert gradgradcheck(lambda x: x.exp(), [a], weights)


def test_a_lazy_instance_norm_has_weights_and_statistics() -> None:
    """As in PyTorch, where `InstanceNorm1d` has neither by default."""
    theirs, ours = torch.nn.LazyInstanceNorm1d(), nn.LazyInstanceNorm1d()
    theirs(torch.ones(2, 3, 4))
    ours(polyhal.ones(2, 3, 4, device="numpy"))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with pytest.raises(TypeError, match="unknown"):
        nn.LazyLinear(3, unknown=1)


def test_the_default_device_can_be_set() -> None:
    polyhal.set_default_device("numpy")
    try:
        assert polyhal.tensor([1.0]).device is polyhal.zeros(2).device is polyhal.get_default_device()
        assert polyhal.get_default_device().name == "numpy"
    finally:
        polyhal.set_default_device(None)


def test_gradients_of_broadcasts_are_summed_to_a_size(x: polyhal.Tensor) -> None:
    np.testing.assert_allclose(x.sum_to_size(2, 1).numpy(), X.sum(1, keepdims=True))
    np.testing.assert_allclose(x.sum_to_size((3,)).numpy(), X.sum(0))
    with pytest.raises(ValueError, match="broadcast"):
        x.sum_to_size(2)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_a_batch_norm_is_fused_into_a_convolution(transpose: bool, affine: bool) -> None:
    conv = (nn.ConvTranspose2d if transpose else nn.Conv2d)(2, 3, 3, bias=affine, device="numpy").eval()
    norm = nn.BatchNorm2d(3, affine=affine, device="numpy")
    norm(polyhal.randn(4, 3, 5, 5, device="numpy") * 2 + 1)
    norm.eval()
    image = polyhal.randn(1, 2, 5, 5, device="numpy")
    fused = nn.utils.fuse_conv_bn_eval(conv, norm, transpose)
    np.testing.assert_allclose(fused(image).numpy(), norm(conv(image)).numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="in training"):
        nn.utils.fuse_conv_bn_eval(conv, norm.train())


def test_a_batch_norm_is_fused_into_a_linear_layer() -> None:
    linear, norm = nn.Linear(4, 3, device="numpy").eval(), nn.BatchNorm1d(3, device="numpy")
    norm(polyhal.randn(8, 3, device="numpy") + 1)
    norm.eval()
    rows = polyhal.randn(5, 4, device="numpy")
    np.testing.assert_allclose(
        nn.utils.fuse_linear_bn_eval(linear, norm)(rows).numpy(), norm(linear(rows)).numpy(), rtol=1e-5, atol=1e-5
    )


def test_batch_norms_may_forget_their_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 3, device="numpy"), nn.BatchNorm1d(3, device="numpy"))
    polyhal.func.replace_all_batch_norm_modules_(model)
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model(polyhal.ones(2, 3, device="numpy"))


def test_elements_come_from_a_buffer() -> None:
    data = np.arange(5, dtype=np.int16).tobytes()
    assert polyhal.frombuffer(data, dtype=polyhal.int16, count=2, offset=4, device="numpy").tolist() == [2, 3]
