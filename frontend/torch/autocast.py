"""Autocast: ops that `torch.autocast("polyhal")` runs in half precision or in float32. The lists equal CUDA's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from polyhal.torch import private
from polyhal.torch.device import NAME

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords, Operator

HALF = (
    "_convolution _convolution.deprecated conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_tbc "
    "conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv "
    "linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell "
    "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention"
)
"""Ops in half precision: products, which gain the most and accumulate in float32."""
FULL = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor "
    "pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim "
    "norm.Scalar norm.ScalarOpt_dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm "
    "logsumexp upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec "
    "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec upsample_bicubic2d.vec _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec "
    "_upsample_nearest_exact3d.vec _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_bilinear2d_aa.vec "
    "_upsample_bicubic2d_aa.vec"
)
"""Ops in float32: steep functions, norms and losses, which lose too much in half precision."""
FULL_DTYPE = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList"
)
"""Ops that take half precision and return float32, unless the program names a dtype: sums."""
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
"""Ops that need all operands in one dtype; they are cast to the widest one."""
REFUSED = "binary_cross_entropy"

Kernel = Callable[..., Any]


def _eligible(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and x.device.type == NAME and x.is_floating_point() and x.dtype is not torch.float64
    )


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, (list, tuple)):
        return [_cast(v, dtype) for v in x]
    return x.to(dtype) if _eligible(x) and x.dtype is not dtype else x


def _leaves(values: Any) -> Iterator[Any]:
    for x in values:
        if isinstance(x, (list, tuple)):
            yield from _leaves(x)
        else:
            yield x


def _casting(op: Operator, choose: Callable[[tuple[Any, ...], dict[str, Any]], torch.dtype]) -> Kernel:
    """Return a kernel that casts operands to the dtype that `choose` returns for the arguments."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = choose(args, kwargs)
        with private.without_autocast():
            return op(*(_cast(x, dtype) for x in args), **{k: _cast(x, dtype) for k, x in kwargs.items()})

    return kernel


def _half(args: Arguments, kwargs: Keywords) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _full(args: Arguments, kwargs: Keywords) -> torch.dtype:
    return torch.float32


def _widest(args: tuple[torch.Tensor, ...], kwargs: Keywords) -> torch.dtype:
    found = {x.dtype for x in _leaves([*args, *kwargs.values()]) if _eligible(x)}
    return torch.float32 if torch.float32 in found else torch.get_autocast_dtype(NAME)


def _with_dtype(op: Operator) -> Kernel:
    """Return a kernel that passes float32 as `dtype` if the call leaves it out."""
    place = next(i for i, a in enumerate(op._schema.arguments) if a.name == "dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("dtype") if len(args) <= place else args[place]
        if given is None and _eligible(args[0]):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        with private.without_autocast():
            return op(*args, **kwargs)

    return kernel


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "binary_cross_entropy is unsafe to autocast: half precision has no numbers close to 1 other than 1. Use "
        "binary_cross_entropy_with_logits, or leave autocast around the loss"
    )


def kernels(overload: Callable[[str], Any]) -> dict[str, Kernel]:
    """Return kernels by name of overload, for overloads that `overload` finds in this version of PyTorch."""
    rules: list[tuple[str, Callable[[Any], Kernel]]] = [
        (HALF, lambda op: _casting(op, _half)),
        (FULL, lambda op: _casting(op, _full)),
        (FULL_DTYPE, _with_dtype),
        (WIDEST, lambda op: _casting(op, _widest)),
        (REFUSED, lambda op: _refuse),
    ]
    found = {}
    for names, rule in rules:
        for name in names.split():
            op = overload(name if "." in name else f"{name}.default")
            if op is not None:
                found[name] = rule(op)
    return found
