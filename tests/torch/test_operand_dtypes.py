"""Operands of several dtypes: each overload of the table refuses and takes them as PyTorch's CPU does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from polyhal.torch.registration import TABLE
from tests.pytorch.database import op_database

KINDS = (torch.float64, torch.bfloat16, torch.int32, torch.uint8)
"""Dtypes that replace one operand's, in turn."""
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
EXCUSED = {
    "_ctc_loss.Tensor": "lengths are cast to integers, as CUDA does, which reads them on the host",
    "_ctc_loss.default": "targets of bytes are labels on CUDA",
    "_embedding_bag_forward_only.default": "offsets are cast to the dtype of the indices",
    "_embedding_bag.default": "offsets are cast to the dtype of the indices",
    "_histogramdd_from_bin_tensors.default": "a list of edges is cast to the dtype of the values",
    "convolution.default": "CUDA refuses a bias of another dtype, which the CPU's transposed convolution misreads",
    "index_fill.int_Scalar": "a value that the dtype does not have, which is another error",
    "index_fill.int_Tensor": "a value that the dtype does not have, which is another error",
    "linalg_solve_triangular.default": "the CPU reads beyond the memory of an operand in a narrower dtype",
    "segment_reduce.default": "lengths are counted in any dtype",
}
"""Overloads that differ from the CPU, with reasons."""
GAPS_OF_THE_CPU = ("not implemented for", "can't be cast to the desired output type")
"""Messages of the CPU for a dtype that it lacks as such, as of integer losses: no rule about several operands."""


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects one call of each overload of the table with several tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Call] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.")
        # Gradients are called by autograd, with tensors that it made itself.
        if name in TABLE and name not in self.found and "backward" not in name:
            tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            if len(tensors) > 1 and all(t.numel() and t.layout is torch.strided for t in tensors):
                self.found[name] = (func, *_mapped(torch.Tensor.clone, (args, kwargs)))
        return func(*args, **kwargs)


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    return pytree.tree_map(lambda x: function(x) if isinstance(x, torch.Tensor) else x, tree)


def _calls() -> dict[str, Call]:
    collected = _Calls()
    for entry in op_database():
        if entry.name.startswith("jiterator"):  # kernels in CUDA's language
            continue
        for sample in islice(_samples(entry), 2):
            try:
                with collected, torch.no_grad():
                    entry.op(sample.input, *sample.args, **sample.kwargs)
            except (RuntimeError, TypeError, ValueError):  # a sample that this mode does not support
                continue
    return collected.found


def _samples(entry: Any) -> Iterator[Any]:
    dtype = next((d for d in (torch.float32, torch.int64) if d in entry.dtypes), None)
    return iter(()) if dtype is None else iter(entry.sample_inputs("cpu", dtype, requires_grad=False))


def _error(func: Any, args: Any, kwargs: Any, device: str) -> Exception | None:
    args, kwargs = _mapped(lambda x: x.to(device, copy=True), (args, kwargs))
    try:
        func(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return error
    return None


def _variants(args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """Yield calls with one operand in another dtype."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    for i, x in enumerate(leaves):
        for kind in KINDS if isinstance(x, torch.Tensor) else ():
            if kind is not x.dtype:
                other = (
                    x.abs().clamp(0, 1).to(kind) if x.is_floating_point() and not kind.is_floating_point else x.to(kind)
                )
                yield (
                    f"operand {i}, {x.dtype} to {kind}",
                    pytree.tree_unflatten([*leaves[:i], other, *leaves[i + 1 :]], spec),
                )


def test_overloads_take_and_refuse_several_dtypes_as_the_cpu_does(
    torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    differing, refused = set(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = _calls()
        for name, (func, args, kwargs) in calls.items():
            if _error(func, args, kwargs, "cpu") is not None:
                continue
            for variant, (others, named) in _variants(args, kwargs):
                theirs, ours = (_error(func, others, named, device) for device in ("cpu", torch_on_numpy))
                if (theirs is None) != (ours is None) and not any(gap in str(theirs) for gap in GAPS_OF_THE_CPU):
                    differing.add((name, variant, str(theirs or ours)[:200]))
                refused += theirs is not None
    assert {name for name, *_ in differing} <= EXCUSED.keys(), [d for d in differing if d[0] not in EXCUSED]
    assert len(calls) > 130
    assert refused > 300


def _operands(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 16, device=device).reshape(4, 4)
    return x, x.double(), torch.arange(4, device=device)


REFUSED: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "matrices": ("mm", lambda x, y, i: x @ y),
    "a vector": ("mv", lambda x, y, i: x @ y[0]),
    "batches": ("bmm", lambda x, y, i: x[None] @ y[None]),
    "vectors": ("dot", lambda x, y, i: x[0] @ y[0]),
    "an addend": ("addmm", lambda x, y, i: torch.addmm(y, x, x)),
    "an addend in place": ("addmm", lambda x, y, i: x.clone().addmm_(y, y)),
    "an einsum": ("bmm", lambda x, y, i: torch.einsum("ij,jk->ik", x, y)),
    "a contraction": ("", lambda x, y, i: torch.tensordot(x, y, 1)),
    "a linear layer": ("linear", lambda x, y, i: F.linear(x, y)),
    "an integer weight": ("linear", lambda x, y, i: F.linear(x, x.long())),
    "a bias": ("linear", lambda x, y, i: F.linear(x, x, y[0])),
    "a convolution": ("convolution", lambda x, y, i: F.conv1d(x[None], y[:, :, None])),
    "attention": (
        "scaled_dot_product_attention",
        lambda x, y, i: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    ),
    "a mask of attention": (
        "scaled_dot_product_attention",
        lambda x, y, i: F.scaled_dot_product_attention(x[None], x[None], x[None], y),
    ),
    "statistics": ("batch_norm", lambda x, y, i: F.batch_norm(x, y[0], y[0].abs())),
    "parameters of a norm": ("layer_norm", lambda x, y, i: F.layer_norm(x, (4,), y[0], y[0])),
    "parameters in half precision": ("layer_norm", lambda x, y, i: F.layer_norm(x, (4,), x[0].half(), x[0].half())),
    "an interpolation": ("lerp", lambda x, y, i: torch.lerp(x, y, 0.5)),
    "its weights": ("lerp", lambda x, y, i: torch.lerp(x, x, y)),
    "added rows": ("index_add", lambda x, y, i: x.index_add(0, i, y)),
    "copied rows": ("index_copy", lambda x, y, i: x.index_copy(0, i, y)),
    "assigned rows": ("index_put", lambda x, y, i: x.index_put((i,), y)),
    "scattered elements": ("scatter_add", lambda x, y, i: x.clone().scatter_add_(0, i[None], y)),
    "masked elements": ("masked_scatter", lambda x, y, i: x.masked_scatter(x > 0, y)),
    "32-bit targets": ("nll_loss_forward", lambda x, y, i: F.cross_entropy(x, i.int())),
    "32-bit targets and smoothing": (
        "nll_loss_forward",
        lambda x, y, i: F.cross_entropy(x, i.int(), label_smoothing=0.1),
    ),
    "weights of classes": ("nll_loss_forward", lambda x, y, i: F.cross_entropy(x, i, y[0].abs())),
    "float indices": ("embedding", lambda x, y, i: F.embedding(x[0], x)),
    "16-bit indices": ("gather", lambda x, y, i: x.gather(0, i[None].short())),
    "a bilinear layer": ("", lambda x, y, i: F.bilinear(x, y, x[None])),
    "probabilities": ("binary_cross_entropy", lambda x, y, i: F.binary_cross_entropy(x.abs(), y.abs())),
    "a difference of a truth": ("sub", lambda x, y, i: x - (x > 0)),
    "targets of a gradient": ("huber_loss_backward", lambda x, y, i: F.huber_loss(x.requires_grad_(), y).backward()),
    "a hidden state": ("gru", lambda x, y, i: torch.nn.GRU(4, 4).to(x.device)(x, y[:1])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_with_several_dtypes_are_refused_with_a_sentence(torch_device: str, name: str) -> None:
    op, call = REFUSED[name]
    with pytest.raises(RuntimeError):
        call(*_operands("cpu"))
    ours = rf"\[\w*{op}\w*\].*(float64|int32|int64|int16|float16|float32|bool).*cast"
    with pytest.raises(RuntimeError, match=ours if op else "same dtype"):  # PyTorch's own functions check some
        call(*_operands(torch_device))


TAKEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "where": lambda x, y, i: torch.where(x > 0, x, y),
    "copy_": lambda x, y, i: x.clone().copy_(y),
    "losses": lambda x, y, i: [F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y)],
    "labels of bytes": lambda x, y, i: F.cross_entropy(x, i.byte()),
    "a weight without axes": lambda x, y, i: torch.lerp(x, x + 1, y[0, 0]),
    "single parameters of a norm in half precision": lambda x, y, i: F.layer_norm(x.bfloat16(), (4,), x[0], x[0]),
    "single statistics in half precision": lambda x, y, i: F.batch_norm(x.bfloat16(), x[0], x[0].abs(), x[0], x[0]),
    "a number": lambda x, y, i: x.index_put((i[:2],), torch.tensor(3.0, device=x.device)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_dtypes_that_pytorch_promotes_are_promoted(torch_device: str, name: str) -> None:
    expected, found = (pytree.tree_leaves(TAKEN[name](*_operands(device))) for device in ("cpu", torch_device))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is b.dtype
        # One rounding of bfloat16 (2**-8) of numbers below 4 may differ.
        torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=4 * 2**-8 if b.dtype is torch.bfloat16 else 1e-6)


def test_autocast_casts_before_operands_are_compared(torch_device: str) -> None:
    def run(device: str) -> torch.Tensor:
        x, y, _ = _operands(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            return torch.addmm(x, x.bfloat16(), y.float())

    assert run(torch_device).dtype is run("cpu").dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16])
@pytest.mark.parametrize("name", ["sum", "prod", "nansum"])
def test_reductions_have_the_dtype_that_the_call_names(torch_device: str, name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([[1.5, 0.0, 2.0], [3.0, 1.0, 2.0]])
    ours, theirs = (getattr(torch, name)(t, dim=1, dtype=dtype) for t in (x.to(torch_device), x))
    torch.testing.assert_close(ours.cpu(), theirs)


OUTPUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "addmm": lambda x, out: torch.addmm(x, x, x, out=out),
    "bmm": lambda x, out: torch.bmm(x[None], x[None], out=out),
    "gather": lambda x, out: torch.gather(x, 0, (x * 0).long(), out=out),
    "argmax": lambda x, out: torch.argmax(x, 0, out=out),
    "vector_norm": lambda x, out: torch.linalg.vector_norm(x, out=out),
    "add": lambda x, out: torch.add(x, x, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "prod": lambda x, out: torch.prod(x, 0, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_of_another_dtype_is_cast_to_or_refused_as_on_the_cpu(
    torch_device: str, name: str, dtype: torch.dtype
) -> None:
    def call(device: str) -> torch.Tensor | str:
        out = torch.empty(0, dtype=dtype, device=device)
        try:
            OUTPUTS[name](torch.tensor([[1.5, 2.5], [0.5, 3.75]], device=device), out)
        except (RuntimeError, TypeError):
            return "refused"
        return out.cpu()

    ours, theirs = call(torch_device), call("cpu")
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs)
