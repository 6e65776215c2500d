"""Generated from the op declarations by `make generate`; do not edit."""

from collections.abc import Callable
from typing import Any, Self

IN_PLACE: dict[str, Callable[..., Any]]

class InPlaceOps:
    def __iadd__(self, other: Any) -> Self: ...
    def __iand__(self, other: Any) -> Self: ...
    def __ifloordiv__(self, other: Any) -> Self: ...
    def __ilshift__(self, other: Any) -> Self: ...
    def __imod__(self, other: Any) -> Self: ...
    def __imul__(self, other: Any) -> Self: ...
    def __ior__(self, other: Any) -> Self: ...
    def __ipow__(self, other: Any) -> Self: ...
    def __irshift__(self, other: Any) -> Self: ...
    def __isub__(self, other: Any) -> Self: ...
    def __itruediv__(self, other: Any) -> Self: ...
    def __ixor__(self, other: Any) -> Self: ...
    def abs_(self) -> Self:
        """Replace the elements by those of `abs`, cast to the tensor's dtype. Returns the tensor."""
    def absolute_(self) -> Self:
        """Replace the elements by those of `abs`, cast to the tensor's dtype. Returns the tensor."""
    def acos_(self) -> Self:
        """Replace the elements by those of `acos`, cast to the tensor's dtype. Returns the tensor."""
    def acosh_(self) -> Self:
        """Replace the elements by those of `acosh`, cast to the tensor's dtype. Returns the tensor."""
    def addbmm_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `addbmm`, cast to the tensor's dtype. Returns the tensor."""
    def addcdiv_(self, tensor1: Any, tensor2: Any, value: Any = ...) -> Self:
        """Replace the elements by those of `addcdiv`, cast to the tensor's dtype. Returns the tensor."""
    def addcmul_(self, tensor1: Any, tensor2: Any, value: Any = ...) -> Self:
        """Replace the elements by those of `addcmul`, cast to the tensor's dtype. Returns the tensor."""
    def addmm_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `addmm`, cast to the tensor's dtype. Returns the tensor."""
    def addmv_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `addmv`, cast to the tensor's dtype. Returns the tensor."""
    def addr_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `addr`, cast to the tensor's dtype. Returns the tensor."""
    def arccos_(self) -> Self:
        """Replace the elements by those of `acos`, cast to the tensor's dtype. Returns the tensor."""
    def arccosh_(self) -> Self:
        """Replace the elements by those of `acosh`, cast to the tensor's dtype. Returns the tensor."""
    def arcsin_(self) -> Self:
        """Replace the elements by those of `asin`, cast to the tensor's dtype. Returns the tensor."""
    def arcsinh_(self) -> Self:
        """Replace the elements by those of `asinh`, cast to the tensor's dtype. Returns the tensor."""
    def arctan2_(self, x: Any) -> Self:
        """Replace the elements by those of `atan2`, cast to the tensor's dtype. Returns the tensor."""
    def arctan_(self) -> Self:
        """Replace the elements by those of `atan`, cast to the tensor's dtype. Returns the tensor."""
    def arctanh_(self) -> Self:
        """Replace the elements by those of `atanh`, cast to the tensor's dtype. Returns the tensor."""
    def asin_(self) -> Self:
        """Replace the elements by those of `asin`, cast to the tensor's dtype. Returns the tensor."""
    def asinh_(self) -> Self:
        """Replace the elements by those of `asinh`, cast to the tensor's dtype. Returns the tensor."""
    def atan2_(self, x: Any) -> Self:
        """Replace the elements by those of `atan2`, cast to the tensor's dtype. Returns the tensor."""
    def atan_(self) -> Self:
        """Replace the elements by those of `atan`, cast to the tensor's dtype. Returns the tensor."""
    def atanh_(self) -> Self:
        """Replace the elements by those of `atanh`, cast to the tensor's dtype. Returns the tensor."""
    def baddbmm_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `baddbmm`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_and_(self, y: Any) -> Self:
        """Replace the elements by those of `bitwise_and`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_invert_(self) -> Self:
        """Replace the elements by those of `bitwise_invert`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_left_shift_(self, y: Any) -> Self:
        """Replace the elements by those of `bitwise_left_shift`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_not_(self) -> Self:
        """Replace the elements by those of `bitwise_invert`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_or_(self, y: Any) -> Self:
        """Replace the elements by those of `bitwise_or`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_right_shift_(self, y: Any) -> Self:
        """Replace the elements by those of `bitwise_right_shift`, cast to the tensor's dtype. Returns the tensor."""
    def bitwise_xor_(self, y: Any) -> Self:
        """Replace the elements by those of `bitwise_xor`, cast to the tensor's dtype. Returns the tensor."""
    def ceil_(self) -> Self:
        """Replace the elements by those of `ceil`, cast to the tensor's dtype. Returns the tensor."""
    def celu_(self, alpha: Any = ...) -> Self:
        """Replace the elements by those of `celu`, cast to the tensor's dtype. Returns the tensor."""
    def clamp_(self, min: Any = ..., max: Any = ...) -> Self:
        """Replace the elements by those of `clip`, cast to the tensor's dtype. Returns the tensor."""
    def clamp_max_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `clamp_max`, cast to the tensor's dtype. Returns the tensor."""
    def clamp_min_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `clamp_min`, cast to the tensor's dtype. Returns the tensor."""
    def clip_(self, min: Any = ..., max: Any = ...) -> Self:
        """Replace the elements by those of `clip`, cast to the tensor's dtype. Returns the tensor."""
    def copysign_(self, y: Any) -> Self:
        """Replace the elements by those of `copysign`, cast to the tensor's dtype. Returns the tensor."""
    def cos_(self) -> Self:
        """Replace the elements by those of `cos`, cast to the tensor's dtype. Returns the tensor."""
    def cosh_(self) -> Self:
        """Replace the elements by those of `cosh`, cast to the tensor's dtype. Returns the tensor."""
    def cumprod_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `cumprod`, cast to the tensor's dtype. Returns the tensor."""
    def cumsum_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `cumsum`, cast to the tensor's dtype. Returns the tensor."""
    def deg2rad_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `deg2rad`, cast to the tensor's dtype. Returns the tensor."""
    def digamma_(self) -> Self:
        """Replace the elements by those of `digamma`, cast to the tensor's dtype. Returns the tensor."""
    def div_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `div`, cast to the tensor's dtype. Returns the tensor."""
    def divide_(self, y: Any) -> Self:
        """Replace the elements by those of `divide`, cast to the tensor's dtype. Returns the tensor."""
    def elu_(self, alpha: Any = ...) -> Self:
        """Replace the elements by those of `elu`, cast to the tensor's dtype. Returns the tensor."""
    def eq_(self, y: Any) -> Self:
        """Replace the elements by those of `equal`, cast to the tensor's dtype. Returns the tensor."""
    def equal_(self, y: Any) -> Self:
        """Replace the elements by those of `equal`, cast to the tensor's dtype. Returns the tensor."""
    def erf_(self) -> Self:
        """Replace the elements by those of `erf`, cast to the tensor's dtype. Returns the tensor."""
    def erfc_(self) -> Self:
        """Replace the elements by those of `erfc`, cast to the tensor's dtype. Returns the tensor."""
    def erfinv_(self) -> Self:
        """Replace the elements by those of `erfinv`, cast to the tensor's dtype. Returns the tensor."""
    def exp2_(self) -> Self:
        """Replace the elements by those of `exp2`, cast to the tensor's dtype. Returns the tensor."""
    def exp_(self) -> Self:
        """Replace the elements by those of `exp`, cast to the tensor's dtype. Returns the tensor."""
    def expm1_(self) -> Self:
        """Replace the elements by those of `expm1`, cast to the tensor's dtype. Returns the tensor."""
    def fix_(self) -> Self:
        """Replace the elements by those of `trunc`, cast to the tensor's dtype. Returns the tensor."""
    def float_power_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `float_power`, cast to the tensor's dtype. Returns the tensor."""
    def floor_(self) -> Self:
        """Replace the elements by those of `floor`, cast to the tensor's dtype. Returns the tensor."""
    def floor_divide_(self, y: Any) -> Self:
        """Replace the elements by those of `floor_divide`, cast to the tensor's dtype. Returns the tensor."""
    def fmax_(self, y: Any) -> Self:
        """Replace the elements by those of `fmax`, cast to the tensor's dtype. Returns the tensor."""
    def fmin_(self, y: Any) -> Self:
        """Replace the elements by those of `fmin`, cast to the tensor's dtype. Returns the tensor."""
    def fmod_(self, y: Any) -> Self:
        """Replace the elements by those of `fmod`, cast to the tensor's dtype. Returns the tensor."""
    def frac_(self) -> Self:
        """Replace the elements by those of `frac`, cast to the tensor's dtype. Returns the tensor."""
    def gcd_(self, y: Any) -> Self:
        """Replace the elements by those of `gcd`, cast to the tensor's dtype. Returns the tensor."""
    def ge_(self, y: Any) -> Self:
        """Replace the elements by those of `greater_equal`, cast to the tensor's dtype. Returns the tensor."""
    def gelu_(self, approximate: str = ...) -> Self:
        """Replace the elements by those of `gelu`, cast to the tensor's dtype. Returns the tensor."""
    def greater_(self, y: Any) -> Self:
        """Replace the elements by those of `greater`, cast to the tensor's dtype. Returns the tensor."""
    def greater_equal_(self, y: Any) -> Self:
        """Replace the elements by those of `greater_equal`, cast to the tensor's dtype. Returns the tensor."""
    def gt_(self, y: Any) -> Self:
        """Replace the elements by those of `greater`, cast to the tensor's dtype. Returns the tensor."""
    def hardshrink_(self, lambd: Any = ...) -> Self:
        """Replace the elements by those of `hardshrink`, cast to the tensor's dtype. Returns the tensor."""
    def hardsigmoid_(self) -> Self:
        """Replace the elements by those of `hardsigmoid`, cast to the tensor's dtype. Returns the tensor."""
    def hardswish_(self) -> Self:
        """Replace the elements by those of `hardswish`, cast to the tensor's dtype. Returns the tensor."""
    def hardtanh_(self, min_val: Any = ..., max_val: Any = ...) -> Self:
        """Replace the elements by those of `hardtanh`, cast to the tensor's dtype. Returns the tensor."""
    def heaviside_(self, values: Any) -> Self:
        """Replace the elements by those of `heaviside`, cast to the tensor's dtype. Returns the tensor."""
    def hypot_(self, y: Any) -> Self:
        """Replace the elements by those of `hypot`, cast to the tensor's dtype. Returns the tensor."""
    def i0_(self) -> Self:
        """Replace the elements by those of `i0`, cast to the tensor's dtype. Returns the tensor."""
    def igamma_(self, x: Any) -> Self:
        """Replace the elements by those of `igamma`, cast to the tensor's dtype. Returns the tensor."""
    def igammac_(self, x: Any) -> Self:
        """Replace the elements by those of `igammac`, cast to the tensor's dtype. Returns the tensor."""
    def index_add_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `index_add`, cast to the tensor's dtype. Returns the tensor."""
    def index_copy_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `index_copy`, cast to the tensor's dtype. Returns the tensor."""
    def index_fill_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `index_fill`, cast to the tensor's dtype. Returns the tensor."""
    def index_reduce_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `index_reduce`, cast to the tensor's dtype. Returns the tensor."""
    def isfinite_(self) -> Self:
        """Replace the elements by those of `isfinite`, cast to the tensor's dtype. Returns the tensor."""
    def isinf_(self) -> Self:
        """Replace the elements by those of `isinf`, cast to the tensor's dtype. Returns the tensor."""
    def isnan_(self) -> Self:
        """Replace the elements by those of `isnan`, cast to the tensor's dtype. Returns the tensor."""
    def isneginf_(self) -> Self:
        """Replace the elements by those of `isneginf`, cast to the tensor's dtype. Returns the tensor."""
    def isposinf_(self) -> Self:
        """Replace the elements by those of `isposinf`, cast to the tensor's dtype. Returns the tensor."""
    def lcm_(self, y: Any) -> Self:
        """Replace the elements by those of `lcm`, cast to the tensor's dtype. Returns the tensor."""
    def ldexp_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `ldexp`, cast to the tensor's dtype. Returns the tensor."""
    def le_(self, y: Any) -> Self:
        """Replace the elements by those of `less_equal`, cast to the tensor's dtype. Returns the tensor."""
    def leaky_relu_(self, negative_slope: Any = ...) -> Self:
        """Replace the elements by those of `leaky_relu`, cast to the tensor's dtype. Returns the tensor."""
    def lerp_(self, end: Any, weight: Any) -> Self:
        """Replace the elements by those of `lerp`, cast to the tensor's dtype. Returns the tensor."""
    def less_(self, y: Any) -> Self:
        """Replace the elements by those of `less`, cast to the tensor's dtype. Returns the tensor."""
    def less_equal_(self, y: Any) -> Self:
        """Replace the elements by those of `less_equal`, cast to the tensor's dtype. Returns the tensor."""
    def lgamma_(self) -> Self:
        """Replace the elements by those of `lgamma`, cast to the tensor's dtype. Returns the tensor."""
    def log10_(self) -> Self:
        """Replace the elements by those of `log10`, cast to the tensor's dtype. Returns the tensor."""
    def log1p_(self) -> Self:
        """Replace the elements by those of `log1p`, cast to the tensor's dtype. Returns the tensor."""
    def log2_(self) -> Self:
        """Replace the elements by those of `log2`, cast to the tensor's dtype. Returns the tensor."""
    def log_(self) -> Self:
        """Replace the elements by those of `log`, cast to the tensor's dtype. Returns the tensor."""
    def logaddexp2_(self, y: Any) -> Self:
        """Replace the elements by those of `logaddexp2`, cast to the tensor's dtype. Returns the tensor."""
    def logaddexp_(self, y: Any) -> Self:
        """Replace the elements by those of `logaddexp`, cast to the tensor's dtype. Returns the tensor."""
    def logical_and_(self, y: Any) -> Self:
        """Replace the elements by those of `logical_and`, cast to the tensor's dtype. Returns the tensor."""
    def logical_not_(self) -> Self:
        """Replace the elements by those of `logical_not`, cast to the tensor's dtype. Returns the tensor."""
    def logical_or_(self, y: Any) -> Self:
        """Replace the elements by those of `logical_or`, cast to the tensor's dtype. Returns the tensor."""
    def logical_xor_(self, y: Any) -> Self:
        """Replace the elements by those of `logical_xor`, cast to the tensor's dtype. Returns the tensor."""
    def logit_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `logit`, cast to the tensor's dtype. Returns the tensor."""
    def logsigmoid_(self) -> Self:
        """Replace the elements by those of `logsigmoid`, cast to the tensor's dtype. Returns the tensor."""
    def lt_(self, y: Any) -> Self:
        """Replace the elements by those of `less`, cast to the tensor's dtype. Returns the tensor."""
    def maximum_(self, y: Any) -> Self:
        """Replace the elements by those of `maximum`, cast to the tensor's dtype. Returns the tensor."""
    def minimum_(self, y: Any) -> Self:
        """Replace the elements by those of `minimum`, cast to the tensor's dtype. Returns the tensor."""
    def mish_(self) -> Self:
        """Replace the elements by those of `mish`, cast to the tensor's dtype. Returns the tensor."""
    def mul_(self, y: Any) -> Self:
        """Replace the elements by those of `multiply`, cast to the tensor's dtype. Returns the tensor."""
    def multiply_(self, y: Any) -> Self:
        """Replace the elements by those of `multiply`, cast to the tensor's dtype. Returns the tensor."""
    def mvlgamma_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `mvlgamma`, cast to the tensor's dtype. Returns the tensor."""
    def nan_to_num_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `nan_to_num`, cast to the tensor's dtype. Returns the tensor."""
    def ne_(self, y: Any) -> Self:
        """Replace the elements by those of `not_equal`, cast to the tensor's dtype. Returns the tensor."""
    def neg_(self) -> Self:
        """Replace the elements by those of `negative`, cast to the tensor's dtype. Returns the tensor."""
    def negative_(self) -> Self:
        """Replace the elements by those of `negative`, cast to the tensor's dtype. Returns the tensor."""
    def nextafter_(self, y: Any) -> Self:
        """Replace the elements by those of `nextafter`, cast to the tensor's dtype. Returns the tensor."""
    def not_equal_(self, y: Any) -> Self:
        """Replace the elements by those of `not_equal`, cast to the tensor's dtype. Returns the tensor."""
    def polygamma_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `polygamma`, cast to the tensor's dtype. Returns the tensor."""
    def pow_(self, y: Any) -> Self:
        """Replace the elements by those of `pow`, cast to the tensor's dtype. Returns the tensor."""
    def put_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `put`, cast to the tensor's dtype. Returns the tensor."""
    def rad2deg_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `rad2deg`, cast to the tensor's dtype. Returns the tensor."""
    def reciprocal_(self) -> Self:
        """Replace the elements by those of `reciprocal`, cast to the tensor's dtype. Returns the tensor."""
    def relu6_(self) -> Self:
        """Replace the elements by those of `relu6`, cast to the tensor's dtype. Returns the tensor."""
    def relu_(self) -> Self:
        """Replace the elements by those of `relu`, cast to the tensor's dtype. Returns the tensor."""
    def remainder_(self, y: Any) -> Self:
        """Replace the elements by those of `remainder`, cast to the tensor's dtype. Returns the tensor."""
    def renorm_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `renorm`, cast to the tensor's dtype. Returns the tensor."""
    def round_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `round`, cast to the tensor's dtype. Returns the tensor."""
    def rsqrt_(self) -> Self:
        """Replace the elements by those of `rsqrt`, cast to the tensor's dtype. Returns the tensor."""
    def scatter_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `scatter`, cast to the tensor's dtype. Returns the tensor."""
    def scatter_add_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `scatter_add`, cast to the tensor's dtype. Returns the tensor."""
    def scatter_reduce_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `scatter_reduce`, cast to the tensor's dtype. Returns the tensor."""
    def selu_(self) -> Self:
        """Replace the elements by those of `selu`, cast to the tensor's dtype. Returns the tensor."""
    def sgn_(self) -> Self:
        """Replace the elements by those of `sign`, cast to the tensor's dtype. Returns the tensor."""
    def sigmoid_(self) -> Self:
        """Replace the elements by those of `sigmoid`, cast to the tensor's dtype. Returns the tensor."""
    def sign_(self) -> Self:
        """Replace the elements by those of `sign`, cast to the tensor's dtype. Returns the tensor."""
    def signbit_(self) -> Self:
        """Replace the elements by those of `signbit`, cast to the tensor's dtype. Returns the tensor."""
    def silu_(self) -> Self:
        """Replace the elements by those of `silu`, cast to the tensor's dtype. Returns the tensor."""
    def sin_(self) -> Self:
        """Replace the elements by those of `sin`, cast to the tensor's dtype. Returns the tensor."""
    def sinc_(self) -> Self:
        """Replace the elements by those of `sinc`, cast to the tensor's dtype. Returns the tensor."""
    def sinh_(self) -> Self:
        """Replace the elements by those of `sinh`, cast to the tensor's dtype. Returns the tensor."""
    def softplus_(self) -> Self:
        """Replace the elements by those of `softplus`, cast to the tensor's dtype. Returns the tensor."""
    def softshrink_(self, lambd: Any = ...) -> Self:
        """Replace the elements by those of `softshrink`, cast to the tensor's dtype. Returns the tensor."""
    def softsign_(self) -> Self:
        """Replace the elements by those of `softsign`, cast to the tensor's dtype. Returns the tensor."""
    def sqrt_(self) -> Self:
        """Replace the elements by those of `sqrt`, cast to the tensor's dtype. Returns the tensor."""
    def square_(self) -> Self:
        """Replace the elements by those of `square`, cast to the tensor's dtype. Returns the tensor."""
    def squeeze_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `squeeze` returns."""
    def subtract_(self, y: Any) -> Self:
        """Replace the elements by those of `subtract`, cast to the tensor's dtype. Returns the tensor."""
    def swapaxes_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `swapaxes` returns."""
    def swapdims_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `swapdims` returns."""
    def t_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `t` returns."""
    def tan_(self) -> Self:
        """Replace the elements by those of `tan`, cast to the tensor's dtype. Returns the tensor."""
    def tanh_(self) -> Self:
        """Replace the elements by those of `tanh`, cast to the tensor's dtype. Returns the tensor."""
    def tanhshrink_(self) -> Self:
        """Replace the elements by those of `tanhshrink`, cast to the tensor's dtype. Returns the tensor."""
    def threshold_(self, threshold: Any, value: Any) -> Self:
        """Replace the elements by those of `threshold`, cast to the tensor's dtype. Returns the tensor."""
    def transpose_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `transpose` returns."""
    def tril_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `tril`, cast to the tensor's dtype. Returns the tensor."""
    def triu_(self, *args: Any, keywords: Any) -> Self:
        """Replace the elements by those of `triu`, cast to the tensor's dtype. Returns the tensor."""
    def true_divide_(self, y: Any) -> Self:
        """Replace the elements by those of `divide`, cast to the tensor's dtype. Returns the tensor."""
    def trunc_(self) -> Self:
        """Replace the elements by those of `trunc`, cast to the tensor's dtype. Returns the tensor."""
    def truncating_divide_(self, y: Any) -> Self:
        """Replace the elements by those of `truncating_divide`, cast to the tensor's dtype. Returns the tensor."""
    def unsqueeze_(self, *args: Any, keywords: Any) -> Self:
        """Become the view of the same memory that `unsqueeze` returns."""
    def xlogy_(self, y: Any) -> Self:
        """Replace the elements by those of `xlogy`, cast to the tensor's dtype. Returns the tensor."""
