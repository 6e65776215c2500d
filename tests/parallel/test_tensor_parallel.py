"""Divided layers have the results, gradients and state dicts of whole ones.

Roundings: sums are divided among devices and so have another order: n eps of the largest element for n terms, at most 64 here,
through at most 16 layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from groups import OPENCL
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal
from polyhal import Tensor, nn, optim
from polyhal.hal.errors import ShapeError
from polyhal.models import GPT, BertClassifier, BertConfig, Decoder, DecoderConfig, GPTConfig
from polyhal.nn import functional as F
from polyhal.nn.state import StateDictError
from polyhal.parallel import (
    ColumnParallelLinear,
    Group,
    ParallelEmbedding,
    RowParallelLinear,
    tensor_parallel,
    vocab_parallel_cross_entropy,
)
from polyhal.parallel.sharded_module import ShardLayout, shares

NAMES = ["numpy", "sim", "numpy:contiguous_only", "numpy:no_f64"]
SIM = [f"sim:teaching*3:{i}" for i in range(3)]
MIXED = ["numpy", "sim", OPENCL[0]] if OPENCL else NAMES[:3]


def close(actual: Tensor | np.ndarray, expected: Tensor | np.ndarray, largest: float = 0.0, what: str = "") -> None:
    a, b = (x if isinstance(x, np.ndarray) else x.detach().numpy() for x in (actual, expected))
    bound = 64 * 16 * np.finfo(b.dtype).eps * max(float(np.abs(b).max(initial=0.0)), largest)
    np.testing.assert_allclose(a, b, rtol=0, atol=bound, err_msg=what)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return polyhal.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device="numpy")


def words(*shape: int, seed: int = 0, below: int = 21) -> Tensor:
    return polyhal.tensor(np.random.default_rng(seed).integers(0, below, shape), device="numpy")


def whole_gradients(module: nn.Module) -> dict[str, np.ndarray]:
    """Return gradients under the names of the undivided model."""
    found: dict[str, np.ndarray] = {}
    for path, part in module.named_modules():
        layouts: dict[str, ShardLayout] = getattr(part, "_layouts", {})
        sharded: set[str] = set()
        for name, layout in layouts.items():
            shards: Any = part.shards(name)  # type: ignore[operator]
            found[f"{path}.{name}"] = layout.join([s.grad.numpy() for s in shards])
            sharded |= {f"{name}_{i}" for i in range(len(shards))}
        for name, p in part.named_parameters(recurse=False):
            if name not in sharded and p.grad is not None:
                found[f"{path}.{name}"] = p.grad.numpy()
    return found


@given(
    blocks=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    axis=st.integers(0, 1),
    other=st.integers(1, 3),
)
def test_joining_inverts_splitting(blocks: int, sizes: list[int], axis: int, other: int) -> None:
    length = blocks * sum(sizes)
    whole = np.arange(length * other).reshape((length, other) if axis == 0 else (other, length))
    layout = ShardLayout(axis, tuple(sizes), blocks)
    parts = layout.split(whole)
    assert [p.shape[axis] for p in parts] == [blocks * n for n in sizes]
    np.testing.assert_array_equal(layout.join(parts), whole)
    np.testing.assert_array_equal(parts[0].take([0], axis), whole.take([0], axis))


@given(units=st.integers(4, 30), weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
def test_numbers_of_units_follow_weights(units: int, weights: list[float]) -> None:
    group = Group(NAMES[: len(weights)])
    counts = shares(units, group, weights)
    assert sum(counts) == units
    assert min(counts) >= 1
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - units * weight / sum(weights)) <= len(weights)


@given(columns=st.lists(st.integers(1, 3), min_size=2, max_size=4), bias=st.booleans(), rows=st.integers(1, 3))
@settings(max_examples=15)
def test_a_pair_of_layers_of_any_sizes(columns: list[int], bias: bool, rows: int) -> None:
    group = Group(NAMES[: len(columns)])
    polyhal.manual_seed(0)
    first, second = (nn.Linear(*s, bias, device="numpy") for s in ((3, sum(columns)), (sum(columns), 2)))
    divided = ColumnParallelLinear.of(first, group, columns), RowParallelLinear.of(second, group, columns)
    x, own_x = (numbers(rows, 3).requires_grad_() for _ in range(2))
    expected = second(first(x).relu())
    expected.square().sum().backward()
    actual = divided[1](divided[0](own_x, "relu"))
    actual.square().sum().backward()
    close(actual, expected)
    assert x.grad is not None
    assert own_x.grad is not None
    close(own_x.grad, x.grad)
    for whole, parts in zip((first, second), divided, strict=True):
        gradients = whole_gradients(parts)
        for name, p in whole.named_parameters():
            assert p.grad is not None
            close(gradients[f".{name}"], p.grad)
    close(divided[1](polyhal.concat([h.to("numpy") for h in divided[0](x)], -1)), divided[1](divided[0](x)))


def test_a_divided_table_looks_up_every_row() -> None:
    polyhal.manual_seed(0)
    table = nn.Embedding(7, 3, device="numpy")
    divided = ParallelEmbedding.of(table, Group(NAMES[:3]))
    ids = words(4, 5, below=7)
    close(divided(ids), table(ids))
    divided(ids).sum().backward()
    table(ids).sum().backward()
    assert table.weight.grad is not None
    close(whole_gradients(divided)[".weight"], table.weight.grad)


@pytest.mark.parametrize("ignored", [-100, 3])
def test_cross_entropy_of_divided_classes(ignored: int) -> None:
    group = Group(MIXED)
    targets = words(9, below=10)
    logits = (numbers(9, 10) * 20).detach().requires_grad_()
    parts = [x.detach().requires_grad_() for x in group.scatter(logits.detach(), axis=1, sizes=[5, 2, 3])]
    expected = F.cross_entropy(logits, targets, ignore_index=ignored)
    expected.backward()
    loss = vocab_parallel_cross_entropy(parts, targets, group, ignored)
    loss.backward()
    close(loss, expected)
    assert logits.grad is not None
    close(np.concatenate([p.grad.numpy() for p in parts if p.grad is not None], 1), logits.grad)
    with pytest.raises(ShapeError, match=r"shapes \(9, 5\), \(9, 2\), \(9, 3\) for targets \(8,\)"):
        vocab_parallel_cross_entropy(parts, targets[:8], group)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))


def gpt() -> tuple[nn.Module, Any]:
    """Return a GPT with heads that three devices share unevenly, and tied tables."""
    model = GPT(GPTConfig(vocab_size=21, block_size=6, n_layer=2, n_head=4, n_embd=16), device="numpy")
    return model, (words(3, 6),)


def llama() -> tuple[nn.Module, Any]:
    """Two heads of keys, so that the third device has none."""
    return Decoder(DecoderConfig(21, 16, 22, 2, 4, 2, 8), device="numpy"), (words(3, 6),)


def bert() -> tuple[nn.Module, Any]:
    config = BertConfig(21, 12, 2, 3, 10, 8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    keep = polyhal.tensor(np.arange(6) < np.array([[6], [4], [5]]), device="numpy")
    return BertClassifier(config, 3, device="numpy"), (words(3, 6), keep)


def encoder() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(12, 3, 10, 0.0, batch_first=True, device="numpy")
    keep = polyhal.tensor(np.arange(6) >= np.array([[6], [4], [5]]), device="numpy")
    return nn.TransformerEncoder(layer, 2), (numbers(3, 6, 12), None, keep)


def decoder() -> tuple[nn.Module, Any]:
    layer = nn.TransformerDecoderLayer(12, 3, 10, 0.0, "gelu", norm_first=True, device="numpy")
    return nn.TransformerDecoder(layer, 2), (numbers(6, 3, 12), numbers(4, 3, 12, seed=1))


@pytest.mark.parametrize("devices", [SIM, MIXED], ids=["sim", "mixed"])
@pytest.mark.parametrize("make", [gpt, llama, bert, encoder, decoder], ids=lambda f: f.__name__)
def test_divided_models_compute_the_same(make: Callable[[], tuple[nn.Module, Any]], devices: list[str]) -> None:
    polyhal.manual_seed(0)
    model, inputs = make()
    whole = copy.deepcopy(model)
    group = tensor_parallel(model, devices)
    assert {p.device for p in model.parameters()} == set(group.devices)
    on_root = [None if x is None else x.to(devices[0]) for x in inputs]
    actual, expected = model(*on_root), whole(*inputs)
    close(actual, expected)
    (actual.sin() * 3).sum().backward()
    (expected.sin() * 3).sum().backward()
    gradients = whole_gradients(model)
    largest = max(float(np.abs(p.grad.numpy()).max()) for p in whole.parameters() if p.grad is not None)
    for name, p in whole.named_parameters():
        assert p.grad is not None
        if name == "transformer.wte.weight":
            name = "lm_head.weight"  # the same shards
        close(gradients[name], p.grad, largest, name)
    state = whole.state_dict()
    saved = model.state_dict()
    assert list(saved) == list(state) or sorted(saved) == sorted(state)
    for name, value in state.items():
        np.testing.assert_array_equal(saved[name].numpy(), value.numpy(), name)


def test_states_go_both_ways() -> None:
    """Divided and undivided models load each other's checkpoints; tied weights stay tied."""
    polyhal.manual_seed(0)
    model, inputs = gpt()
    other, _ = gpt()
    tensor_parallel(model, NAMES[:3], shares=[2, 1, 1])
    model.load_state_dict(other.state_dict())
    close(model(*inputs), other(*inputs))
    for p in model.parameters():
        p.detach().multiply_(0.5)
    other.load_state_dict(model.state_dict())
    close(other(*inputs), model(*inputs))
    parts: Any = model
    assert parts.lm_head.weight_1 is parts.transformer["wte"].weight_1
    assert [h.shape[0] for h in parts.transformer["h"][0].mlp.c_fc.shards("bias")] == [32, 16, 16]
    state = other.state_dict()
    state["lm_head.weight"] = numbers(20, 16)
    with pytest.raises(StateDictError, match=r"lm_head.weight is \(20, 16\), here \(21, 16\)"):
        model.load_state_dict(state)
    del state["lm_head.weight"]
    with pytest.raises(StateDictError, match=r"missing keys: lm_head\.weight$"):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False).missing_keys == ["lm_head.weight"]


@pytest.mark.parametrize("gather", [True, False], ids=["gathered", "divided"])
def test_a_divided_gpt_trains_captured(gather: bool) -> None:
    """Four captured steps of Adam against the undivided model, also without gathered logits."""
    polyhal.manual_seed(0)
    model, _ = gpt()
    whole = copy.deepcopy(model)
    group = tensor_parallel(model, SIM, gather_logits=gather)
    optimizers = optim.AdamW(model.parameters(), lr=1e-2), optim.AdamW(whole.parameters(), lr=1e-2)
    ids, targets = words(3, 6), words(3, 6, seed=1)

    def loss_of(ids: Tensor, targets: Tensor) -> Tensor:
        logits = model(ids)
        if gather:
            return cross_entropy(logits, targets)
        rows = [x.reshape((-1, x.shape[-1])) for x in logits]
        return vocab_parallel_cross_entropy(rows, targets.reshape((-1,)), group)

    @polyhal.jit
    def step(ids: Tensor, targets: Tensor) -> Tensor:
        optimizers[0].zero_grad()
        loss = loss_of(ids, targets)
        loss.backward()
        optimizers[0].step()
        return loss

    losses = []
    for _ in range(4):
        optimizers[1].zero_grad()
        expected = cross_entropy(whole(ids), targets)
        expected.backward()
        optimizers[1].step()
        losses.append((step(ids.to(SIM[0]), targets.to(SIM[0])).item(), expected.item()))
    assert len(step.graphs) == 1
    assert losses[-1][1] < losses[0][1]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-4)  # Adam magnifies roundings of small gradients


@pytest.mark.parametrize("make", [gpt, llama], ids=lambda f: f.__name__)
def test_divided_models_write_text(make: Callable[[], tuple[nn.Module, Any]]) -> None:
    polyhal.manual_seed(0)
    model, _ = make()
    made: Any = model
    expected = made.generate([1, 2, 3], 3, temperature=0.0)
    tensor_parallel(model, NAMES[:2])
    assert made.generate([1, 2, 3], 3, temperature=0.0) == expected


@pytest.mark.parametrize("make", [gpt, llama], ids=lambda f: f.__name__)
def test_divided_models_take_masks(make: Callable[[], tuple[nn.Module, Any]]) -> None:
    model, (ids,) = make()
    model.eval()
    for p in model.parameters():
        p.data.copy_(numbers(*p.shape))
    count, length = ids.shape
    padding = np.ones((count, length), bool)
    padding[0, :2] = padding[1, -3:] = False
    of_heads = np.tril(np.ones((count, 4, length, length), bool))
    of_heads[:, 1, 1:, 0] = False
    masks = [polyhal.tensor(m, device="numpy") for m in (padding, of_heads)]
    expected = [model(ids, attention_mask=m).numpy() for m in masks]
    assert np.abs(expected[0] - expected[1]).max() > 0.1
    tensor_parallel(model, NAMES[:2])
    for mask, want in zip(masks, expected, strict=True):
        np.testing.assert_allclose(model(ids, attention_mask=mask).numpy(), want, rtol=1e-4, atol=1e-5)


class Doubled(nn.Module):
    """A linear layer and its double, with a divided form of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, device="numpy"), nn.Linear(4, 2, device="numpy")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x)) * 2
        return out

    def tensor_parallel(self, group: Group, shares: Any) -> nn.Module:
        self.first = ColumnParallelLinear.of(self.first, group, [2, 2])
        self.second = RowParallelLinear.of(self.second, group, [2, 2])
        return self


class Tripled(Doubled):
    """A subclass with another forward pass."""


def test_a_layer_divides_itself_and_its_subclass_does_not() -> None:
    model = nn.Sequential(Doubled(), Tripled())
    x = polyhal.ones(2, 3, device="numpy")
    expected = model[0](x).numpy()
    group = tensor_parallel(model, NAMES[:2])
    np.testing.assert_allclose(model[0](x.to(group.devices[0])).numpy(), expected, rtol=1e-5)
    assert type(model[0].first) is ColumnParallelLinear
    assert type(model[1].first) is nn.Linear


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="a Sequential has none"):
        tensor_parallel(nn.Sequential(nn.Linear(2, 2)), NAMES[:2])
    with pytest.raises(ValueError, match=r"sizes \[3, 2\].*2 positive sizes that add up to 6"):
        ColumnParallelLinear(4, 6, Group(NAMES[:2]), sizes=[3, 2])
    with pytest.raises(ValueError, match=r"shares \[1, 0\]"):
        tensor_parallel(gpt()[0], NAMES[:2], shares=[1, 0])
