"""Unit tests of the compiler: private names of PyTorch, layouts, and ops that only graphs have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal
from polyhal.hal.compile.recording import Recording
from polyhal.torch import tensors
from polyhal.torch.compiler import private
from polyhal.torch.compiler.calls import call_of
from polyhal.torch.compiler.common_nodes import merge_common_nodes
from polyhal.torch.compiler.functional import FUNCTIONAL
from polyhal.torch.compiler.layouts import Symbols, moved_to, stored
from polyhal.torch.kernels import overload

# --- private names --------------------------------------------------------------------------------------------------


def traced(function: Callable[..., Any], *args: Any) -> torch.fx.GraphModule:
    made = private.traced(function, {}, [(tuple(x.shape), x.stride(), x.dtype) for x in args])
    assert made is not None
    return made


def test_functions_are_traced() -> None:
    made = traced(lambda x: x.relu() + 1, torch.ones(2))
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_function"] == [
        "aten.relu.default",
        "aten.add.Tensor",
    ]

    def declines() -> Any:
        raise NotImplementedError

    assert private.traced(declines, {}, []) is None
    assert private.traced(lambda: NotImplemented, {}, []) is None


def merged(function: Callable[..., Any], *args: torch.Tensor) -> dict[str, int]:
    """Merge the common nodes of a function's graph, and return the numbers of ops. Asserts that the results stay."""
    made = traced(function, *args)
    wanted = function(*(x.clone() for x in args))
    merge_common_nodes(made.graph)
    made.graph.lint()
    made.recompile()
    for result, expected in zip(made(*(x.clone() for x in args)), wanted, strict=True):
        assert torch.equal(result, expected)
    return Counter(
        str(n.target).removeprefix("aten.").split(".")[0] for n in made.graph.nodes if n.op == "call_function"
    )


def test_common_nodes_are_merged() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert merged(lambda x: ((x.exp() + 1) * x.exp().sum([1], True), (x.exp() + 1).neg()), x)["exp"] == 1
    assert merged(lambda x: (x.max(1)[0] + x.max(1)[1],), x)["max"] == 1
    assert merged(lambda x: (x.sum(0) + x.sum(1).sum(),), x)["sum"] == 3


def test_nodes_with_other_values_or_memory_are_not_merged() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert merged(lambda x: (x / 0.0 + 1 / (x / -0.0),), x + 1)["div"] == 2
    assert merged(lambda x: (x.add(1).sin(), x.add(True).cos()), x)["add"] == 2
    assert merged(lambda x: (x.exp(), x.exp()), x)["exp"] == 2, "results of the graph have memory of their own"
    assert merged(lambda x: (x.exp().view(-1), x.exp().neg()), x)["exp"] == 2

    def writes(x: torch.Tensor) -> Any:
        before = x.exp() + 1
        x.copy_(before)
        return before, x.exp() + 2

    assert merged(writes, x)["exp"] == 2


def test_random_nodes_are_not_merged() -> None:
    made = traced(lambda x: (torch.rand_like(x) - torch.rand_like(x), torch.empty_like(x).fill_(1)), torch.ones(8))
    merge_common_nodes(made.graph)
    assert [str(n.target) for n in made.graph.nodes].count("aten.rand_like.default") == 2


def test_graphs_are_split() -> None:
    made = traced(lambda x: (x.exp() * 2).tan().neg().abs(), torch.ones(2))
    split = private.split_graph(made, lambda n: n.op == "call_function" and "tan" not in str(n.target))
    assert [n.op for n in split.graph.nodes].count("call_module") == 2
    assert torch.equal(split(torch.ones(2)), (torch.ones(2).exp() * 2).tan().neg().abs())


def test_symbols_are_bound_and_substituted() -> None:
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(n.meta["example_value"] for n in graph.graph.nodes if n.op == "placeholder")
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x.reshape(-1) + 1, backend=backend, dynamic=True)(torch.ones(3, 5))
    symbols = Symbols()
    (fake,) = [x for x in seen if isinstance(x, torch.Tensor)]
    symbols.bind(fake, torch.ones(4, 6))
    assert symbols.strides(fake) == (6, 1)
    assert [symbols.value(n) for n in fake.shape] == [4, 6]
    assert symbols.value(fake.shape[0] * fake.shape[1]) == 24
    with pytest.raises(KeyError):
        Symbols().value(fake.shape[0])


def test_core_decompositions_cover_ops_outside_of_the_core() -> None:
    assert torch.ops.aten.huber_loss.default in private.core_decompositions()
    assert torch.ops.aten.add.Tensor not in private.core_decompositions()


def test_there_is_no_forward_graph_outside_of_compilations() -> None:
    assert private.forward_results() is None


# --- layouts --------------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> torch.Tensor:
    """Return a tensor in some layout: axes in any order, with gaps, repeated."""
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    x = torch.arange(2 * int(np.prod(shape)) + 8, dtype=torch.float32)[: int(np.prod(shape))].reshape(shape)
    x = (
        x.permute(draw(st.permutations(range(len(shape)))))
        .contiguous()
        .permute(draw(st.permutations(range(len(shape)))))
    )
    for axis in range(x.ndim):
        how = draw(st.sampled_from(["", "", "gap", "repeat"]))
        if how == "gap":
            x = torch.stack([x, x], axis + 1).flatten(axis, axis + 1)[(slice(None),) * axis + (slice(None, None, 2),)]
        elif how == "repeat":
            x = x[(slice(None),) * axis + (slice(0, 1),)].expand(*x.shape[:axis], 3, *x.shape[axis + 1 :])
    return x


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_results_are_laid_out_as_wanted(x: torch.Tensor) -> None:
    device = polyhal.Device("numpy")
    source = polyhal.tensor(x.contiguous().numpy(), device=device)
    with Recording() as recording:
        given = recording.placeholder(device, source.ref.spec)
        out = stored(given * 1.0, x.stride())
        recording.results([out])
        del out, given
    (block,) = recording.program().run([source])
    assert block.ref.is_contiguous
    found = tensors.view_of(block, block.ref.spec._replace(shape=tuple(x.shape), strides=x.stride()), block.ref.offset)
    np.testing.assert_array_equal(found.numpy(), x.numpy())
    moved = moved_to(source, source.ref.spec._replace(strides=x.stride()))
    assert moved.ref.strides == x.stride()
    np.testing.assert_array_equal(moved.numpy(), x.numpy())


# --- ops ------------------------------------------------------------------------------------------------------------

X, M = torch.arange(24.0).reshape(2, 3, 4), torch.arange(9).reshape(3, 3)
OPS: list[tuple[str, tuple[Any, ...]]] = [
    ("slice.Tensor", (X, 1, 1, 3)), ("slice.Tensor", (X, -1, -3, None, 2)), ("slice.Tensor", (X, 0, 5, 9)),
    ("slice.Tensor", (X, 2, 0, 9223372036854775807)), ("squeeze.default", (X[:1],)), ("squeeze.dim", (X[:1], 0)),
    ("squeeze.dim", (X, 0)), ("squeeze.dims", (X[:1, :, :1], [0, -1])), ("split.Tensor", (X, 2, 1)),
    ("split_with_sizes.default", (X, [1, 3], 2)), ("unbind.int", (X, 1)), ("diagonal.default", (X, 1, 0, 2)),
    ("clone.default", (X,)), ("copy.default", (X, X[0, :1])), ("full_like.default", (M, 3)), ("fill.Scalar", (M, 2)),
    ("fill.Tensor", (X, torch.tensor(2.0))), ("slice_scatter.default", (X, X[:, :1], 1, 2, 3)),
    ("select_scatter.default", (X, X[0], 0, 1)), ("new_full.default", (M, [2, 2], 5)), ("ones_like.default", (X,)),
    ("unfold.default", (X, 2, 3, 1)), ("unfold.default", (X, -2, 2, 1)), ("repeat.default", (X, [2, 1, 3])),
    ("repeat.default", (M, [2, 1, 2])), ("constant_pad_nd.default", (X, [1, 2, -1, 1], 3.0)),
    ("constant_pad_nd.default", (X, [-1, -1])),
    ("zeros_like.default", (M,)), ("new_ones.default", (X, [3])), ("reshape.default", (X, [4, -1])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), OPS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(OPS)])
def test_ops_of_graphs(name: str, args: tuple[Any, ...]) -> None:
    device = polyhal.Device("numpy")
    op = overload(name)
    assert name in FUNCTIONAL
    call = call_of(op)
    assert call is not None
    ours = [tensors.upload_to(x, device) if isinstance(x, torch.Tensor) else x for x in args]
    found, expected = call(device, ours, {}), op(*args)
    for a, b in zip(found, expected, strict=True) if isinstance(expected, (list, tuple)) else [(found, expected)]:
        assert tensors.TORCH_DTYPES[a.dtype] is b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())


LISTS: list[tuple[str, tuple[Any, ...]]] = [
    ("_foreach_add.Scalar", ([X, M], 2)),
    ("_foreach_add.List", ([X, X], [X, X + 1])),
    ("_foreach_sqrt.default", ([X],)),
    ("_foreach_mul.ScalarList", ([X, X], [2.0, 3.0])),
    ("_foreach_div.Tensor", ([X, X], torch.tensor(4.0))),
    ("_foreach_pow.ScalarAndTensor", (0.9, [X, X[0]])),
    ("_foreach_maximum.List", ([X, X], [X[0], 5 - X])),
    ("_foreach_addcmul.Scalar", ([X], [X + 1], [X + 2], 0.5)),
    ("_foreach_lerp.Scalar", ([X], [X + 1], 0.25)),
    ("_foreach_addcdiv.ScalarList", ([X, X], [X, X], [X + 1, X + 2], [0.5, 2.0])),
    ("_foreach_neg.default", ([X, M],)),
    ("_foreach_clamp_min.Scalar", ([X], 3)),
    ("_foreach_norm.Scalar", ([X, X[0]], 2)),
]


@pytest.mark.parametrize(("name", "args"), LISTS, ids=[n for n, _ in LISTS])
def test_ops_over_lists(name: str, args: tuple[Any, ...]) -> None:
    device = polyhal.Device("numpy")
    call = call_of(overload(name))
    assert call is not None
    ours = torch.utils._pytree.tree_map(
        lambda x: tensors.upload_to(x, device) if isinstance(x, torch.Tensor) else x, list(args)
    )
    for a, b in zip(call(device, ours, {}), overload(name)(*args), strict=True):
        assert tensors.TORCH_DTYPES[a.dtype] is b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-7)


def test_ops_that_write_have_no_function() -> None:
    assert call_of(torch.ops.aten.add_.Tensor) is None
    assert call_of(torch.ops.aten._fused_adam_.default) is None
    assert call_of(torch.ops.higher_order.cond) is None


def test_every_name_is_an_op_of_this_version() -> None:
    unknown = [n for n in FUNCTIONAL if not n.startswith("prims.") and overload(n) is None]
    assert not unknown
