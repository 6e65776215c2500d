"""Calls of `nn.functional`: activations with settings, norms, convolutions, pooling, losses, attention."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, of_floats


def _image(d: Draw, axes: int) -> Var:
    """A tensor of batch, channels and so many axes more, none of them short."""

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


def _layer_norm(d: Draw, form: str) -> str:
    x = d.floats(1, nonempty=True)
    return form.format(x=x, s=[x.shape[-1]], w=d.fitting(x.shape[-1:], x.t.dtype), b=d.fitting(x.shape[-1:], x.t.dtype))


def _attention(d: Draw) -> str:
    x = d.floats(3, 3, nonempty=True)
    k, v = d.fitting(x.shape, x.t.dtype), d.fitting(x.shape, x.t.dtype)
    mask = d.one((None, None, d.fitting((x.shape[1], x.shape[1]), x.t.dtype)))
    return f"F.scaled_dot_product_attention({x}, {k}, {v}, {mask}, is_causal={mask is None and d.chance(0.4)})"


def _loss(d: Draw, form: str) -> str:
    x = d.floats(1, nonempty=True)
    return form.format(x, d.fitting(x.shape, x.t.dtype), r=repr(d.one(("mean", "sum", "none"))))


def _cross_entropy(d: Draw, form: str) -> str:
    x = d.floats(2, 2, nonempty=True)
    return form.format(x, d.index(x.shape[:1], x.shape[1]), r=repr(d.one(("mean", "sum", "none"))))


def _resized(d: Draw) -> str:
    x = _image(d, 2)
    mode = d.one(("nearest", "bilinear"))
    return f"F.interpolate({x}, scale_factor={d.one((1, 2))}, mode={mode!r})"


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
    Call("avg_pool2d", lambda d: f"F.avg_pool2d({_image(d, 2)}, 2, {d.one((1, 2))})"),
    Call("max_pool2d", lambda d: f"F.max_pool2d({_image(d, 2)}, 2, {d.one((1, 2))})"),
    Call("max_pool1d", lambda d: f"F.max_pool1d({_image(d, 1)}, 2, 1)"),
    Call("adaptive_avg_pool2d", lambda d: f"F.adaptive_avg_pool2d({_image(d, 2)}, {d.one((1, 2))})"),
    Call("interpolate", _resized),
    Call("batch_norm", _batch_norm),
    Call("group_norm", lambda d: f"F.group_norm({_image(d, 2)}, {d.one((1, 2))})"),
    Call("layer_norm", lambda d: _layer_norm(d, "F.layer_norm({x} * 1.5, {s}, {w}, {b}, 0.1)")),
    Call("layer_norm", lambda d: _layer_norm(d, "F.layer_norm({x}, {s}, eps=0.5)")),
    Call("rms_norm", lambda d: _layer_norm(d, "F.rms_norm({x}, {s}, {w}, 0.1)")),
    Call("attention", _attention),
    Call("attention", _attention),
    Call("mse_loss", lambda d: _loss(d, "F.mse_loss({}, {}, reduction={r})")),
    Call("l1_loss", lambda d: _loss(d, "F.l1_loss({}, {}, reduction={r})")),
    Call("smooth_l1_loss", lambda d: _loss(d, "F.smooth_l1_loss({}, {}, reduction={r})")),
    Call("huber_loss", lambda d: _loss(d, "F.huber_loss({}, {}, reduction={r})")),
    Call("bce", lambda d: _loss(d, "F.binary_cross_entropy_with_logits({}, torch.sigmoid({}), reduction={r})")),
    Call("kl_div", lambda d: _loss(d, "F.kl_div(F.log_softmax({}, -1), F.softmax({}, -1), reduction={r})")),
    Call("soft_margin_loss", lambda d: _loss(d, "F.soft_margin_loss({}, torch.sign({} + 0.01), reduction={r})")),
    Call("cross_entropy", lambda d: _cross_entropy(d, "F.cross_entropy({}, {}, reduction={r})")),
    Call("cross_entropy", lambda d: _cross_entropy(d, "F.cross_entropy({}, {}, label_smoothing=0.2, reduction={r})")),
    Call("nll_loss", lambda d: _cross_entropy(d, "F.nll_loss(F.log_softmax({}, -1), {}, reduction={r})")),
    Call("multi_margin_loss", lambda d: _cross_entropy(d, "F.multi_margin_loss({}, {}, reduction={r})")),
    Call("one_hot", lambda d: f"F.one_hot({d.index(d.shape(1, 2), 4)}, 4)"),
    Call("dropout", lambda d: f"F.dropout({d.floats()}, 0.5, training=False)"),
)
