"""Statements that must fail in every library: the class of their errors is compared, and that they change nothing."""

from __future__ import annotations

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var


def mistake(d: Draw) -> str:
    """Draw a statement with a mistake."""
    return str(d.one(_MISTAKES)(d))


def _filled(d: Draw, least: int = 1) -> Var:
    return d.floats(least, nonempty=True)


def _write_leaf(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad and t.is_leaf)
    return f"{x}.{d.one(('add_(1.0)', 'zero_()', 'mul_(2.0)'))}"


def _write_view_of_leaf(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad and t.is_leaf and t.ndim > 0 and t.numel() > 0)
    return f"{x}[0] = 1.0"


def _no_broadcast(d: Draw) -> str:
    x = _filled(d)
    other = d.leaf((x.shape[-1] + 2,), "float32")
    if x.shape[-1] == 1:
        raise UnfitError
    return f"{x} {d.one('+*-')} {other}"


def _write_too_large(d: Draw) -> str:
    x = d.tensor(
        lambda t: t.is_floating_point() and not t.requires_grad and t.ndim > 0 and t.numel() > 0 and t.shape[-1] > 1
    )
    return f"{x}.add_({d.leaf((2, *(1 for _ in x.shape)), 'float32')})"


def _out_of_range(d: Draw) -> str:
    x = _filled(d)
    return d.one(
        (f"{x}[{x.shape[0]}]", f"{x}.sum({x.ndim})", f"{x}.select(0, {x.shape[0] + 1})", f"{x}.transpose(0, {x.ndim})")
    )  # type: ignore[no-any-return]


def _wrong_shape(d: Draw) -> str:
    x = _filled(d)
    n = x.t.numel()
    if set(x.shape) == {1}:
        raise UnfitError
    return d.one(
        (
            f"{x}.reshape({n + 1})",
            f"{x}.expand({[k + 1 if k != 1 else 1 for k in x.shape]})",
            f"{x} @ torch.ones({x.shape[-1] + 1}, dtype={x.t.dtype})",
        )
    )  # type: ignore[no-any-return]


def _wrong_parts(d: Draw) -> str:
    x = _filled(d, 2)
    return d.one((f"torch.cat([{x}, torch.ones({[n + 1 for n in x.shape]})])", f"torch.stack([{x}, {x}[0]])"))  # type: ignore[no-any-return]


def _no_gradient(d: Draw) -> str:
    x = d.floats(1, nonempty=True)
    return f"{x}.detach().sum().backward()"


def _not_a_number(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad and t.grad_fn is not None and t.numel() > 1)
    return f"{x}.backward()"


def _freed(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad and t.is_leaf and t.is_floating_point() and t.numel() > 0)
    return f"(lambda s: (torch.autograd.grad(s, {x}), torch.autograd.grad(s, {x})))(torch.sin({x}).sum())"


_MISTAKES = (
    _write_leaf,
    _write_view_of_leaf,
    _no_broadcast,
    _write_too_large,
    _out_of_range,
    _wrong_shape,
    _wrong_parts,
    _no_gradient,
    _not_a_number,
    _freed,
)
