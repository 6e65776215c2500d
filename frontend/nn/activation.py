"""Activation functions as modules.

`inplace` is accepted, as in PyTorch, and changes nothing but who owns the result: it is a new tensor.
"""

from __future__ import annotations

from polyhal.creation import empty
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class _Activation(Module):
    """Base of activations whose only setting is `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""

    def _repr_with(self, settings: str) -> str:
        """`settings`, and `inplace` if it is True."""
        return f"{settings}, inplace=True" if self.inplace else settings


class ReLU(_Activation):
    """`max(x, 0)`.

    >>> polyhal.nn.ReLU()(polyhal.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input)


class Hardtanh(_Activation):
    """`x` limited to [`min_val`, `max_val`]. `min_value` and `max_value` are older names of PyTorch's.

    Raises ValueError unless `max_val` is larger than `min_val`.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        if self.max_val <= self.min_val:
            raise ValueError(f"max_val is {self.max_val} and min_val {self.min_val}; expected a larger max_val")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return self._repr_with(f"min_val={self.min_val}, max_val={self.max_val}")


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class LeakyReLU(_Activation):
    """`x` if positive, else `negative_slope * x`."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return self._repr_with(f"negative_slope={self.negative_slope}")


class PReLU(Module):
    """`x` if positive, else `weight * x`: one learned slope, or one per channel (axis 1). Source: He et al., ICCV 2015."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Device | str | None = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty((num_parameters,), dtype, device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all slopes to `init`."""
        self.weight.detach().fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(_Activation):
    """`x` if positive, else `x` times a slope drawn from [lower, upper) in training, their mean otherwise."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return self._repr_with(f"lower={self.lower}, upper={self.upper}")


class ELU(_Activation):
    """`x` if positive, else `alpha * (exp(x) - 1)`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return self._repr_with(f"alpha={self.alpha}")


class CELU(_Activation):
    """`x` if positive, else `alpha * (exp(x / alpha) - 1)`. Source: Barron, arXiv:1704.07483."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha)

    def extra_repr(self) -> str:
        return self._repr_with(f"alpha={self.alpha}")


class SELU(_Activation):
    """Self-normalising exponential linear unit. Source: Klambauer et al., arXiv:1706.02515."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input)


class GELU(Module):
    """Gaussian error linear unit, exact or by tanh (`approximate="tanh"`)."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(_Activation):
    """`x * sigmoid(x)`, also called swish."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input)


class Mish(_Activation):
    """`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input)


class Hardswish(_Activation):
    """`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_Activation):
    """`min(max(x + 3, 0), 6) / 6`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(Module):
    """Logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """Logarithm of the logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta`, linear where `beta * x` exceeds `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrinkage(Module):
    """Base of functions that are 0 from `-lambd` to `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrinkage):
    """`x`, but 0 from `-lambd` to `lambd`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrinkage):
    """`x` moved towards 0 by `lambd`, and 0 if that passes 0."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Threshold(_Activation):
    """`x` where it is above `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        return self._repr_with(f"threshold={self.threshold}, value={self.value}")


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second. Source: Dauphin et al., arXiv:1612.08083."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongAxis(Module):
    """Base of functions along `dim`, which may be left out for inputs of up to two axes."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """Exponentials divided by their sum along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_AlongAxis):
    """Softmax of `-x` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_AlongAxis):
    """Logarithm of softmax along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W). Raises ShapeError for other shapes."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(message("Softmax2d", f"got shape {input.shape}", expected="(N, C, H, W) or (C, H, W)"))
        return F.softmax(input, -3)
