"""Functions of the host that a recorded step may call in its middle: SciPy's, and functions that programs declare."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from polyhal.torch.steps import active

P = ParamSpec("P")
R = TypeVar("R")

_KNOWN = {"scipy.optimize": ("linear_sum_assignment",)}
"""Functions of other libraries whose results depend on the elements of their arguments only, by module."""


def host_function(function: Callable[P, R]) -> Callable[P, R]:
    """Declare that a function of CPU tensors and NumPy arrays may run in the middle of steps of `polyhal.torch.jit`.

    Its results must be one or several tensors of the CPU or arrays, which depend on its arguments only, and it must not have
    side effects. Where a step passes it values that were copied from the device, each run calls it again. If its results have
    other shapes, the step is recorded again. Errors of the function are raised before the run has changed parameters or
    gradients. Outside of recorded steps, the function is called as it is.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        watch = active.recorded()
        if watch is None or not watch.mid_step.depends((args, kwargs)):
            return function(*args, **kwargs)
        result: R = watch.mid_step.call(function, args, kwargs)
        return result

    return called


def declare_known() -> None:
    """Declare the known functions while steps are recorded, wherever modules have imported them by their names."""
    for place, names in _KNOWN.items():
        module = sys.modules.get(place)
        for name in names if module is not None else ():
            known = vars(module).get(name)
            for other in list(sys.modules.values()):
                if known is not None and getattr(other, "__dict__", {}).get(name) is known:
                    active.replace(other, name, host_function)
