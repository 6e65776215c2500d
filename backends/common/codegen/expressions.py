"""The formula of each elementwise op, in a small expression language with a translation to every shader language.

A template uses the operands `x`, `y`, `z`, op parameters by name, C operators, and these functions, which a `Dialect`
translates to its language:

- `K(1.5)`: a constant of the operand type;
- `select(no, yes, condition)`: componentwise choice; `condition` consists of comparisons joined by `|` and `&`;
- `truth(x)`: a bool operand as a condition;
- `BITS`: the width in bits of the operand's storage type;
- `quotient(x, y)`: x / y, correctly rounded (the `/` of a shader language may be off by a few ulp);
- `opaque(x, zero)`: x, about which compilers have no assumptions; `zero` is a parameter of value 0 (WGSL only);
- `shift_left(x, n)`, `shift_right(x, n)`: shifts by 0 <= n < BITS, arithmetic on signed integers;
- any other function name refers to the dialect's runtime library.

Comparisons follow IEEE 754: a NaN makes `<`, `>` and `==` false. A choice between the operands of a comparison is an
exception: WGSL compilers replace it by `min` or `max`, which return the operand that is not NaN. To propagate a NaN
through such a choice, a final `isnan` selects it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType, Kind
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES

RegisterClass = Literal["float", "double", "int", "uint", "long", "ulong", "bool"]
"""Type of a register: half precision computes in float, small integers in 32 bits."""

_CLASSES: dict[DType, RegisterClass] = {
    dtypes.bool_: "bool",
    dtypes.uint8: "uint",
    dtypes.uint16: "uint",
    dtypes.uint32: "uint",
    dtypes.uint64: "ulong",
    dtypes.int8: "int",
    dtypes.int16: "int",
    dtypes.int32: "int",
    dtypes.int64: "long",
    dtypes.float16: "float",
    dtypes.bfloat16: "float",
    dtypes.float32: "float",
    dtypes.float64: "double",
}


def register_class(dtype: DType) -> RegisterClass:
    """Return the class of the register that holds an element of `dtype`."""
    return _CLASSES[dtype]


@dataclass(frozen=True, slots=True)
class Expression:
    """One op: a template per kind of operand, the number of operands, and the names of op parameters."""

    templates: Mapping[str, str]
    """Templates by kind of operand: float, int, uint, bool."""
    arity: int
    predicate: bool = False
    """True if the result is a condition, stored as bool."""
    params: tuple[str, ...] = ()


_KINDS: tuple[Kind, ...] = ("float", "int", "uint", "bool")


def _float(template: str, arity: int = 1, params: tuple[str, ...] = ()) -> Expression:
    return Expression({"float": template}, arity, params=params)


def _numeric(template: str, arity: int, **special: str) -> Expression:
    return Expression({**dict.fromkeys(_KINDS, template), **special}, arity)


def _predicate(template: str, arity: int, **special: str) -> Expression:
    return Expression({**dict.fromkeys(_KINDS, template), **special}, arity, predicate=True)


_GUARDED = "select(y, K(1), (y == K(0)) | (y == K(-1)))"
"""Divisor that cannot trap: x / 0 and INT_MIN / -1 kill the process on some CPUs."""
_SAFE = "select(y, K(1), y == K(0))"

_RELU6 = "select(select(x, K(0), x < K(0)), K(6), x > K(6))"

RELAXED = {"divide": "divide_relaxed"}
"""Expressions of ops on floats that are rounded as the device does, by name of the op."""

EXPRESSIONS: dict[str, Expression] = {
    # Arithmetic. Booleans add as `or` and multiply as `and`, as in NumPy.
    "add": _numeric("x + y", 2, bool="x | y"),
    "subtract": _numeric("x - y", 2),
    "multiply": _numeric("x * y", 2, bool="x & y"),
    "divide_relaxed": Expression({"float": "x / y"}, 2),
    "divide": Expression(
        {
            "float": "quotient(x, y)",
            "int": f"select(select(x / {_GUARDED}, -x, y == K(-1)), K(0), y == K(0))",
            "uint": f"select(x / {_SAFE}, K(0), y == K(0))",
        },
        2,
    ),
    "floor_divide": Expression(
        {
            "float": "floor_divide(x, y)",
            "int": "floor_divide(x, y)",
            "uint": f"select(x / {_SAFE}, K(0), y == K(0))",
        },
        2,
    ),
    "remainder": Expression(
        {
            "float": "floor_remainder(x, y)",
            "int": "floor_remainder(x, y)",
            "uint": f"select(x % {_SAFE}, K(0), y == K(0))",
        },
        2,
    ),
    "fmod": Expression(
        {
            "float": "fmod(x, y)",
            # Not `%`: the remainder of negative integers is wrong on NVIDIA's Vulkan.
            "int": f"select(x - x / {_GUARDED} * {_GUARDED}, K(0), (y == K(0)) | (y == K(-1)))",
            "uint": f"select(x % {_SAFE}, K(0), y == K(0))",
        },
        2,
    ),
    "pow": Expression({"float": "signed_power(x, y)", "int": "integer_pow(x, y)", "uint": "integer_pow(x, y)"}, 2),
    "maximum": _numeric("select(y, x, x > y)", 2, float="select(y, x, (x > y) | isnan(x))"),
    "minimum": _numeric("select(y, x, x < y)", 2, float="select(y, x, (x < y) | isnan(x))"),
    "negative": _numeric("-x", 1, uint="K(0) - x"),
    "positive": _numeric("x", 1),
    "abs": _numeric("select(x, -x, x < K(0))", 1, float="fabs(x)", uint="x", bool="x"),
    "sign": _numeric(
        "select(select(K(0), K(-1), x < K(0)), K(1), x > K(0))",
        1,
        # Not `select(K(0), K(-1), x < K(0))`, which some Vulkan compilers turn into the negative of a condition, -0.0.
        float="select(select(K(0), copysign(K(1), x), fabs(x) > K(0)), x, isnan(x))",
        uint="select(K(0), K(1), x > K(0))",
        bool="x",
    ),
    "square": _numeric("x * x", 1),
    "reciprocal": _float("K(1) / x"),
    # Exponentials, logarithms, roots.
    "exp": _float("exp(x)"),
    "exp2": _float("exp2(x)"),
    "expm1": _float("expm1(x)"),
    "log": _float("log(x)"),
    "log2": _float("log2(x)"),
    "log10": _float("log10(x)"),
    "log1p": _float("log1p(x)"),
    "sqrt": _float("sqrt(x)"),
    "rsqrt": _float("K(1) / sqrt(x)"),
    # Trigonometry and hyperbolic functions.
    "sin": _float("sine(x)"),
    "cos": _float("cosine(x)"),
    "tan": _float("tangent(x)"),
    "asin": _float("asin(x)"),
    "acos": _float("acos(x)"),
    "atan": _float("atan(x)"),
    "atan2": _float("atan2(x, y)", 2),
    "sinh": _float("sinh(x)"),
    "cosh": _float("cosh(x)"),
    "tanh": _float("tanh(x)"),
    "tanh_grad": _float("x * (K(1) - y * y)", 2),
    "erf": _float("error_function(x)"),
    # Rounding is the identity on integers and booleans.
    "floor": _numeric("x", 1, float="floor(x)"),
    "ceil": _numeric("x", 1, float="ceil(x)"),
    "trunc": _numeric("x", 1, float="trunc(x)"),
    "round": _numeric("x", 1, float="rint(x)"),
    # Comparison.
    "equal": _predicate("x == y", 2),
    "not_equal": _predicate("x != y", 2, float="(x != y) | isnan(x) | isnan(y)"),
    "less": _predicate("x < y", 2),
    "less_equal": _predicate("x <= y", 2),
    "greater": _predicate("x > y", 2),
    "greater_equal": _predicate("x >= y", 2),
    "isnan": _predicate("x != x", 1, float="isnan(x)"),
    "isinf": _predicate("x != x", 1, float="isinf(x)"),
    "isfinite": _predicate("x == x", 1, float="isfinite(x)"),
    # Logic: operands are bool registers.
    "logical_and": Expression({"bool": "x & y"}, 2),
    "logical_or": Expression({"bool": "x | y"}, 2),
    "logical_xor": Expression({"bool": "x != y"}, 2, predicate=True),
    "logical_not": Expression({"bool": "x == K(0)"}, 1, predicate=True),
    # Bits. A shift by BITS or more equals repeated shifts by one.
    "bitwise_and": Expression({"int": "x & y", "uint": "x & y", "bool": "x & y"}, 2),
    "bitwise_or": Expression({"int": "x | y", "uint": "x | y", "bool": "x | y"}, 2),
    "bitwise_xor": Expression({"int": "x ^ y", "uint": "x ^ y", "bool": "x ^ y"}, 2),
    "bitwise_invert": Expression({"int": "~x", "uint": "~x", "bool": "x ^ K(1)"}, 1),
    "bitwise_left_shift": Expression(
        {
            "int": "select(shift_left(x, y & K(BITS - 1)), K(0), (y < K(0)) | (y >= K(BITS)))",
            "uint": "select(shift_left(x, y & K(BITS - 1)), K(0), y >= K(BITS))",
        },
        2,
    ),
    "bitwise_right_shift": Expression(
        {
            "int": "shift_right(x, select(y, K(BITS - 1), (y < K(0)) | (y >= K(BITS))))",
            "uint": "select(shift_right(x, y & K(BITS - 1)), K(0), y >= K(BITS))",
        },
        2,
    ),
    # Selection. The inputs of `where` are (condition, yes, no).
    "where": _numeric("select(z, y, truth(x))", 3),
    "clip_low": _numeric("select(x, y, x < y)", 2, float="select(x, y, (x < y) | isnan(y))"),
    "clip_high": _numeric("select(x, y, x > y)", 2, float="select(x, y, (x > y) | isnan(y))"),
    # Activations and their gradients; in a gradient `x` is the incoming gradient.
    "relu": _numeric(
        "select(x, K(0), x < K(0))", 1, float="select(K(0), x, (x > K(0)) | isnan(x))", uint="x", bool="x"
    ),
    "relu_grad": _numeric("select(x, K(0), y <= K(0))", 2),
    "leaky_relu": _float("select(x * negative_slope, x, x > K(0))", params=("negative_slope",)),
    "elu": _float("select(alpha * expm1(x), x, x > K(0))", params=("alpha",)),
    "sigmoid": _float("sigmoid(x)"),
    "sigmoid_grad": _float("x * (y * (K(1) - y))", 2),
    "silu": _float("silu(x)"),
    "silu_grad": _float("x * silu_derivative(y)", 2),
    "softplus": _float("select(K(0), x, x > K(0)) + log1p(exp(-fabs(x)))"),
    "gelu": _float("x * normal_distribution(x)"),
    "gelu_grad": _float("x * gelu_derivative(y)", 2),
    "gelu_tanh": _float("gelu_tanh(x)"),
    "gelu_tanh_grad": _float("x * gelu_tanh_derivative(y)", 2),
    "hardtanh": _float(
        "select(select(select(x, min_val, x < min_val), max_val, x > max_val), x, isnan(x))",
        params=("min_val", "max_val"),
    ),
    "relu6": _numeric(_RELU6, 1, float=f"select({_RELU6}, x, isnan(x))"),
    "hardsigmoid": _float("select(select(select(x + K(3), K(0), x < K(-3)), K(6), x > K(3)) / K(6), x, isnan(x))"),
    "hardswish": _float("x * (select(select(x + K(3), K(0), x < K(-3)), K(6), x > K(3)) / K(6))"),
    "hardshrink": _float("select(select(x, K(0), (x >= -lambd) & (x <= lambd)), x, isnan(x))", params=("lambd",)),
    "softshrink": _float(
        "select(select(select(K(0), x + lambd, x < -lambd), x - lambd, x > lambd), x, isnan(x))", params=("lambd",)
    ),
    "threshold": _float("select(select(x, value, x <= threshold), x, isnan(x))", params=("threshold", "value")),
    "parametric_relu": _float("select(x * y, x, x > K(0))", 2),
    "celu": _float("select(alpha * expm1(x / alpha), x, x > K(0))", params=("alpha",)),
    "selu": _float("K(1.0507009873554805) * select(K(1.6732632423543772) * expm1(x), x, x > K(0))"),
    "mish": _float("x * tanh(select(K(0), x, x > K(0)) + log1p(exp(-fabs(x))))"),
    "softsign": _float("x / (K(1) + fabs(x))"),
    "tanhshrink": _float("x - tanh(x)"),
    "logsigmoid": _float("select(x, K(0), x > K(0)) - log1p(exp(-fabs(x)))"),
    # Three operands.
    "addcmul": _float("x + value * y * z", 3, ("value",)),
    "addcdiv": _float("x + value * (y / z)", 3, ("value",)),
    "lerp": _float("select(y - (y - x) * (K(1) - z), x + z * (y - x), fabs(z) < K(0.5))", 3),
    # Signs, fractions, and functions of two numbers.
    "signbit": _predicate("x < K(0)", 1, float="signbit(x)", uint="x != x", bool="x != x"),
    "isposinf": _predicate("x != x", 1, float="isinf(x) & (x > K(0))"),
    "isneginf": _predicate("x != x", 1, float="isinf(x) & (x < K(0))"),
    "copysign": _float("copysign(x, y)", 2),
    "frac": _float("x - trunc(x)"),
    "fmax": _numeric("select(y, x, x >= y)", 2, float="select(y, x, (x >= y) | isnan(y))"),
    "fmin": _numeric("select(y, x, x <= y)", 2, float="select(y, x, (x <= y) | isnan(y))"),
    "hypot": _float("hypot(x, y)", 2),
    "asinh": _float("asinh(x)"),
    "acosh": _float("acosh(x)"),
    "atanh": _float("atanh(x)"),
    "cast": _numeric("x", 1),
    "opaque": _float("opaque(x, zero)", params=("zero",)),
}


def expression_of(op: str) -> Expression | None:
    """Return the expression of an op, or of a core method of the contract; None if it has none."""
    name = OP_NAMES.get(op, op)
    return EXPRESSIONS.get(name) or _declared(name)


def _declared(op: str) -> Expression | None:
    """Return the expression in the declaration of a third-party op; None if it has none."""
    if op not in OPS or not OPS[op].expression:
        return None
    schema = OPS[op].schema
    return Expression({"float": OPS[op].expression}, len(schema.inputs), params=tuple(schema.params))


class Dialect(Protocol):
    """Translation of the functions of a template to one shader language."""

    def constant(self, text: str, cls: RegisterClass) -> str:
        """Write a constant of a register class; `text` is a number or a constant expression."""

    def select(self, no: str, yes: str, condition: str) -> str:
        """Write a componentwise choice."""

    def truth(self, register: str, cls: RegisterClass) -> str:
        """Write a bool register as a condition that selects between values of `cls`."""

    def function(self, name: str, cls: RegisterClass) -> str:
        """Return the name of a library function for operands of `cls`."""

    def predicate(self, condition: str, cls: RegisterClass) -> str:
        """Write a condition over operands of `cls` as the value of a bool register."""


_WORD = re.compile(r"[A-Za-z_]\w*")


def render(
    expression: Expression, dtype: DType, operands: Sequence[str], params: Mapping[str, str], dialect: Dialect
) -> str:
    """Translate an expression over registers named `operands`, of `dtype`, to one language.

    Raises KeyError if the op has no template for that kind of operand.
    """
    cls = register_class(dtype)
    words = dict(zip("xyz", operands, strict=False)) | dict(params) | {"BITS": str(dtype.bits)}
    text = _rewrite(expression.templates[dtype.kind], words, cls, dialect)
    return dialect.predicate(text, cls) if expression.predicate else f"({text})"


def _rewrite(text: str, words: Mapping[str, str], cls: RegisterClass, dialect: Dialect) -> str:
    out = []
    position = 0
    while match := _WORD.search(text, position):
        out.append(text[position : match.start()])
        word = match.group()
        if text[match.end() : match.end() + 1] != "(":
            out.append(words[word])
            position = match.end()
            continue
        inside, position = _argument_text(text, match.end())
        arguments = [_rewrite(a, words, cls, dialect) for a in _split(inside)]
        if word == "K":
            out.append(dialect.constant(arguments[0], cls))
        elif word == "select":
            out.append(dialect.select(*arguments))
        elif word == "truth":
            out.append(dialect.truth(arguments[0], cls))
        else:
            out.append(f"{dialect.function(word, cls)}({', '.join(arguments)})")
    out.append(text[position:])
    return "".join(out)


def _argument_text(text: str, opening: int) -> tuple[str, int]:
    """Return the text inside the parenthesis at `opening`, and the position after the closing one."""
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return text[opening + 1 : i], i + 1
    raise AssertionError(f"unbalanced parentheses in {text!r}")


def _split(text: str) -> list[str]:
    """Split the arguments of a call at the commas outside parentheses."""
    arguments, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            arguments.append(text[start:i].strip())
            start = i + 1
    return [*arguments, text[start:].strip()]
