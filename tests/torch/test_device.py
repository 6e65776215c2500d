"""`torch.device("polyhal")`: memory, views, copies, writes, and PyTorch's requirements of a device."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import agree
from torch.utils._python_dispatch import TorchDispatchMode

import polyhal.torch
from polyhal.hal.errors import DeviceMismatchError, OutOfMemoryError, UnsupportedDTypeError
from polyhal.torch import tensors
from polyhal.torch.device import current
from polyhal.torch.failures import translated

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(torch_device: str, dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert torch.equal(x.to(torch_device).cpu(), x)
    assert torch.equal(x.t().to(torch_device).cpu(), x.t())


def test_views_share_memory_and_writes_through_them_are_seen(torch_device: str) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[1:, ::2] = 7
        x.t()[0].mul_(2)
        x.view(-1)[3:5] += 1
        x.narrow(1, 1, 2).copy_(x.narrow(1, 2, 2))
        x.unfold(0, 2, 1)[0, 0] = -1
        return x

    agree(write, torch.randn(3, 4), device=torch_device)


LEAVING: list[tuple[Callable[[torch.Tensor], object], str]] = [
    (
        lambda x: x.as_strided((3,), (3,)),
        "setStorage: sizes .3., .*size of 28 are out of bounds for storage of size 24",
    ),
    (lambda x: x.as_strided((3,), (2,), 2), "storage offset 2, .*are out of bounds"),
    (lambda x: x[2:].as_strided((2, 2), (4, 1)), "size of 32 are out of bounds for storage of size 24"),
    (lambda x: x.as_strided_((4,), (2,)), "out of bounds"),
    (lambda x: torch.as_strided_scatter(x, x[:4], (4,), (2,)), "out of bounds"),
    (lambda x: x.as_strided((2,), (-1,), 3), "Negative strides are not supported"),
    # PyTorch 2.10 has other words on the CPU.
    (lambda x: x.as_strided((2,), (1,), -3), "invalid storage offset -3|size calculation overflowed"),
    (lambda x: x.as_strided((2,), (1, 3)), "mismatch in length of strides and shape"),
]


@pytest.mark.parametrize(("view", "told"), LEAVING)
def test_views_may_not_leave_the_memory(torch_device: str, view: Callable[[torch.Tensor], object], told: str) -> None:
    for device in ("cpu", torch_device):
        with pytest.raises(RuntimeError, match=told):
            view(torch.arange(6.0, device=device))


def test_views_to_the_last_element(torch_device: str) -> None:
    def views(x: torch.Tensor) -> list[torch.Tensor]:
        complex_ones = torch.view_as_complex(x.view(3, 2))
        return [
            x.as_strided((2, 2), (3, 2)),
            x[4:].as_strided((6,), (1,), 0),
            x.as_strided((0, 3), (9, 9), 50),
            x.as_strided((), (), 5),
            complex_ones.as_strided((2,), (2,)).real,
        ]

    agree(views, torch.arange(6.0), device=torch_device)


def test_storages_do_not_grow(torch_device: str) -> None:
    x = torch.zeros(6, device=torch_device)
    with pytest.raises(RuntimeError, match="not resizable"):
        torch.empty(0, device=torch_device).set_(x.untyped_storage(), 1, (6,))
    assert torch.empty(0, device=torch_device).set_(x.untyped_storage(), 1, (5,)).shape == (5,)


def test_memory_returns_with_the_last_view(torch_device: str) -> None:
    gc.collect()
    before = current().memory_stats().used
    x = torch.empty(1000, device=torch_device)
    view = x[10:].detach()
    del x
    assert current().memory_stats().used > before
    del view
    assert current().memory_stats().used == before


def test_strided_empty_resize_and_out(torch_device: str) -> None:
    x = torch.empty_strided((2, 3), (1, 2), device=torch_device)
    assert x.stride() == (1, 2)
    out = torch.empty(0, device=torch_device)
    a = torch.ones(3, device=torch_device)
    assert torch.add(a, a, out=out) is out
    assert out.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(a, a, out=torch.empty(3, dtype=torch.int64, device=torch_device))


@pytest.mark.parametrize("kind", ["zeros", "ones"])
def test_zeros_and_ones(torch_device: str, kind: str) -> None:
    make, like = getattr(torch, kind), getattr(torch, f"{kind}_like")

    def same(found: torch.Tensor, expected: torch.Tensor) -> None:
        assert (found.dtype, found.stride(), found.tolist()) == (expected.dtype, expected.stride(), expected.tolist())

    for dtype in (*DTYPES, torch.complex64):
        for size in ((), (0, 2), (2, 3)):
            same(make(size, dtype=dtype, device=torch_device), make(size, dtype=dtype))
    x = torch.full((2, 3, 2, 2), 5.0)
    for given in (x, x.transpose(1, 3), x[:, ::2], x[:1].expand(4, 3, 2, 2)):
        for options in ({}, {"memory_format": torch.channels_last}, {"memory_format": torch.contiguous_format}):
            same(like(given.to(torch_device), **options), like(given.to(torch_device).cpu(), **options))
        same(like(given.to(torch_device), dtype=torch.int64), like(given.to(torch_device).cpu(), dtype=torch.int64))
    assert like(x.to(torch_device), device="cpu").device.type == "cpu"
    made = make(3, device=torch_device, requires_grad=True)
    made.sum().backward()
    assert made.grad is not None
    assert made.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("size", [(2, 2), (3, 4), (1000,), (0,), (2, 1, 3)])
@pytest.mark.parametrize("start", [0, 1])
def test_resizing_keeps_the_elements_in_memory(torch_device: str, size: tuple[int, ...], start: int) -> None:
    kept = []
    for device in ("cpu", torch_device):
        x = torch.arange(6.0).to(device)[start:].view(-1)
        x.resize_(size)
        assert x.shape == size
        kept.append(x.flatten()[: 6 - start].tolist())
    assert kept[0] == kept[1]


def test_resizing_to_a_memory_format_has_its_strides(torch_device: str) -> None:
    x, expected = (
        torch.zeros(48, device=d).resize_(2, 3, 4, 2, memory_format=torch.channels_last) for d in (torch_device, "cpu")
    )
    assert x.stride() == expected.stride()
    assert x.resize_(2, 3, 4, 2).stride() == expected.resize_(2, 3, 4, 2).stride()


def test_writes_in_place_are_refused_as_pytorch_refuses_them(torch_device: str) -> None:
    x = torch.ones(3, dtype=torch.int64, device=torch_device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(1.5)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        x.add_(torch.ones(2, 3, dtype=torch.int64, device=torch_device))


def test_an_operand_that_overlaps_its_target(torch_device: str) -> None:
    agree(lambda x: x.clone().add_(x[0]), torch.randn(3, 3), device=torch_device)
    x = torch.arange(1.0, 5.0).to(torch_device)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[1:].mul_(x[:-1])
    assert x.tolist() == [1, 2, 3, 4]
    columns = x.repeat(2, 1)
    columns[:, 1:].mul_(columns[:, :-1])  # PyTorch detects no overlap of layouts with gaps; reads precede the write
    assert columns.tolist() == [[1, 2, 6, 12]] * 2


def test_tensors_of_two_devices_are_refused(torch_device: str) -> None:
    x = torch.ones(3, device=torch_device)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="same device, polyhal:0, but found one on cpu"):
        x + torch.ones(3)


def test_errors_have_pytorchs_types() -> None:
    for ours, theirs in [
        (OutOfMemoryError, torch.OutOfMemoryError),
        (UnsupportedDTypeError, TypeError),
        (DeviceMismatchError, RuntimeError),
    ]:
        error = translated(ours("what happened"))
        assert type(error) is theirs
        assert str(error) == "what happened"


def test_axes_that_are_not_there_are_index_errors(torch_device: str) -> None:
    x = torch.ones(2, 3, device=torch_device)
    for use in (lambda: x.sum(5), lambda: x.softmax(2), lambda: torch.cat([x], 4), lambda: x.max(-3)):
        with pytest.raises(IndexError, match="out of range"):
            use()


def test_dtypes_without_a_counterpart_are_refused(torch_device: str) -> None:
    with pytest.raises(TypeError, match=r"complex32 is not supported on polyhal; supported are torch\.bool"):
        torch.ones(2, dtype=torch.complex32, device=torch_device)


def test_ties_survive_the_move(torch_device: str) -> None:
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    weight = first.weight
    torch.nn.Sequential(first, second).to(torch_device)
    assert first.weight is second.weight is weight
    assert weight.device.type == torch_device


def test_inference_mode(torch_device: str) -> None:
    """Views of ordinary tensors are ordinary, and views of results of the block are not, as on the CPU."""
    seen = []
    for device in ("cpu", torch_device):
        x, weight = torch.ones(3, 3, device=device), torch.ones(3, 3, device=device, requires_grad=True)
        with torch.inference_mode():
            of_old, of_new = x[0], (x + 1).t()
            of_old.add_(1)
            y = x @ weight.t()
        seen.append(
            [of_old.is_inference(), of_new.is_inference(), y.is_inference(), x._version, x.tolist(), y.tolist()]
        )
        (weight.t() * 2).sum().backward()
        assert weight.grad is not None
    assert seen[0] == seen[1]


def test_root_is_the_whole_memory(torch_device: str) -> None:
    x = torch.ones(4, 5, device=torch_device)
    assert tensors.root_of(x[1:, 2]).shape == (4, 5)
    assert tensors.unwrap(x) is tensors.root_of(x)
    assert x.untyped_storage().nbytes() == 80


def test_printing(torch_device: str) -> None:
    assert repr(torch.ones(2, device=torch_device)) == "tensor([1., 1.], device='polyhal:0')"
    assert "every op ran" in str(polyhal.torch.report())
    x = torch.linspace(-2, 900, 40).view(2, 20)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int64, torch.bool):
        y = x.to(dtype)
        with _Dtypes() as seen:
            printed = str(y.to(torch_device)).replace(f"device='{torch_device}:0'", "")
            assert printed.split("]]")[0] == str(y).split("]]")[0]
        assert seen.on_device <= {dtype, dtype.to_real()}  # a device without float64 prints, too


class _Dtypes(TorchDispatchMode):
    """Collects the dtypes of tensors on the device that ops return."""

    def __init__(self) -> None:
        super().__init__()
        self.on_device: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.device.type == "polyhal":
            self.on_device.add(out.dtype)
        return out


def test_views_change_in_place(torch_device: str) -> None:
    x = torch.arange(6.0, device=torch_device).view(2, 3)
    y = x[:, 1:]
    assert y.transpose_(0, 1).tolist() == [[1, 4], [2, 5]]
    y.zero_()
    assert x.tolist() == [[0, 0, 0], [3, 0, 0]]


def test_copies_that_need_not_block(torch_device: str) -> None:
    x = torch.arange(3.0, device=torch_device)
    assert x.to("cpu", non_blocking=True).tolist() == [0, 1, 2]
    assert x.to("cpu", torch.float64, non_blocking=True).dtype is torch.float64


@pytest.mark.parametrize("arguments", [(), ("the mask has a row without elements",), ("",)])
def test_an_assertion_about_a_value_raises_as_on_the_cpu(torch_device: str, arguments: tuple[str, ...]) -> None:
    for place in (torch_device, "cpu"):
        torch._assert_async(torch.tensor(True, device=place), *arguments)
    with pytest.raises(RuntimeError) as expected:
        torch._assert_async(torch.tensor(False), *arguments)
    with pytest.raises(RuntimeError, match=f"^{re.escape(str(expected.value).splitlines()[0])}$"):
        torch._assert_async(torch.tensor(False, device=torch_device), *arguments)
    assert not polyhal.torch.report().on_cpu
