"""Programs in which a gradient is a result: it requires a gradient exactly if PyTorch's does, and has the values of PyTorch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.reliability.programs.agree import assert_agrees, leaf
from benchmarks.reliability.programs.program import Leaf
from polyhal import Device

IMAGE = leaf([[[[1.0, -2.0], [0.5, 3.0]]]], "float32")
KERNEL = leaf([[[[1.5]]]], "float32")
ROW = leaf([0.5, 1.0, -2.0], "float32")
ROWS = leaf([[[0.5, 1.0], [-2.0, 0.25]]], "float32")
SECOND = """
v2 = torch.tanh(v1).sum()
v3 = torch.autograd.grad(v2, {}, create_graph=True)[0]
"""
FIRST = SECOND.replace("torch.tanh(v1)", "v1")


def _needing(*names: str, **leaves: Leaf) -> dict[str, Leaf]:
    return {name: replace(x, requires_grad=name in names) for name, x in leaves.items()}


@pytest.mark.parametrize("needed", ["", "x1", "x2", "x1 x2"])
@pytest.mark.parametrize("of", ["x1", "x2", "x3"])
def test_all_gradients_of_a_convolution_require_gradients(of: str, needed: str, device: Device) -> None:
    names = {of, *needed.split()}
    leaves = _needing(*names, x1=IMAGE, x2=KERNEL, x3=leaf([0.5], "float32"))
    assert_agrees(device, "v1 = F.conv2d(x1, x2, x3, 1, 1)" + FIRST.format(of), **leaves)


@pytest.mark.parametrize("needed", ["x2", "x1 x2"])
@pytest.mark.parametrize("text", [FIRST, SECOND])
def test_the_gradient_of_the_weight_of_rms_norm_does_not_depend_on_the_weight(
    text: str, needed: str, device: Device
) -> None:
    leaves = _needing(*needed.split(), x1=ROW, x2=leaf([1.0, 2.0, 3.0], "float32"))
    assert_agrees(device, "v1 = F.rms_norm(x1, [3], x2, 0.1)" + text.format("x2"), **leaves)


@pytest.mark.parametrize("needed", ["x3", "x1 x3", "x2 x3", "x3 x4"])
def test_the_gradient_of_the_values_of_attention_depends_on_queries_keys_and_mask(needed: str, device: Device) -> None:
    leaves = _needing(*needed.split(), x1=ROWS, x2=ROWS, x3=ROWS, x4=leaf([[0.5, 1.0], [-1.0, 0.0]], "float32"))
    attention = "v1 = F.scaled_dot_product_attention(x1, x2, x3, x4)"
    assert_agrees(device, attention + FIRST.format("x3"), **leaves)


@pytest.mark.parametrize(
    "call",
    [
        "torch.select_scatter(x1, x2[0], 0, 0)",
        "torch.slice_scatter(x1, x2, 1)",
        "torch.diagonal_scatter(x1, x2[:, 0])",
    ],
)
def test_the_gradient_of_a_tensor_that_is_replaced_as_a_whole_depends_on_the_result(call: str, device: Device) -> None:
    leaves = _needing("x1", x1=leaf([[1.0]], "float32"), x2=leaf([[0.5]], "float32"))
    assert_agrees(device, f"v1 = {call}" + SECOND.format("x1"), **leaves)


@pytest.mark.parametrize("needed", ["x1", "x2", "x1 x2"])
@pytest.mark.parametrize("written", ["v3", "v4", "v1"])
def test_hypot_saves_the_tensors_that_pytorch_saves(written: str, needed: str, device: Device) -> None:
    program = f"""
    v3 = x1 * 1.0
    v4 = x2 * 1.0
    v1 = torch.hypot(v3, v4)
    v2 = v1 * 1.0
    {written}.mul_(2.0)
    v5 = v2.sum()
    v5.backward()
    """
    leaves = _needing(*needed.split(), x1=leaf([1.5, 0.5], "float32"), x2=leaf([-2.0, 0.0], "float32"))
    assert_agrees(device, program, **leaves)


def test_rsqrt_keeps_its_result(device: Device) -> None:
    program = """
    v1 = x1 * 1.0
    v2 = torch.rsqrt(v1)
    v1.mul_(2.0)
    v3 = v2.sum()
    v4 = torch.autograd.grad(v3, x1, create_graph=True)[0]
    v5 = (v4 * v4).sum()
    v5.backward()
    """
    assert_agrees(device, program, x1=leaf([1.5, 0.25], "float32", requires_grad=True))


def test_a_gradient_that_is_a_part_of_another_one_can_be_viewed_and_written(device: Device) -> None:
    program = """
    v1 = x2 * 1.0
    v1[1::2, ...] = x1
    v2 = torch.tanh(v1).sum()
    v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
    v4 = v3.view((4,))
    v4.lerp_(x3, 0.3)
    """
    leaves = {"x1": ROWS.values[0], "x2": leaf([[1.0, 2.0]] * 4, "float32").values}
    named = {n: leaf(v, "float32", requires_grad=n == "x1") for n, v in leaves.items()}
    assert_agrees(device, program, x3=leaf([1.0, 2.0, 3.0, 4.0], "float32"), **named)


def test_the_gradient_of_a_view_that_is_copied_to_itself_passes_its_hooks(device: Device) -> None:
    program = """
    v1 = (x1 * 3.0).t()
    v1.register_hook(lambda g: g + 1.0)
    v1.copy_(v1)
    v2 = (v1 * v1).sum()
    v2.backward()
    """
    assert_agrees(device, program, x1=leaf([[0.5, -1.0], [2.0, 0.25]], "float32", requires_grad=True))


def test_the_index_of_added_rows_is_not_kept_only_for_the_tensor(device: Device) -> None:
    program = """
    v1 = x1 * 1.0
    v1.index_add_(0, torch.tensor([1, 0]), x2)
    v2 = v1.sum()
    v2.backward()
    v3 = (v1 * v1).sum()
    v3.backward()
    """
    x1 = leaf([[0.5, -1.0], [2.0, 0.25]], "float32", requires_grad=True)
    assert_agrees(device, program, x1=x1, x2=leaf([[1.0, 2.0], [3.0, 4.0]], "float32"))
