"""Gradients of users' kernels, checked: their arguments when they are declared, their results when they run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops.arguments import arguments
from polyhal.hal.ops.schema import Schema


def checked(name: str, gradient: Any, schema: Schema) -> Any:
    """Wrap the gradient of a kernel so that it raises AutogradError unless it returns a gradient or None for each input.

    It is one function for all inputs, or a tuple with a function or None for each. Raises ValueError for functions with other
    arguments than gradients, inputs, results and parameters of the kernel.
    """
    if isinstance(gradient, tuple):
        if len(gradient) != len(schema.inputs):
            problem = f"the gradient has {len(gradient)} functions"
            raise ValueError(message(name, problem, expected=f"one for each of {', '.join(schema.inputs)}"))
        pairs = zip(schema.inputs, gradient, strict=True)
        return tuple(None if f is None else _checked(name, f, schema, (x,)) for x, f in pairs)
    return _checked(name, gradient, schema, schema.inputs)


def _checked(name: str, gradient: Callable[..., Any], schema: Schema, inputs: tuple[str, ...]) -> Callable[..., Any]:
    """Wrap a function that returns the gradients of `inputs`."""
    known = {
        "g",
        "needs",
        *(f"g_{n}" for n in schema.outputs),
        *schema.inputs,
        *schema.outputs,
        *(f"{n}_spec" for n in schema.inputs),
    }
    positional, keyword_only, _, _ = arguments(gradient)
    unknown = [n for n in positional if n not in known] + [n for n in keyword_only if n not in schema.params]
    if unknown:
        expected = ", ".join(sorted(known | set(schema.params)))
        raise ValueError(message(name, f"the gradient takes {', '.join(unknown)}", expected=f"some of {expected}"))

    @functools.wraps(gradient)
    def call(*args: Any, **keywords: Any) -> Any:
        result = gradient(*args, **keywords)
        gradients = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(gradients) != len(inputs):
            problem = f"the gradient returned {len(gradients)} values"
            raise AutogradError(message(name, problem, expected=f"{len(inputs)}: a tensor or None for each input"))
        places = {a.device.name for a in args if hasattr(a, "ref")}
        for x, value in zip(inputs, gradients, strict=True):
            if value is not None and not hasattr(value, "ref"):
                problem = f"the gradient of {x} is a {type(value).__name__}"
                raise AutogradError(message(name, problem, expected="a tensor, or None"))
            if value is not None and places and value.device.name not in places:
                problem = f"the gradient of {x} is on {value.device.name}"
                raise AutogradError(message(name, problem, expected=" or ".join(sorted(places))))
        return gradients[0] if len(inputs) == 1 else gradients

    return call
