"""Gradients of users' kernels, checked: their arguments when they are declared, their results when they run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops.arguments import arguments
from polyhal.hal.ops.schema import Schema


def checked(name: str, gradient: Callable[..., Any], schema: Schema) -> Callable[..., Any]:
    """The gradient function of a kernel, which raises AutogradError unless it returns a gradient or None for each input.

    Raises ValueError for a function with other arguments than gradients, inputs, results and parameters of the kernel.
    """
    known = {
        "g", "needs", *(f"g_{n}" for n in schema.outputs), *schema.inputs, *schema.outputs,
        *(f"{n}_spec" for n in schema.inputs),
    }  # fmt: skip
    positional, keyword_only, _, _ = arguments(gradient)
    unknown = [n for n in positional if n not in known] + [n for n in keyword_only if n not in schema.params]
    if unknown:
        expected = ", ".join(sorted(known | set(schema.params)))
        raise ValueError(message(name, f"the gradient takes {', '.join(unknown)}", expected=f"some of {expected}"))

    @functools.wraps(gradient)
    def call(*args: Any, **keywords: Any) -> tuple[Any, ...]:
        result = gradient(*args, **keywords)
        gradients = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        count = len(schema.inputs)
        if len(gradients) != count:
            problem = f"the gradient returned {len(gradients)} values"
            raise AutogradError(message(name, problem, expected=f"{count}: a tensor or None for each input"))
        places = {a.device.name for a in args if hasattr(a, "ref")}
        for x, value in zip(schema.inputs, gradients, strict=True):
            if value is not None and not hasattr(value, "ref"):
                problem = f"the gradient of {x} is a {type(value).__name__}"
                raise AutogradError(message(name, problem, expected="a tensor, or None"))
            if value is not None and places and value.device.name not in places:
                problem = f"the gradient of {x} is on {value.device.name}"
                raise AutogradError(message(name, problem, expected=" or ".join(sorted(places))))
        return gradients

    return call
