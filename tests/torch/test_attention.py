"""Attention of every form is one op of the device, with gradients of the mask, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparison import agree
from compiled import compare
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import polyhal as ph
import polyhal.torch
from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.passes import pipeline
from polyhal.hal.compile.passes.simplify.attention_masks import recognize_masks


def _leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-2])).requires_grad_()


QUERIES, KEYS, VALUES = _leaf(2, 4, 5, 8), _leaf(2, 4, 7, 8), _leaf(2, 4, 7, 6)
ROW_OF_NOTHING = torch.zeros(5, 7).index_fill(0, torch.tensor(2), -torch.inf)
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "mask that learns, for all heads": ((QUERIES, KEYS, VALUES, _leaf(5, 7)), {}),
    "mask that learns, broadcast over batch and queries": ((QUERIES, KEYS, VALUES, _leaf(4, 1, 7)), {"scale": 0.3}),
    "row without a key": ((QUERIES, KEYS, VALUES, ROW_OF_NOTHING), {}),
    "first queries see first keys": ((QUERIES, KEYS, VALUES), {"is_causal": True}),
    "grouped heads": ((QUERIES, _leaf(2, 2, 7, 8), _leaf(2, 2, 7, 6)), {"enable_gqa": True}),
    "grouped causal heads": ((QUERIES, _leaf(2, 2, 5, 8), _leaf(2, 2, 5, 6)), {"enable_gqa": True, "is_causal": True}),
    "grouped heads, masked keys": (
        (_leaf(2, 4, 1, 8), _leaf(2, 2, 7, 8), _leaf(2, 2, 7, 6), torch.arange(7).reshape(1, 1, 1, 7) < 5),
        {"enable_gqa": True},
    ),
    "grouped heads, mask that learns for each head": (
        (QUERIES, _leaf(2, 2, 7, 8), _leaf(2, 2, 7, 6), _leaf(4, 5, 7)),
        {"enable_gqa": True},
    ),
    "grouped heads, mask for each query": (
        (QUERIES, _leaf(2, 2, 7, 8), _leaf(2, 2, 7, 6), torch.tril(torch.ones(5, 7, dtype=torch.bool), 2)),
        {"enable_gqa": True},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(torch_device: str, name: str) -> None:
    args, keywords = CASES[name]
    agree(lambda *xs: F.scaled_dot_product_attention(*xs, **keywords), *args, device=torch_device)
    assert str(polyhal.torch.report()) == "every op ran by a kernel of the device"


def test_a_mask_of_large_scores_costs_no_second_forward_pass(torch_device: str) -> None:
    """Both parts of the logarithm, whose sum would lose one for scores of -1e9, are kept for the backward pass."""
    mask = torch.zeros(5, 7).index_fill(0, torch.tensor([1, 3]), -1e9)
    q, k, v = (x.detach().to(torch_device).requires_grad_() for x in (QUERIES, KEYS, VALUES))
    with ph.profile(ph.get_default_device()) as found:
        F.scaled_dot_product_attention(q, k, v, mask.to(torch_device)).sum().backward()
    assert {n: row.calls for n, row in found.ops.items() if "attention" in n} == {"attention": 1, "attention_grad": 1}
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(
            QUERIES, KEYS, VALUES, mask
        )  # in float32, too, the mask absorbs the scores
    torch.testing.assert_close(v.grad.cpu(), torch.autograd.grad(out.sum(), VALUES)[0], rtol=1e-5, atol=1e-5)


def test_a_backward_pass_is_one_op(torch_device: str) -> None:
    """The logarithms are kept as the kernel takes them."""
    q, k, v = (x.detach().to(torch_device).requires_grad_() for x in (QUERIES, KEYS, VALUES))
    out = F.scaled_dot_product_attention(q, k, v)
    slope = torch.ones_like(out)
    with ph.profile(ph.get_default_device()) as found:
        out.backward(slope)
    assert {name: row.calls for name, row in found.ops.items()} == {"attention_grad": 1}


@pytest.mark.parametrize("mask", [None, torch.zeros(5, 7).index_fill(1, torch.tensor(2), -50.0)], ids=["all", "masked"])
def test_compiled_heads_without_a_batch(torch_on_numpy: str, mask: torch.Tensor | None) -> None:
    """PyTorch takes them as a batch of one, also in the shape of the logarithms."""
    heads = [x[0].detach().requires_grad_() for x in (QUERIES, KEYS, KEYS)]
    compare(F.scaled_dot_product_attention, [(*heads, mask)], torch_on_numpy)


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Attend with a causal mask, with a window of three keys, and with padding, as transformers makes them."""
    positions = torch.arange(q.shape[-2], device=q.device)
    causal = (positions <= positions[:, None])[None, None]
    window = causal & (positions > positions[:, None] - 3)
    masks = causal.expand(2, 1, -1, -1), window, causal & padding
    q = q + torch.arange(q.shape[-2], device=q.device)[:, None]  # PyTorch merges equal constants.
    return sum(F.scaled_dot_product_attention(q * i, k, v, mask) for i, mask in enumerate(masks, 1))


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "compiled"])
def test_causal_masks_are_recognized_forward_and_backward(
    torch_device: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, bool, bool]] = []

    def recognize(graph: Graph) -> Graph:
        graph = recognize_masks(graph)
        for n in graph.nodes:
            if n.op.family == "attention":
                found.append((n.op.name, n.inputs[n.op.schema.inputs.index("mask")] is not None, n.bound["causal"]))
        return graph

    passes = tuple(recognize if p is recognize_masks else p for p in pipeline.PASSES)
    monkeypatch.setattr(pipeline, "PASSES", passes)
    padding = torch.arange(10).reshape(2, 1, 1, 5) != 6
    leaves = [x.detach().requires_grad_() for x in (QUERIES, _leaf(2, 4, 5, 8), _leaf(2, 4, 5, 6))]
    moved = [x.detach().to(torch_device).requires_grad_() for x in leaves]
    there = padding.to(torch_device)

    def step() -> list[torch.Tensor]:
        out = run(*moved, there)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), moved)]

    torch._dynamo.reset()
    run = _masked if recorded else torch.compile(_masked, backend="polyhal")
    take = polyhal.torch.jit(step, strict=True) if recorded else step
    for _ in range(3):
        results = take()
    out = _masked(*leaves, padding)
    expected = [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]
    torch.testing.assert_close([x.cpu() for x in results], expected, rtol=1e-4, atol=1e-4)
    for op in ("attention", "attention_grad"):
        assert {(mask, causal) for name, mask, causal in found if name == op} == {(False, True), (True, True)}


def test_second_gradients_need_the_composition(torch_device: str) -> None:
    def second(q: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sin().sum(), q, create_graph=True)
        return slope

    q = _leaf(1, 2, 4, 8)
    with sdpa_kernel(SDPBackend.MATH):
        agree(second, q, device=torch_device)
    with pytest.raises(RuntimeError, match=r"derivative for .*fused_attention.*is not implemented"):
        second(q.detach().to(torch_device).requires_grad_()).sum().backward()


def test_dropout_keeps_its_share(torch_device: str) -> None:
    q = torch.zeros(1, 1, 64, 4, device=torch_device)
    ones = torch.ones(1, 1, 64, 1, device=torch_device)
    out = F.scaled_dot_product_attention(q, q, ones, dropout_p=0.5)  # the mean of 64 numbers that are 0 or 2
    assert 0.9 < out.mean().item() < 1.1
    assert out.std().item() > 0.05


def test_the_composition_leaves_out_masked_keys(torch_device: str) -> None:
    mask = torch.tensor([[True, False, True], [False, False, False]])
    with sdpa_kernel(SDPBackend.MATH):
        agree(F.scaled_dot_product_attention, _leaf(1, 2, 4), _leaf(1, 3, 4), _leaf(1, 3, 5), mask, device=torch_device)
    q, k = torch.zeros(1, 2, 4, device=torch_device), torch.zeros(1, 3, 4, device=torch_device)
    keys = torch.eye(3, device=torch_device)[None]
    for options in ({"attn_mask": mask.to(torch_device)}, {"is_causal": True}):
        seen = sum(F.scaled_dot_product_attention(q, k, keys, dropout_p=0.5, **options) for _ in range(40))
        expected = mask if "attn_mask" in options else torch.ones(2, 3).tril().bool()
        assert torch.equal((seen != 0).cpu()[0], expected)  # each allowed key is kept at least once in 40 draws
