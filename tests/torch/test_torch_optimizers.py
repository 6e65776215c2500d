"""Fused optimizers, many-tensor ops and gradients that overflow; `test_placement.py` replays PyTorch's database."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import polyhal.torch
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import ForwardingExecutor
from polyhal.hal.ops.opdef import OpDef
from polyhal.torch import default_steps, foreach

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "AdamW, amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "Adam, maximize": (torch.optim.Adam, {"maximize": True}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
    "SGD, nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD without momentum": (torch.optim.SGD, {"weight_decay": 0.1}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.2}),
}


def _steps(kind: str, device: str, *, scaled: bool = False, rate: Any = 0.1) -> tuple[list[torch.Tensor], list[Any]]:
    """Return parameters and state after steps, some without all parameters, the second with infinite gradients."""
    optimizer_of, settings = KINDS[kind]
    random = torch.Generator().manual_seed(0)
    params = [torch.randn(n, generator=random).to(device).requires_grad_() for n in (3, 40, 1)]
    optimizer = optimizer_of(params, lr=rate, fused=True, **settings)
    scaler = torch.amp.GradScaler(device, init_scale=4.0) if scaled else None
    for step in range(4):
        for i, p in enumerate(params):
            grad = torch.randn(p.shape, generator=random).to(device) * (4.0 if scaled else 1.0)
            p.grad = None if i + 1 == step else grad
        if scaler is None:
            optimizer.step()
            continue
        scaler.scale(torch.zeros((), device=device))  # opens the scale
        if step == 1:
            params[1].grad[0] = torch.inf  # type: ignore[index]
        scaler.step(optimizer)
        scaler.update(4.0)
    return [p.detach().cpu() for p in params], torch.utils._pytree.tree_leaves(optimizer.state_dict()["state"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_fused_steps_are_those_of_the_cpu(torch_device: str, kind: str, scaled: bool) -> None:
    expected, expected_state = _steps(kind, "cpu", scaled=scaled)
    found, state = _steps(kind, torch_device, scaled=scaled)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(state, expected_state, strict=True):
        torch.testing.assert_close(torch.as_tensor(a).cpu(), torch.as_tensor(b), rtol=1e-5, atol=1e-6)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


@pytest.mark.parametrize("rate_on_device", [False, True])
@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_steps_keep_infinite_parameters(torch_on_numpy: str, kind: str, rate_on_device: bool) -> None:
    def run(device: str) -> torch.Tensor:
        p = torch.nn.Parameter(torch.tensor([torch.inf, -torch.inf, 1.0], device=device))
        rate: Any = torch.tensor(0.1, device=device) if rate_on_device else 0.1
        optimizer: Any = getattr(torch.optim, kind)([p], lr=rate, weight_decay=0.0, fused=True)
        for _ in range(2):
            p.grad = torch.tensor([0.5, 0.25, 1.0], device=device)
            optimizer.step()
        return p.detach().cpu()

    torch.testing.assert_close(run(torch_on_numpy), run("cpu"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_on_the_device(torch_on_numpy: str, kind: str) -> None:
    expected, _ = _steps(kind, "cpu")
    found, _ = _steps(kind, torch_on_numpy, rate=torch.tensor(0.1, device=torch_on_numpy))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_lists_of_tensors(torch_device: str) -> None:
    made = [torch.randn(3, 4), torch.randn(5).half(), torch.arange(4), torch.randn(()), torch.randn(4, 3).t()]

    def run(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        torch._foreach_mul_(xs, 2)
        floats = [x for x in xs if x.is_floating_point()]
        torch._foreach_mul_(floats, torch.tensor(0.3, device=xs[0].device))
        twins = [torch.empty_like(x) for x in xs]
        torch._foreach_copy_(twins, xs)
        torch._foreach_copy_([twins[0]], [torch.ones(4, device=xs[0].device).half()])
        cleared = [x.clone() for x in xs]
        torch._foreach_zero_(cleared)
        return [*xs, *twins, *cleared]

    expected = run([x.clone() for x in made])
    found = run([x.to(torch_device) for x in made])
    torch.testing.assert_close([x.cpu() for x in found], expected)
    assert not polyhal.torch.report().on_cpu


def test_norms_of_lists(torch_device: str) -> None:
    made = [torch.randn(3, 4), torch.randn(5).half(), torch.randn(300, 41).t(), torch.randn(()), torch.zeros(0, 2)]
    for order, dtype in ((2, None), (2, torch.float32), (1, None), (float("inf"), None)):
        several = made[:4] if order == float("inf") else made  # the maximum of nothing is an error
        found = torch._foreach_norm([x.to(torch_device) for x in several], order, dtype=dtype)
        expected = [x.double().norm(order).to(dtype or x.dtype) for x in several]
        torch.testing.assert_close([x.cpu() for x in found], expected, rtol=1e-3 if dtype is None else 1e-6, atol=0)
    clipped = [torch.nn.Parameter(x.float().to(torch_device)) for x in made]
    for p in clipped:
        p.grad = p.detach().clone()
    total = torch.nn.utils.clip_grad_norm_(clipped, 1.5)
    wanted = torch.cat([x.double().flatten() for x in made]).norm()
    torch.testing.assert_close(total.cpu().double(), wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(clipped[2].grad.cpu(), made[2] * float(1.5 / wanted), rtol=1e-5, atol=1e-8)
    assert not polyhal.torch.report().on_cpu


def _list_calls(xs: list[torch.Tensor], ys: list[torch.Tensor], one: torch.Tensor) -> list[torch.Tensor]:
    """Return results of list ops, and lists that others have changed."""
    numbers = [one * (0.25 * i) for i in range(len(xs))]
    out = [
        *torch._foreach_sign(torch._foreach_sub(xs, ys)),
        *torch._foreach_addcmul(xs, ys, numbers, value=-0.5),
        *torch._foreach_mul(ys, numbers),
        *torch._foreach_add(xs, 2.5),
        *torch._foreach_sub(xs, ys, alpha=0.3),
        *torch._foreach_mul(xs, one),
        *torch._foreach_div(ys, [2.0] * len(xs)),
        *torch._foreach_div(ys, list(range(1, len(xs) + 1))),
        *torch._foreach_neg(xs),
        *torch._foreach_sqrt(torch._foreach_abs(xs)),
        *torch._foreach_maximum(xs, ys),
        *torch._foreach_addcmul(xs, ys, ys, value=0.1),
        *torch._foreach_lerp(xs, ys, 0.25),
        *torch._foreach_lerp(xs, ys, ys),
        *torch._foreach_lerp(xs, ys, [0.25 / (i + 1) for i in range(len(xs))]),
        *torch._foreach_addcdiv(xs, ys, ys, [0.5 * i for i in range(len(xs))]),
        *torch._foreach_addcmul(xs, ys, ys, [0.5 * i for i in range(len(xs))]),
        *torch._foreach_pow(0.9, ys),
        *torch._foreach_clamp_min(xs, 0.2),
    ]
    changed = [x.clone() for x in xs]
    torch._foreach_add_(changed, ys, alpha=2)
    torch._foreach_addcdiv_(changed, xs, ys, value=-0.5)
    torch._foreach_addcdiv_(changed, xs, ys, [0.5] * len(xs))
    torch._foreach_lerp_(changed, xs, 0.1)
    torch._foreach_sub_(changed, 1)
    torch._foreach_reciprocal_(changed)
    return [*out, *changed]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_elementwise_lists(torch_device: str, dtype: torch.dtype) -> None:
    shapes = [(), (3, 4), (5,), (0, 2), (41, 300), *[(n,) for n in range(1, 24)]]
    if not dtype.is_floating_point:
        shapes = shapes[:3]
    generator = torch.Generator().manual_seed(0)
    xs, ys = ([torch.rand(s, generator=generator).mul(3).add(1).to(dtype) for s in shapes] for _ in range(2))
    one = torch.tensor(3, dtype=dtype)
    if dtype.is_floating_point:
        expected = _list_calls(xs, ys, one)
        found = _list_calls([x.to(torch_device) for x in xs], [y.to(torch_device) for y in ys], one.to(torch_device))
    else:
        expected = [*torch._foreach_add(xs, 2), *torch._foreach_mul(xs, ys)]
        found = [
            *torch._foreach_add([x.to(torch_device) for x in xs], 2),
            *torch._foreach_mul([x.to(torch_device) for x in xs], [y.to(torch_device) for y in ys]),
        ]
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2}.get(dtype, 0)
    torch.testing.assert_close([x.cpu() for x in found], expected, rtol=tolerance, atol=tolerance)


def test_lists_are_computed_as_single_tensors_are(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are bitwise equal, in place and not."""
    generator = torch.Generator().manual_seed(0)
    made = [[torch.rand(n, 7, generator=generator).add(0.1) for n in range(1, 30)] for _ in range(2)]
    calls = []

    def run() -> list[torch.Tensor]:
        xs, ys = ([x.to(torch_device) for x in several] for several in made)
        return [x.cpu() for x in _list_calls(xs, ys, torch.tensor(3.0, device=torch_device))]

    original = foreach._inputs
    monkeypatch.setattr(foreach, "_inputs", lambda call: calls.append(found := original(call)) or found)
    found = run()
    assert calls
    assert None not in calls
    monkeypatch.setattr(foreach, "_inputs", lambda call: None)
    for x, y in zip(found, run(), strict=True):
        assert torch.equal(x, y)


def test_lists_with_an_element_for_each_row_column_or_matrix_are_one_op(torch_on_numpy: None) -> None:
    made = [torch.rand(s) for s in ((3, 4), (2, 5, 3), (1, 2))]
    ends = (lambda s: (*s[:-1], 1), lambda s: (*s[:-2], 1, s[-1]), lambda s: (*s[:-2], 1, 1), lambda s: ())
    parts = [[torch.rand(end(x.shape)) for x in made] for end in ends]
    expected = made
    for ys in parts:
        expected = [x / y for x, y in zip(expected, ys, strict=True)]
    xs = [x.to("polyhal") for x in made]
    counting = _Counting(dispatch.thread.executor)
    on_device = [[y.to("polyhal") for y in ys] for ys in parts]
    with dispatch.executing(counting):
        for ys in on_device:
            torch._foreach_div_(xs, ys)
    assert counting.names == ["foreach_elementwise"] * 4
    torch.testing.assert_close([x.cpu() for x in xs], expected)


def test_lists_that_share_memory(torch_device: str) -> None:
    """One index reads memory that another one writes: the order equals PyTorch's loop."""

    def run(device: str) -> list[torch.Tensor]:
        whole = torch.arange(8.0, device=device)
        x = torch.ones(3, device=device)
        torch._foreach_add_([x, x, x], 1)
        torch._foreach_mul_([x, whole[:3]], [whole[1:4], x])
        torch._foreach_add_([whole[:4], whole[2:6]], 1.0)
        other = torch.ones(3, device=device)
        torch._foreach_add_([x, other], [other, x])
        return [whole.cpu(), x.cpu(), other.cpu()]

    torch.testing.assert_close(run(torch_device), run("cpu"))


def test_recorded_clipping_is_that_of_eager_steps(torch_device: str) -> None:
    """Results are bitwise equal: all gradients are divided by one norm, which is summed in the same order."""

    def train(record: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(n, 5, generator=generator) for n in range(1, 29)]
        parameters = [torch.nn.Parameter(x.to(torch_device)) for x in made]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=True)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            sum((p.square().sum() for p in parameters), start=torch.zeros((), device=torch_device)).backward()
            total = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            return total

        run = polyhal.torch.jit(step, strict=True) if record else step
        for _ in range(4):
            total = run()
        return [total.cpu(), *(p.detach().cpu() for p in parameters)]

    for x, y in zip(train(False), train(True), strict=True):
        assert torch.equal(x, y)


class _Counting(ForwardingExecutor):
    """Records the names of ops that write over their operands."""

    __slots__ = ("names",)

    def apply_into(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        self.names = [*getattr(self, "names", ()), op.name]
        super().apply_into(op, inputs, params, outs)


def test_lists_of_tensors_are_one_op_under_executors_that_forward_to_the_eager_one(torch_on_numpy: None) -> None:
    xs = [torch.ones(3, device="polyhal"), torch.ones(2, device="polyhal")]
    counting = _Counting(dispatch.thread.executor)
    with dispatch.executing(counting):
        torch._foreach_add_(xs, 2.0)
        torch._foreach_div_(xs, [1.5, 3.0])
    assert counting.names == ["foreach_elementwise"] * 2
    assert [x.tolist() for x in xs] == [[2.0] * 3, [1.0] * 2]


_DEFAULT: dict[str, tuple[Any, dict[str, Any]]] = {
    **{kind: made for kind, made in KINDS.items() if kind != "Adagrad"},
    "AdamW": (torch.optim.AdamW, {}),
    "SGD, nesterov and decay": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("kind", _DEFAULT)
def test_default_steps_are_one_op(torch_on_numpy: None, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, gradients and states are bitwise equal to results of PyTorch's ops over lists, and versions advance.

    Steps over the same tensors are programs, unless they are counted.
    """
    optimizer_of, settings = _DEFAULT[kind]

    def run(counted: bool) -> tuple[list[torch.Tensor], list[list[str]], list[int]]:
        random = torch.Generator().manual_seed(0)
        params = [torch.randn(n, generator=random).to("polyhal").requires_grad_() for n in (3, 40, 1)]
        optimizer = optimizer_of(params, lr=0.1, **settings)
        names = []
        for step in range(8):
            for i, p in enumerate(params):
                grad = torch.randn(p.shape, generator=random).to("polyhal")
                p.grad = None if i + 1 == step else grad
            if step == 6:
                optimizer.param_groups[0]["lr"] = 0.05
                params[1].data = torch.cat([params[1].data, params[1].data])[40:]
            if step == 4:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 7:
                for counter in (x["step"] for x in optimizer.state.values() if "step" in x):
                    counter.data = counter + 2
            counting = _Counting(dispatch.thread.executor)
            with dispatch.executing(counting) if counted else nullcontext():
                optimizer.step()
            names.append(getattr(counting, "names", []))
        leaves = torch.utils._pytree.tree_leaves((params, [p.grad for p in params], optimizer.state_dict()["state"]))
        tensors = [x.detach().cpu() for x in leaves if isinstance(x, torch.Tensor)]
        return tensors, names, [p._version for p in params]

    found, names, versions = run(True)
    assert names[1:] == [["foreach_elementwise"]] * 7
    replayed, _, same_versions = run(False)
    assert same_versions == versions
    assert min(versions) >= 2  # PyTorch begins momentum, without new versions
    monkeypatch.setattr(default_steps, "_is_plain", lambda options: False)
    expected, _, _ = run(False)
    for x, y, z in zip(found, replayed, expected, strict=True):
        assert torch.equal(x, z)
        assert torch.equal(y, z)
