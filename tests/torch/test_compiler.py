"""Compiled functions and models do what they do eagerly on PyTorch's CPU, on tensors of the device and of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from compiled import check, compare, cubed, differentiate, moved, relative_error, train
from test_training import GPT
from torch import nn
from torch.nn import functional as F

import polyhal
import polyhal.torch
from polyhal.hal.device import Device


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile anew, on NumPy's device, which has no kernels to build."""
    previous = polyhal.get_default_device()
    polyhal.set_default_device("numpy")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    polyhal.torch.reset_report()
    torch.manual_seed(0)
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    yield
    polyhal.set_default_device(previous)


@pytest.fixture(params=["polyhal", "cpu"])
def place(request: pytest.FixtureRequest) -> str:
    """The device of PyTorch's that tensors are on."""
    return str(request.param)


ON_DEVICE = pytest.mark.parametrize("place", ["polyhal"])
ON_CPU = pytest.mark.parametrize("place", ["cpu"])
"""For what takes long, and goes the same way in both places."""


# --- models ---------------------------------------------------------------------------------------------------------


def cross_entropy(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


def test_mlp(place: str) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    train(model, cross_entropy, [(torch.randn(5, 6), torch.randint(4, (5,))) for _ in range(3)], place)


@ON_CPU
def test_cnn_with_batch_norm(place: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip
    train(model, cross_entropy, [(torch.randn(5, 3, 8, 8), torch.randint(4, (5,))) for _ in range(3)], place)


@ON_CPU
def test_attention_of_grouped_heads(place: str) -> None:
    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    q, k, v = (torch.randn(2, heads, 5, 4, requires_grad=True) for heads in (6, 2, 2))
    compare(f, [(q, k, v)], place)
    assert not polyhal.torch.report().on_cpu


class Recurrent(nn.Module):
    """An LSTM as a loop over its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(5, 7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


@ON_CPU
def test_recurrent(place: str) -> None:
    train(Recurrent(), cross_entropy, [(torch.randn(4, 3, 5), torch.randint(3, (4,))) for _ in range(2)], place)


@ON_DEVICE
def test_gpt(place: str) -> None:
    batches = [(torch.randint(17, (2, 8)), torch.randint(17, (16,))) for _ in range(2)]
    train(GPT(), cross_entropy, batches, place)


def test_no_grad_and_eval(place: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    x = torch.randn(6, 4)
    expected = model(x)
    compiled = torch.compile(model.to(place), backend="polyhal")
    with torch.no_grad():
        check(compiled(x.to(place)), expected.detach(), place)
    with torch.inference_mode():
        assert relative_error(compiled(x.to(place)), expected) < 1e-5


@ON_CPU
def test_two_models_and_a_model_compiled_twice(place: str) -> None:
    first, second = nn.Linear(4, 4).to(place), nn.Linear(4, 4).to(place)
    x = torch.randn(3, 4, device=place)
    compiled = [torch.compile(m, backend="polyhal") for m in (first, second, first)]
    for _ in range(2):
        found = [m(x) for m in compiled]
        for a, m in zip(found, (first, second, first), strict=True):
            assert relative_error(a, m(x).cpu()) < 1e-6


# --- memory: views, layouts, mutation -------------------------------------------------------------------------------


def test_arguments_are_changed_in_place(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[:, 1:3] *= 2
        y.copy_(x.t())
        return x.sum() + y

    compare(f, [(torch.randn(3, 4), torch.randn(4, 3))] * 2, place)


def test_a_changed_argument_is_returned_too(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        before = x * 2
        view = x[1:]
        x.mul_(3)
        return before, view, x, x.t()

    compare(f, [(torch.randn(3, 4),)] * 2, place)


def test_views_are_returned(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.exp()
        return y.t(), y[1], y.view(-1)[::2], y.expand(2, *y.shape), x[0], x.t(), y

    compare(f, [(torch.randn(3, 4, requires_grad=True),)] * 2, place)


def test_results_in_one_memory_stay_so(place: str) -> None:
    @torch.compile(backend="polyhal")
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    y, flat = f(torch.zeros(2, 3, device=place))
    flat[0] = 5
    assert y[0, 0].item() == 5


def test_views_by_strides_are_read_and_replaced(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.as_strided((2, 2), (1, 2), 1)
        z = (x.t() + 1).as_strided((3,), (2,))
        x.as_strided((3,), (3,), 1).mul_(5)
        return y * 2, z * 3, torch.as_strided_scatter(x * 1, x[0, :2] * 0, (2,), (2,), 3)

    compare(f, [(torch.randn(3, 4),)] * 2, place)


@ON_DEVICE
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"capturable": True}])
def test_optimizers(place: str, options: dict[str, Any]) -> None:
    runs = []
    for where in ("cpu", place):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(where)
        chosen = options if where == place else {}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4, **chosen)
        step = torch.compile(optimizer.step, backend="polyhal") if where == place else optimizer.step
        for k in range(3):
            model(torch.full((5, 6), 0.1 * k + 1).to(where)).square().sum().backward()
            step()
            optimizer.zero_grad()
        runs.append([p.detach() for p in model.parameters()])
    assert not polyhal.torch.report().on_cpu
    check(runs[1], runs[0], place)


def test_layouts_of_results(place: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x.permute(0, 3, 1, 2) * 2
        return y, (x @ w).transpose(1, 2), x.transpose(0, 3).contiguous().permute(1, 0, 2, 3)

    compare(f, [(torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True))], place)


def test_arguments_in_any_layout(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    base = torch.randn(8, 10)
    cases = [
        (base[::2, 1:7], base.t()[:6, :5]),
        (base[1:5].t()[2:8].t(), torch.randn(6, 1).expand(6, 5)),
        (torch.randn(4, 6), base.t()[4:10, ::2]),
    ]
    compare(f, cases, place, dynamic=False)


def test_memory_of_numpy_at_any_address() -> None:
    import numpy as np

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled = torch.compile(f, backend="polyhal")
    data = np.arange(400, dtype=np.float32)
    for start in (0, 1, 3, 16, 5):
        x = torch.from_numpy(data[start : start + 100])
        assert torch.equal(compiled(x), f(x))
    bytes_ = np.zeros(401, np.uint8)[1:].view(np.float32)  # no multiple of the size of an element
    assert torch.equal(compiled(torch.from_numpy(bytes_)), torch.ones(100))


def test_a_result_lives_on_when_the_program_runs_again(place: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="polyhal")
    results = [compiled(torch.full((1000,), float(i), device=place)) for i in range(4)]
    assert [r[0].item() for r in results] == [0, 2, 4, 6]
    views = [r[10:] for r in results]
    del results
    compiled(torch.full((1000,), 9.0, device=place))
    assert [v[-1].item() for v in views] == [0, 2, 4, 6]


def test_parameters_that_are_replaced_are_read_anew(place: str) -> None:
    model = nn.Linear(3, 2).to(place)
    compiled = torch.compile(model, backend="polyhal")
    x = torch.randn(4, 3, device=place)
    compiled(x)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(compiled(x).cpu(), model.bias.detach().cpu().expand(4, 2))
    model.bias.data = torch.ones(2, device=place)
    assert torch.equal(compiled(x).cpu(), torch.ones(4, 2))
    with torch.no_grad():
        model.weight.data.add_(1)
    assert relative_error(compiled(x), x.cpu().sum(1, keepdim=True).expand(4, 2) + 1) < 1e-6


def test_results_share_memory_only_where_pytorch_says_so(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.clone(), x.clone(), x.flip(0), y.flip(0), y.double().float(), y[1:], x[:2], x.detach()

    compiled = torch.compile(f, backend="polyhal")
    outcomes = []
    for called, where in ((f, "cpu"), (compiled, place)):
        x = torch.zeros(3, device=where)
        results = called(x)
        for k, result in enumerate(results):
            result.add_(torch.arange(float(len(result)), device=where) + k)
        outcomes.append([r.tolist() for r in (*results, x)])
    assert outcomes[1] == outcomes[0]


# --- what graphs cannot hold ----------------------------------------------------------------------------------------


@ON_DEVICE
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_graph_breaks(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))

    def loss(called: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = called(x)
        value = F.mse_loss(out, y)
        print("loss", value.item())
        return value * 2

    train(model, torch.compile(loss, backend="polyhal"), [(torch.randn(3, 4), torch.randn(3, 2))] * 2, place)
    assert capsys.readouterr().out.count("loss") >= 4


def test_ops_without_a_function_are_split_off(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = torch.sin(x @ x.t()) + 3 * torch.eye(x.shape[0], device=x.device)
        q = cubed(y)
        return (q.tanh() * 2).sum(0), y

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(3, 5, requires_grad=True),)] * 2, place)
    assert list(polyhal.torch.report().on_cpu) == ["polyhal_tests.cubed.default"]


@ON_CPU
def test_splitting_can_be_forbidden(place: str) -> None:
    compiled = torch.compile(lambda x: cubed(x) + 1, backend="polyhal", options={"split": False})
    with pytest.raises(NotImplementedError, match=r"cubed.*there is no function for it"):
        compiled(torch.eye(3, device=place))


def test_the_cpu_can_be_forbidden(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    compiled = torch.compile(lambda x: cubed(x) + 1, backend="polyhal")
    with pytest.raises(NotImplementedError, match="POLYHAL_FALLBACK is error"):
        compiled(torch.eye(3, device=place))


def test_dtypes_that_polyhal_lacks_are_split_off() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x * 2).abs() + 1

    polyhal.torch.reset_report()
    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(8),)], "cpu")


def test_writes_stay_behind_reads_in_a_split_graph(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inverse = cubed(y + x)
        x.add_(1)
        y.copy_(inverse)
        return x * 2 + inverse

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.eye(3), torch.eye(3))] * 2, place)


@pytest.mark.parametrize("mode", ["max-autotune", "fastest"])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(Exception, match=r"polyhal has default and reduce-overhead"):
        torch.compile(lambda x: x + 1, backend="polyhal", mode=mode)(torch.ones(2))


def test_other_options_are_refused() -> None:
    with pytest.raises(Exception, match=r"options triton; polyhal has device and split"):
        torch.compile(lambda x: x + 1, backend="polyhal", options={"triton": True})(torch.ones(2))


@ON_CPU
def test_exceptions(place: str) -> None:
    compiled = torch.compile(lambda x, i: F.embedding(i, x) if x.ndim == 2 else x @ i, backend="polyhal")
    with pytest.raises(
        Exception, match=r"size mismatch|must match|shapes cannot be multiplied|incompatible|inconsistent"
    ):
        compiled(torch.ones(3, device=place), torch.ones(4, device=place))
    found = compiled(torch.ones(3, 2, device=place), torch.tensor([0, 2], device=place))
    assert found.cpu().tolist() == [[1, 1], [1, 1]]


# --- what changes from call to call ---------------------------------------------------------------------------------


@ON_CPU
def test_dynamic_batches(place: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in (5, 3, 7, 5)]
    with torch._dynamo.config.patch(error_on_recompile=False, recompile_limit=3):
        train(model, cross_entropy, batches, place)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4


@ON_DEVICE
def test_sizes_are_computed_with(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        n, m = x.shape
        y = x.reshape(n * m // 2, 2) * n
        return y[: n - 1], torch.arange(n, device=x.device) + m, n + m, torch.zeros(n, m + 1, device=x.device)

    compare(f, [(torch.randn(n, 4, requires_grad=True),) for n in (3, 5, 6)], place, dynamic=True)


def test_sizes_in_a_split_graph(place: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        y = cubed(x @ x.t() / n + torch.eye(n, device=x.device))
        return (y.reshape(n * n) * n)[: n + 1]

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(n, 4),) for n in (3, 5, 6)], place, dynamic=True)


def test_numbers_that_change(place: str) -> None:
    def f(x: torch.Tensor, scale: float, times: int) -> torch.Tensor:
        for _ in range(times):
            x = x * scale
        return x + scale

    x = torch.randn(3, 4, requires_grad=True)
    compare(f, [(x, s, n) for s, n in ((0.5, 1), (0.7, 1), (0.9, 2), (0.3, 2), (1.5, 1))], place)


@ON_DEVICE
@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_numbers_that_are_read_within_a_graph(place: str) -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        total = (x * 2).sum().item()
        count = n.item()
        torch._check(count >= 0)
        return (x.exp() * total + count) * total

    compare(f, [(torch.randn(3), torch.tensor(k)) for k in (2, 5)], place)


def test_dropout_differs_from_call_to_call_and_its_gradient_fits(place: str) -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.4) * 3, backend="polyhal")
    masks = []
    for _ in range(3):
        x = torch.ones(4000, device=place, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert x.grad is not None
        assert relative_error(x.grad, y.detach().cpu()) < 1e-6
        kept = y.detach().cpu() != 0
        assert abs(kept.float().mean().item() - 0.6) < 5 * (0.4 * 0.6 / 4000) ** 0.5
        assert relative_error(y.detach()[kept.to(place)], torch.full((int(kept.sum()),), 5.0)) < 1e-6
        masks.append(kept)
    assert not torch.equal(masks[0], masks[1])
    torch.manual_seed(3)
    first = compiled(torch.ones(100, device=place))
    torch.manual_seed(3)
    assert torch.equal(first, compiled(torch.ones(100, device=place)))


@ON_DEVICE
def test_random_tensors(place: str) -> None:
    @torch.compile(backend="polyhal")
    def f(x: torch.Tensor) -> Any:
        return torch.rand_like(x), torch.randn(x.shape, device=x.device), torch.randint(3, 9, x.shape, device=x.device)

    for _ in range(2):
        uniform, normal, integers = (y.cpu() for y in f(torch.ones(4000, device=place)))
        assert abs(uniform.mean() - 0.5) < 5 * (1 / 12 / 4000) ** 0.5
        assert abs(normal.std() - 1) < 5 * (1 / 2 / 4000) ** 0.5
        assert sorted(integers.unique().tolist()) == [3, 4, 5, 6, 7, 8]


def test_other_results_than_tensors(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        return None, x + 1, 3, x.shape[0], {"a": [x * 2]}

    compare(f, [(torch.randn(3),), (torch.randn(4),)], place)


def test_a_tensor_of_the_cpu_among_those_of_the_device() -> None:
    compiled = torch.compile(lambda x, s: x * s, backend="polyhal")
    x = torch.ones(3, device="polyhal")
    assert [compiled(x, torch.tensor(s))[0].item() for s in (2.0, 3.0)] == [2, 3]


@ON_CPU
@pytest.mark.filterwarnings("ignore:remat_using_tags_for_fwd_loss_bwd_graph")
def test_checkpoints(place: str) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(checkpoint(lambda y: self.first(y).tanh().exp(), x, use_reentrant=False))

    train(Checkpointed(), cross_entropy, [(torch.randn(5, 4), torch.randint(3, (5,)))] * 2, place)


def test_another_device_for_tensors_of_the_cpu() -> None:
    """One that shares no memory with the host: what is written has to come back."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.t() @ w

        x.add_(1)
        return y

    calls = [(torch.randn(4, 3), torch.randn(4, 5)) for _ in range(2)]
    compare(f, calls, "cpu", options={"device": "sim"})
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    compiled = torch.compile(model, backend="polyhal", options={"device": "sim"})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(6, 4)
    for _ in range(3):
        found, expected = compiled(x), model(x)
        assert relative_error(found, expected) < 1e-5
        optimizer.zero_grad()
        found.square().sum().backward()
        optimizer.step()


@ON_CPU
def test_on_opencl(place: str) -> None:
    polyhal.set_default_device(Device("opencl"))
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 4))
    train(model, cross_entropy, [(torch.randn(n, 6), torch.randint(4, (n,))) for n in (5, 5, 3)], place)


def test_gradients_of_a_changed_result_are_refused(place: str) -> None:
    compiled = torch.compile(torch.sigmoid, backend="polyhal")
    x = torch.randn(3, device=place, requires_grad=True)
    y = compiled(x)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        differentiate(y, [x])


def test_moved_keeps_layouts() -> None:
    x = torch.randn(3, 4).t()
    assert moved([x], "polyhal")[0].stride() == x.stride()
