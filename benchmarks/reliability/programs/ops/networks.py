"""Calls of `nn.functional`: activations with settings, norms, convolutions, pooling, losses, attention."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, filled, of_floats


def _image(d: Draw, axes: int) -> Var:
    """Draw a tensor of batch, channels and so many axes more, none of them short."""

    def suits(t: torch.Tensor) -> bool:
        return t.is_floating_point() and t.ndim == axes + 2 and t.numel() > 0 and min(t.shape[2:]) >= 2

    found = d.every(suits)
    if found and d.chance(0.8):
        return Var(str(v := d.one(found)), v.t)
    return d.leaf((d.one((1, 2)), d.one((2, 4)), *(d.one((4, 5)) for _ in range(axes))), d.one(d.style.dtypes))


def _convolution(d: Draw, axes: int) -> str:
    x = _image(d, axes)
    groups = d.one((1, 1, 2)) if x.shape[1] % 2 == 0 else 1
    weight = d.fitting((4, x.shape[1] // groups, *(2 for _ in range(axes))), x.t.dtype)
    bias = d.fitting((4,), x.t.dtype) if d.chance(0.5) else None
    return f"F.conv{axes}d({x}, {weight}, {bias}, {d.one((1, 1, 2))}, {d.one((0, 1))}, 1, {groups})"


def _transposed(d: Draw) -> str:
    x = _image(d, 2)
    return f"F.conv_transpose2d({x}, {d.fitting((x.shape[1], 2, 2, 2), x.t.dtype)}, stride={d.one((1, 2))})"


def _batch_norm(d: Draw) -> str:
    x = _image(d, 2)
    return f"F.batch_norm({x}, None, None, {d.fitting((x.shape[1],), x.t.dtype)}, None, True)"


def _of_image(op: str, axes: int, *forms: str) -> Call:
    """Declare calls of an image of so many axes besides batch and channels, in one of the forms."""
    return Call(op, lambda d: filled(d, _image(d, axes), d.one(forms)))


def _norm(op: str, form: str) -> Call:
    """Declare calls of a norm over the last axis, of length {s}, with weight {w} and bias {v}."""

    def draw(d: Draw) -> str:
        x = d.floats(1, nonempty=True)
        w, v = (d.fitting(x.shape[-1:], x.t.dtype) for _ in range(2))
        return form.format(x=x, s=[x.shape[-1]], w=w, v=v)

    return Call(op, draw)


def _attention(d: Draw) -> str:
    x = d.floats(3, 3, nonempty=True)
    k, v = d.fitting(x.shape, x.t.dtype), d.fitting(x.shape, x.t.dtype)
    mask = d.one((None, None, d.fitting((x.shape[1], x.shape[1]), x.t.dtype)))
    return f"F.scaled_dot_product_attention({x}, {k}, {v}, {mask}, is_causal={mask is None and d.chance(0.4)})"


def _of_classes(op: str, form: str) -> Call:
    """Declare calls of a loss of {x} against the classes {i}."""

    def draw(d: Draw) -> str:
        x = d.floats(2, 2, nonempty=True)
        return filled(d, x, form.replace("{i}", d.index(x.shape[:1], x.shape[1])))

    return Call(op, draw)


_LOSSES = {
    "mse_loss": "F.mse_loss({x}, {y}, reduction={r})",
    "l1_loss": "F.l1_loss({x}, {y}, reduction={r})",
    "smooth_l1_loss": "F.smooth_l1_loss({x}, {y}, reduction={r})",
    "huber_loss": "F.huber_loss({x}, {y}, reduction={r})",
    "bce": "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}), reduction={r})",
    "kl_div": "F.kl_div(F.log_softmax({x}, -1), F.softmax({y}, -1), reduction={r})",
    "soft_margin_loss": "F.soft_margin_loss({x}, torch.sign({y} + 0.01), reduction={r})",
}

CALLS = (
    of_floats("leaky_relu", "F.leaky_relu({x}, 0.2)", "F.relu({x})", "F.elu({x}, 0.7)"),
    of_floats("gelu", "F.gelu({x}, approximate='tanh')", "F.gelu({x})", "F.silu({x})", "F.softplus({x}, 2.0)"),
    of_floats("threshold", "F.threshold({x}, 0.2, -1.0)", "F.hardtanh({x}, -0.7, 0.9)", "F.softshrink({x}, 0.3)"),
    of_floats("clamp", "torch.clamp({x}, -0.5, 0.8)", "torch.clamp({x}, min={n})", "torch.clip({x}, max={n})"),
    of_floats("nan_to_num", "torch.nan_to_num({x})", "torch.nan_to_num({x}, 1.0, 2.0, -2.0)"),
    of_floats("glu", "F.glu(torch.cat([{x}, {x}], {a}), {a})", least=1),
    of_floats("normalize", "F.normalize({x}, dim={a})", least=1, nonempty=True),
    Call("conv1d", lambda d: _convolution(d, 1)),
    Call("conv2d", lambda d: _convolution(d, 2)),
    Call("conv_transpose2d", _transposed),
    _of_image("avg_pool2d", 2, "F.avg_pool2d({x}, 2, {c})"),
    _of_image("max_pool2d", 2, "F.max_pool2d({x}, 2, {c})"),
    _of_image("max_pool1d", 1, "F.max_pool1d({x}, 2, 1)"),
    _of_image("adaptive_avg_pool2d", 2, "F.adaptive_avg_pool2d({x}, {c})"),
    _of_image(
        "interpolate", 2, *(f"F.interpolate({{x}}, scale_factor={{c}}, mode={m!r})" for m in ("nearest", "bilinear"))
    ),
    Call("batch_norm", _batch_norm),
    _of_image("group_norm", 2, "F.group_norm({x}, {c})"),
    _norm("layer_norm", "F.layer_norm({x} * 1.5, {s}, {w}, {v}, 0.1)"),
    of_floats("layer_norm", "F.layer_norm({x}, {x}.shape[-1:], eps=0.5)", least=1, nonempty=True),
    _norm("rms_norm", "F.rms_norm({x}, {s}, {w}, 0.1)"),
    *[Call("attention", _attention)] * 2,
    *(of_floats(op, form, least=1, nonempty=True) for op, form in _LOSSES.items()),
    _of_classes("cross_entropy", "F.cross_entropy({x}, {i}, reduction={r})"),
    _of_classes("cross_entropy", "F.cross_entropy({x}, {i}, label_smoothing=0.2, reduction={r})"),
    _of_classes("nll_loss", "F.nll_loss(F.log_softmax({x}, -1), {i}, reduction={r})"),
    _of_classes("multi_margin_loss", "F.multi_margin_loss({x}, {i}, reduction={r})"),
    Call("one_hot", lambda d: f"F.one_hot({d.index(d.shape(1, 2), 4)}, 4)"),
    of_floats("dropout", "F.dropout({x}, 0.5, training=False)"),
)
