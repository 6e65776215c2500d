"""The normal quantile by rational approximation. Source: Wichura, algorithm AS 241, Applied Statistics 37 (1988)."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal.ops.special.namespace import horner
from polyhal.hal.ops.tensor_like import TensorLike

_CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
     1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
     687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def normal_quantile(m: Any, q: TensorLike, tail: TensorLike) -> Any:
    """The quantile of 1/2 + q; `tail` is the smaller of the two areas. Infinite for a tail of 0, NaN for a negative one."""
    central = m.less(m.abs(q), 0.425)
    inner = m.where(central, q, 0.0)
    z = 0.180625 - inner * inner
    middle_value = inner * (horner(z, _CENTRAL[0]) / horner(z, _CENTRAL[1]))
    empty = m.equal(tail, 0.0)
    r = m.sqrt(-m.log(m.where(empty, 0.25, tail)))
    near, far = m.minimum(r, 5.0) - 1.6, m.maximum(r, 5.0) - 5.0
    size = m.where(
        m.less(r, 5.0),
        horner(near, _MIDDLE[0]) / horner(near, _MIDDLE[1]),
        horner(far, _FAR[0]) / horner(far, _FAR[1]),
    )
    size = m.where(empty, math.inf, m.where(m.equal(r, r), size, r))
    return m.where(central, middle_value, m.where(m.less(q, 0.0), -size, size))
