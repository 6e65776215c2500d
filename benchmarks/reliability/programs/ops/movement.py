"""Calls that move elements: views, and copies in another order."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, length_of, of_any


def _any(d: Draw, least: int = 0) -> Var:
    return d.tensor(lambda t: t.ndim >= least and not t.is_complex())


def _reshaped(d: Draw, x: Var) -> tuple[int, ...]:
    """Another shape of as many elements."""
    n = x.t.numel()
    fits = [(n,), (-1,) if n else (0,), (1, n), (n, 1), *((k, n // k) for k in (2, 3, 4) if n % k == 0)]
    if n % 6 == 0:
        fits += [(2, 3, n // 6), (n // 6, 3, 2)]
    return tuple(d.one(fits))


def _permutation(d: Draw, x: Var) -> list[int]:
    return d.rng.sample(range(x.ndim), x.ndim)


def slices(d: Draw, x: Var) -> str:
    """Brackets with slices, integers, `None` and `...` that select a part of x."""
    items = []
    for n in x.shape:
        kind = d.rng.randrange(6)
        if kind == 0 and n:
            items.append(str(d.rng.randrange(-n, n)))
        elif kind == 1 and n > 1:
            items.append("1:")
        elif kind == 2 and n > 1:
            items.append(":-1")
        elif kind == 3 and n > 1:
            items.append(d.one(["::2", "1::2", "0:1"]))
        else:
            items.append(":")
    if items and d.chance(0.1):
        items[-1] = "..."
    if d.chance(0.1):
        items.insert(d.rng.randint(0, len(items)), "None")
    return ", ".join(items) or "..."


def _split(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    return _parts(d, x, f"torch.split({x}, {max(1, (length_of(x, a) + 1) // 2)}, {a})")


def _parts(d: Draw, x: Var, views: str) -> str:
    """Several views of x, or copies: PyTorch refuses writes to one of several views if gradients are needed."""
    return f"[part.clone() for part in {views}]" if x.t.requires_grad or d.chance(0.2) else views


def _chunks(d: Draw) -> str:
    x = _any(d, 1)
    return _parts(d, x, f"torch.chunk({x}, 2, {d.axis(x)})")


def _unbound(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    return f"{_parts(d, x, f'torch.unbind({x}, {a})')}[{d.rng.randrange(length_of(x, a))}]"


def _expanded(d: Draw) -> str:
    x = _any(d)
    shape = [d.length() if n == 1 else n for n in x.shape]
    return f"{x}.expand({[2, *shape] if d.chance(0.4) and len(shape) < 4 else shape})"


def _unfolded(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    size = d.rng.randint(1, length_of(x, a))
    return f"{x}.unfold({a}, {size}, {d.one((1, 1, 2))})"


VIEWS = (
    Call("slice", lambda d: f"{(x := _any(d, 1))}[{slices(d, x)}]"),
    Call("slice", lambda d: f"{(x := _any(d, 1))}[{slices(d, x)}]"),
    Call("slice", lambda d: f"{(x := _any(d, 1))}[{slices(d, x)}]"),
    Call("reshape", lambda d: f"{(x := _any(d))}.reshape({_reshaped(d, x)})"),
    Call("view", lambda d: f"{(x := d.tensor(lambda t: t.is_contiguous()))}.view({_reshaped(d, x)})"),
    Call("transpose", lambda d: f"{(x := _any(d, 2))}.transpose({d.axis(x)}, {d.axis(x)})"),
    Call("permute", lambda d: f"{(x := _any(d, 2))}.permute({_permutation(d, x)})"),
    Call("mT", lambda d: f"{_any(d, 2)}.mT"),
    Call("t", lambda d: f"{d.tensor(lambda t: t.ndim <= 2)}.t()"),
    Call("unsqueeze", lambda d: f"{(x := d.tensor(lambda t: 0 < t.ndim < 4))}.unsqueeze({d.axis(x)})"),
    of_any("squeeze", "torch.squeeze({x}, {a})", least=1),
    Call("expand", _expanded),
    Call("narrow", lambda d: f"{(x := _any(d, 1))}.narrow({(a := d.axis(x))}, 0, {d.rng.randint(1, length_of(x, a))})"),
    Call("select", lambda d: f"{(x := _any(d, 1))}.select({(a := d.axis(x))}, {d.rng.randrange(length_of(x, a))})"),
    Call("diagonal", lambda d: f"torch.diagonal({_any(d, 2)}, {d.one((0, 0, 1, -1))})"),
    Call("unfold", _unfolded),
    Call("movedim", lambda d: f"torch.movedim({(x := _any(d, 2))}, {d.axis(x)}, {d.axis(x)})"),
    Call("flatten", lambda d: f"{_any(d)}.flatten()"),
    Call("split", _split),
    Call("chunk", _chunks),
    Call("unbind", _unbound),
    Call("contiguous", lambda d: f"{d.tensor(lambda t: not t.is_contiguous())}.contiguous()"),
    Call(
        "view_as", lambda d: f"{(x := d.tensor(lambda t: t.is_contiguous()))}.view_as({d.fitting(x.shape, x.t.dtype)})"
    ),
    Call("expand_as", lambda d: f"{(x := _any(d))}.expand_as({d.beside(x)})"),
)


def _joined(d: Draw) -> str:
    x = d.tensor(lambda t: t.ndim >= 1 and not t.is_complex())
    return f"torch.cat([{x}, {d.fitting(x.shape, x.t.dtype)}{f', {x}' if d.chance(0.3) else ''}], {d.axis(x)})"


def _stacked(d: Draw) -> str:
    x = d.tensor(lambda t: t.ndim <= 3 and not t.is_complex())
    return f"torch.stack([{x}, {d.fitting(x.shape, x.t.dtype)}], {d.rng.randint(0, x.ndim)})"


def _pair(d: Draw, text: str, least: int = 1) -> str:
    x = _any(d, least)
    return text.format(x, d.fitting(x.shape, x.t.dtype))


def _padded(d: Draw) -> str:
    x = d.floats(1)
    widths = [d.one((0, 0, 1, 2, -1)) for _ in range(2 * d.rng.randint(1, min(2, x.ndim)))]
    return f"F.pad({x}, {widths}{d.one(('', ', value=1.5'))})"


def _reflected(d: Draw) -> str:
    x = d.tensor(lambda t: t.is_floating_point() and t.ndim in (2, 3) and t.shape[-1] > 2 and t.numel() > 0)
    return f"F.pad({x}, ({d.one((0, 1, 2))}, {d.one((0, 1))}), mode={d.one(('reflect', 'replicate', 'circular'))!r})"


def _cast(d: Draw) -> str:
    x = d.tensor(lambda t: not t.is_complex())
    names = [*d.style.dtypes, "int32", "int64", "bool", "float32"]
    if x.t.is_floating_point():
        names = [*d.style.dtypes, "float32", "bool", "int32"]
        if d.style.special:
            names = [*d.style.dtypes, "float32", "bool"]  # NaN and infinity are no integers
    return f"{x}.to(torch.{d.one(names)})"


CALLS = (
    Call("cat", _joined),
    Call("stack", _stacked),
    Call("hstack", lambda d: _pair(d, "torch.hstack([{}, {}])")),
    Call("vstack", lambda d: _pair(d, "torch.vstack([{}, {}])")),
    Call("dstack", lambda d: _pair(d, "torch.dstack([{}, {}])")),
    Call("column_stack", lambda d: _pair(d, "torch.column_stack([{}, {}])")),
    Call(
        "block_diag",
        lambda d: f"torch.block_diag({(x := d.tensor(lambda t: t.ndim == 2))}, {d.fitting(x.shape, x.t.dtype)})",
    ),
    Call("flip", lambda d: f"torch.flip({(x := _any(d, 1))}, {d.axes(x)})"),
    Call("roll", lambda d: f"torch.roll({(x := _any(d, 1))}, {d.one((0, 1, -1, 2, 3))}, {d.axis(x)})"),
    Call("rot90", lambda d: f"torch.rot90({_any(d, 2)}, {d.one((0, 1, 2, 3))}, [0, 1])"),
    Call(
        "repeat",
        lambda d: f"{(x := _any(d, 1))}.repeat({[d.one((1, 1, 2)) for _ in range(x.ndim + d.rng.randrange(2))]})",
    ),
    Call("tile", lambda d: f"torch.tile({(x := _any(d, 1))}, {tuple(d.one((1, 1, 2)) for _ in range(x.ndim))})"),
    Call("repeat_interleave", lambda d: f"torch.repeat_interleave({(x := _any(d, 1))}, {d.one((1, 2))}, {d.axis(x)})"),
    Call("pad", _padded),
    Call("pad", _reflected),
    Call("tril", lambda d: f"torch.tril({_any(d, 2)}, {d.one((0, 1, -1))})"),
    Call("triu", lambda d: f"torch.triu({_any(d, 2)}, {d.one((0, 1, -1))})"),
    Call("diag", lambda d: f"torch.diag({d.tensor(lambda t: t.ndim in (1, 2))}, {d.one((0, 0, 1, -1))})"),
    Call("diag_embed", lambda d: f"torch.diag_embed({d.tensor(lambda t: 1 <= t.ndim <= 2)}, {d.one((0, 1, -1))})"),
    Call("clone", lambda d: f"{_any(d)}.clone()"),
    Call("to", _cast),
    Call("to", _cast),
    Call("broadcast_tensors", lambda d: f"torch.broadcast_tensors({(x := _any(d))}, {d.beside(x)})[0]"),
    Call("meshgrid", lambda d: f"torch.meshgrid({(x := d.tensor(lambda t: t.ndim == 1))}, {x}, indexing='ij')"),
    Call("kron", lambda d: f"torch.kron({d.floats(1, 2)}, {d.floats(1, 2)})"),
    Call("zeros_like", lambda d: f"torch.{d.one(('zeros', 'ones'))}_like({_any(d)})"),
    Call("full_like", lambda d: f"torch.full_like({_any(d)}, {d.one((2, 1))})"),
    Call("pixel_shuffle", lambda d: f"F.pixel_shuffle({d.tensor(lambda t: t.ndim == 4)}, {d.one((1, 2))})"),
    Call(
        "complex",
        lambda d: f"torch.abs(torch.complex({(x := d.tensor(_is_float32))}, {d.fitting(x.shape, x.t.dtype)}))",
    ),
    Call("rfft", lambda d: f"torch.abs(torch.fft.rfft({d.tensor(_is_nonempty_float32)}, dim=-1)) + 0.1"),
    Call("irfft", lambda d: f"torch.fft.irfft(torch.fft.rfft({d.tensor(_is_nonempty_float32)}), n={d.one((2, 3, 4))})"),
)


def _is_float32(t: torch.Tensor) -> bool:
    return t.dtype is torch.float32


def _is_nonempty_float32(t: torch.Tensor) -> bool:
    return t.dtype is torch.float32 and t.ndim > 0 and t.numel() > 0
