"""Each private name of PyTorch behaves as this package requires."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyhal.torch import private
from polyhal.torch.device import current
from polyhal.torch.versions import require


def test_new_tensor_has_the_shape_and_a_storage_that_keeps_its_object() -> None:
    x = private.new_tensor((2, 3), torch.float32)
    assert (x.device.type, tuple(x.shape), x.dtype) == ("polyhal", (2, 3), torch.float32)
    x.untyped_storage().mark = "kept"  # type: ignore[attr-defined]
    assert x.detach().untyped_storage().mark == "kept"  # type: ignore[attr-defined]


def test_reinterpret_shares_the_storage() -> None:
    x = private.new_tensor((2, 3), torch.float32)
    y = private.reinterpret(x, (3,), (1,), 3)
    assert y.untyped_storage() is x.untyped_storage()
    assert (tuple(y.shape), y.stride(), y.storage_offset()) == ((3,), (1,), 3)


def test_has_kernel() -> None:
    assert private.has_kernel("aten::add.Tensor", "CPU")
    assert not private.has_kernel("aten::add.Tensor", "CompositeImplicitAutograd")


def test_new_storage_and_set_geometry() -> None:
    x = private.new_tensor((2,), torch.float32)
    storage = private.new_storage(x.device, 24)
    private.set_geometry(x, storage, 1, (5,), (1,))
    assert (x.storage_offset(), tuple(x.shape)) == (1, (5,))


def test_decompositions_and_overloads() -> None:
    assert torch.ops.aten.huber_loss.default in private.decompositions()
    assert torch.ops.aten.add.Tensor in private.overloads("add")


def test_storage_keys_identify_storages() -> None:
    x, y = torch.ones(3), torch.ones(3)
    assert private.storage_key(x) == private.storage_key(x[1:].detach())
    assert private.storage_key(x) != private.storage_key(y)
    x.data = y
    assert private.storage_key(x) == private.storage_key(y)


def test_the_current_node_is_that_of_the_running_gradient() -> None:
    assert private.current_node() is None
    seen = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(private.current_node())
            return gradient

    y = Noted.apply(torch.ones(3, requires_grad=True))
    y.sum().backward()
    assert seen == [y.grad_fn]


def test_modes_that_see_ops_are_noticed() -> None:
    assert not private.is_watched()
    with private.OpMode(), private.without_functions():
        assert private.is_watched()


def test_versions_are_incremented() -> None:
    x = torch.ones(3)
    before = x._version
    private.increment_versions([x])
    assert x._version == before + 1


def test_old_versions_are_refused_with_a_sentence() -> None:
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.10 or later and found 2\.9\.1"):
        require("2.9.1")
    require("3.0.0+cpu")


def test_dynamo_does_not_compile_kernels() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    torch._dynamo.reset()
    assert torch.compile(program, backend=backend)(torch.ones(2, device="polyhal")).tolist() == [2, 2]
    assert [str(n.target) for g in graphs for n in g.graph.nodes if n.op in ("call_method", "call_function")] == [
        "sum",
        "<built-in function mul>",
    ]


@pytest.mark.usefixtures("torch_on_numpy")  # Dynamo would compile functions called with an array
@pytest.mark.filterwarnings("error")
def test_dynamo_does_not_compile_releases_of_memory() -> None:
    held = [torch.ones(2, device="polyhal")]

    def program(x: torch.Tensor) -> torch.Tensor:
        held.clear()
        return x * 2

    torch._dynamo.reset()
    before = current().memory_stats().used
    compiled = torch.compile(program, backend=lambda graph, inputs: graph.forward)
    x = torch.ones(2, device="polyhal")
    assert compiled(x).tolist() == [2, 2]
    del x
    assert not held
    assert current().memory_stats().used < before


def test_decomposed_and_the_choice_of_attention() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(private.decomposed(torch.ops.aten.square.default, x), x * x)
    assert private.may_use_fused_attention()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert not private.may_use_fused_attention()
