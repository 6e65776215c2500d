"""Indices on the CPU for tensors of the device, and operands on the wrong device, as CUDA takes and refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import polyhal.torch
from tests.torch.comparison import agree

Index = Callable[[Callable[[torch.Tensor], torch.Tensor]], Any]
LONG = torch.tensor([2, 0, -1])
MASK = torch.tensor([True, False, True, True])
OF_AXES = torch.ones(4, 3, dtype=torch.bool).triu()
INDICES: dict[str, Any] = {
    "a permutation": (torch.tensor([3, 1, 0, 2]),),
    "32-bit numbers": (LONG.int(),),
    "a mask": (MASK,),
    "a mask of bytes": (MASK.byte(),),
    "a mask over two axes": (OF_AXES,),
    "a matrix of numbers": (LONG.reshape(3, 1).expand(3, 2),),
    "one number for two axes": (LONG, torch.tensor(1)),
    "a slice between": (LONG, slice(None), LONG),
    "a mask after a slice": (slice(1, None), torch.tensor([True, False, True])),
    "a new axis before": (None, LONG, Ellipsis, LONG),
    "nothing": (LONG[:0],),
}
pytestmark = pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")


def _values() -> torch.Tensor:
    return torch.arange(60.0).reshape(4, 3, 5)


def _placed(items: tuple[Any, ...], on_device: tuple[int, ...], device: str) -> tuple[Any, ...]:
    """Move the index tensors at some positions to a device."""
    return tuple(i.to(device) if k in on_device and isinstance(i, torch.Tensor) else i for k, i in enumerate(items))


@pytest.mark.parametrize("where", [(), (0,), (0, 1, 2, 3)], ids=["cpu", "mixed", "device"])
@pytest.mark.parametrize("name", INDICES)
def test_indices_may_be_on_the_cpu(torch_device: str, name: str, where: tuple[int, ...]) -> None:
    items = INDICES[name]

    def read(x: torch.Tensor) -> torch.Tensor:
        return x[_placed(items, where, x.device.type)]

    def write(x: torch.Tensor) -> torch.Tensor:
        place = _placed(items, where, x.device.type)
        y = x.clone()
        y[place] = 7.0
        z = x.clone()
        z[place] = x[place] * 2
        return torch.stack([y, z])

    agree(read, _values().requires_grad_(), device=torch_device)
    if not any(getattr(i, "dtype", None) is torch.uint8 for i in items):  # which PyTorch only reads
        agree(write, _values().requires_grad_(), device=torch_device)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_takes_cpu_indices_and_a_number_on_the_cpu(torch_device: str, accumulate: bool) -> None:
    i, j = torch.tril_indices(3, 3)

    def put(x: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
        y = x.index_put((i, j), values, accumulate)
        z = x.clone().index_put_((i.to(x.device), j), values, accumulate)
        one = x.clone().index_put_((torch.tensor(1),), torch.tensor(2.5), accumulate)
        return [y, z, one, torch.ops.aten._unsafe_index(x, [None, j]), x.index_put((i,), torch.tensor(1.5), accumulate)]

    agree(put, torch.zeros(3, 3, requires_grad=True), torch.arange(6.0, requires_grad=True), device=torch_device)


@pytest.mark.filterwarnings("ignore:Singular sample")
def test_distributions_that_index_with_cpu_tensors_draw_samples(
    torch_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")  # gamma distributions are drawn on the CPU
    torch.manual_seed(0)
    wishart = torch.distributions.Wishart(torch.tensor(5.0, device=torch_device), torch.eye(3, device=torch_device))
    drawn = wishart.sample((200,)).cpu()
    torch.testing.assert_close(drawn, drawn.mT)
    # The mean is 5 times the identity; an element's variance is at most 10, so a standard error is at most sqrt(10 / 200).
    assert (drawn.mean(0) - 5 * torch.eye(3)).abs().max() < 5 * (10 / 200) ** 0.5


def test_a_recorded_step_uploads_its_indices_before_each_run(torch_device: str) -> None:
    @polyhal.torch.jit(strict=True)
    def shuffled(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[rows] += 1
        return y[torch.randperm(4)]

    x = _values()
    for seed in range(3):
        rows = torch.tensor([seed % 4, 0, 3])
        torch.manual_seed(seed)
        found = shuffled(x.to(torch_device), rows)
        torch.manual_seed(seed)
        expected = x.clone()
        expected[rows] += 1
        assert torch.equal(found.cpu(), expected[torch.randperm(4)])


def test_a_compiled_program_takes_indices_on_the_cpu(fresh_compiler: None) -> None:
    def f(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x[rows] * 2 + x[:, rows[:2]].sum()

    x = _values().to("polyhal")
    found = torch.compile(f, backend="polyhal")(x, torch.tensor([2, 0, 1]))
    assert torch.equal(found.cpu(), f(_values(), torch.tensor([2, 0, 1])))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int8, torch.float32])
def test_indices_of_other_dtypes_are_refused_as_on_the_cpu(torch_device: str, dtype: torch.dtype) -> None:
    for place in ("cpu", torch_device):
        x = torch.ones(4, 4, device=place)
        index = LONG.to(dtype).to(place)
        with pytest.raises(IndexError, match="must be long, int, byte or bool"):
            x[index]
        with pytest.raises(IndexError, match="must be long, int, byte or bool"):
            x.index_put_((index,), torch.ones(4, device=place))


def test_indices_on_the_device_do_not_index_a_tensor_on_the_cpu(torch_device: str) -> None:
    x, index = torch.ones(4), LONG.to(torch_device)
    for call in (lambda: x[index], lambda: x.index_put((index,), torch.tensor(1.0)), lambda: x.__setitem__(index, 1.0)):
        with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device.*\.cpu\(\)"):
            call()


ELSEWHERE: dict[str, tuple[str, str, Callable[[torch.Tensor, torch.Tensor], Any]]] = {
    "index_select": ("index_select", "index", lambda x, i: x.index_select(0, i)),
    "gather": ("gather", "index", lambda x, i: x.gather(0, i[:, None])),
    "scatter": ("scatter", "index", lambda x, i: x.scatter(0, i[:, None], 1.0)),
    "scatter in place": ("scatter_add_", "index", lambda x, i: x.scatter_add_(0, i[:, None], x)),
    "take": ("take", "index", lambda x, i: x.take(i)),
    "embedding": ("embedding", "indices", lambda x, i: F.embedding(i, x)),
    "index_add": ("index_add", "index", lambda x, i: x.index_add(0, i, x[:3])),
    "index_copy": ("index_copy", "index", lambda x, i: x.index_copy(0, i, x[:3])),
    "index_fill": ("index_fill", "index", lambda x, i: x.index_fill(0, i, 1.0)),
    "a product": ("mm", "mat2", lambda x, i: x @ torch.ones(4, 4)),
    "values": ("index_put_", "values", lambda x, i: x.index_put_((i,), torch.ones(3, 4))),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_operands_on_the_cpu_are_named(torch_device: str, name: str) -> None:
    op, argument, call = ELSEWHERE[name]
    with pytest.raises(
        RuntimeError, match=rf"\[{op}\].*same device.*`{argument}`, of shape .* {argument}\.to\('polyhal'\)"
    ):
        call(torch.ones(4, 4, device=torch_device), LONG.abs())


@pytest.mark.parametrize("index", [torch.tensor([1, 9]), torch.tensor([-7])], ids=["beyond", "before"])
def test_an_index_out_of_range_names_the_function_of_the_program(torch_device: str, index: torch.Tensor) -> None:
    rows = torch.ones(5, 3, device=torch_device)
    here = index.to(torch_device)
    calls: dict[str, Callable[[], Any]] = {
        "index": lambda: rows[index],
        "index_put_": lambda: rows.__setitem__(here, 1.0),
        "index_select": lambda: rows.index_select(0, here),
        "gather": lambda: rows.gather(0, here[:, None]),
        "take": lambda: rows.take(here * 9),
        "index_add": lambda: rows.index_add(0, here, rows[: len(here)]),
    }
    for op, call in calls.items():
        with pytest.raises(
            IndexError, match=rf"\[{op}\] index -?\d+.* is out of range; .*look at the index, at .*\.py"
        ):
            call()


NEGATIVE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy_": lambda x, i: x.clone().index_copy_(0, i, x[:2]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "prod"),
    "index_select": lambda x, i: x.index_select(0, i),
    "nll_loss": lambda x, i: F.nll_loss(x[:2].log_softmax(1), i),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "sum"),
    "index": lambda x, i: x[i],
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[0, :2]),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative_indices_are_refused_where_pytorch_refuses_them(torch_device: str, name: str) -> None:
    def call(device: str) -> torch.Tensor | None:
        x = torch.arange(12.0, device=device).reshape(3, 4)
        try:
            found: torch.Tensor = NEGATIVE[name](x, torch.tensor([0, -1], device=device))
        except (IndexError, RuntimeError):
            return None
        return found.cpu()

    ours, theirs = call(torch_device), call("cpu")
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert torch.equal(ours, theirs)
