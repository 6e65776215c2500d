"""Ops made of a kernel that the user's program brings along: `polyhal.kernel`.

Such an op is an `OpDef` like ours, outside of the registry, so that gradients, captured steps, `explain` and the profiler
treat it alike.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.hal.errors import AutogradError, ShapeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.opdef import GradientRule, InferRule, OpDef, OpFunction
from polyhal.hal.ops.schema import Output, Params, Schema, Specs, tensors
from polyhal.hal.protocol import Number, UserKernel

_MAX_AXES = 3
_WORD = re.compile(r"[A-Za-z_]\w*")


def kernel(
    name: str,
    *,
    opencl: str = "",
    wgsl: str = "",
    numpy: Callable[..., Any] | None = None,
    outputs: Callable[..., Any] | None = None,
    results: Sequence[str] = ("out",),
    grid: Callable[..., Any] | None = None,
    group: int | Sequence[int] = (),
    initial: Number | None = None,
    gradient: Callable[..., Any] | None = None,
    doc: str = "",
    sources: Mapping[str, str] | None = None,
) -> OpFunction:
    """Return a function of tensors that runs a kernel of yours, compiled for each device and combination of dtypes.

    `opencl` is the source of the kernel `name` in OpenCL C, `wgsl` that of the entry point `main` in WGSL; `sources` has
    those in further languages by name. `numpy` computes the same from arrays: it serves devices without a kernel, and is
    what the kernel is compared with. The inputs are the positional parameters of `numpy` or `outputs`: tensors, or Python
    numbers. Keyword-only parameters are constants of the program.

    `outputs` takes the specs of the inputs and returns (dtype, shape) of the result, or a list with one for each of the
    names in `results`; by default those of the first tensor. `grid` takes them too and returns the number of work-items,
    as a number or one per axis; by default the size of the first result. `group` is the size of a work-group in OpenCL.
    `initial` is stored in every element of the results before the kernel runs.

    `gradient` gets the gradient of the result as `g` (of several as `g_NAME`), inputs and results by their names, and
    returns a gradient for each input, None where there is none.

    Raises ValueError for a declaration that does not fit together.
    """
    texts: dict[str, Any] = {"opencl": opencl, "wgsl": wgsl, **(sources or {}), "numpy": numpy}
    given = {language: text for language, text in texts.items() if text}
    if not given:
        raise ValueError(message(name, "the kernel has no source", expected="opencl=, wgsl= or numpy="))
    if not _WORD.fullmatch(name):
        raise ValueError(message(name, "the name is no identifier"))
    model = numpy if numpy is not None else outputs
    if model is None:
        raise ValueError(message(name, "the inputs are not named", expected="a function of them, numpy= or outputs="))
    schema = Schema.of(model, outputs=tuple(results))
    if schema.variadic or not schema.inputs:
        raise ValueError(message(name, f"the inputs are {schema.inputs}", expected="one or more names"))
    source = UserKernel(name, given, schema.inputs, schema.outputs)
    return OpDef(
        name=name,
        family="user",
        doc=doc or inspect.getdoc(model) or f"The kernel {name!r} of this program.",
        schema=schema,
        infer=_infer_rule(name, schema, outputs),
        reference=numpy or _no_reference(name),
        gradient=GradientRule(gradient or _no_gradient(name), schema),
        lowering=(SourceKernel(source, _grid_rule(name, grid), _sizes(name, group) if group else (), initial),),
    ).call


def _infer_rule(name: str, schema: Schema, outputs: Callable[..., Any] | None) -> InferRule:
    """The shape and dtype rule: `outputs`, with its answer checked."""

    def infer(specs: Specs, params: dict[str, Any]) -> Sequence[Output]:
        first = tensors(specs)[0]
        answer: Any = [(first.dtype, first.shape)] * len(schema.outputs)
        if outputs is not None:
            answer = _asked(name, "outputs", outputs, specs, params)
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], DType):
            answer = [answer]
        if (
            not isinstance(answer, list | tuple)
            or len(answer) != len(schema.outputs)
            or not all(map(_is_output, answer))
        ):
            raise ShapeError(
                message(
                    name,
                    f"`outputs` returned {answer!r}",
                    expected=f"(dtype, shape) for {' and '.join(schema.outputs)}",
                )
            )
        return [(dtype, tuple(shape)) for dtype, shape in answer]

    return infer


def _is_output(answer: Any) -> bool:
    return (
        isinstance(answer, tuple | list)
        and len(answer) == 2
        and isinstance(answer[0], DType)
        and isinstance(answer[1], tuple | list)
        and all(isinstance(n, int) and n >= 0 for n in answer[1])
    )


def _asked(name: str, what: str, rule: Callable[..., Any], specs: Specs, params: Params) -> Any:
    """What a function of the declaration says of these inputs. Raises ShapeError."""
    try:
        return rule(*specs, **params)
    except (ValueError, TypeError, IndexError, AttributeError, AssertionError) as error:
        inputs = ", ".join("none" if s is None else str(s) for s in specs)
        raise ShapeError(message(name, f"`{what}` does not take these inputs ({inputs}): {error}")) from error


def _grid_rule(
    name: str, grid: Callable[..., Any] | None
) -> Callable[[Specs, tuple[Spec, ...], Params], tuple[int, ...]]:
    """The rule for the number of work-items."""

    def rule(inputs: Specs, outputs: tuple[Spec, ...], params: Params) -> tuple[int, ...]:
        if grid is None:
            return (outputs[0].size,)
        return _sizes(name, _asked(name, "grid", grid, inputs, params))

    return rule


def _sizes(name: str, given: Any) -> tuple[int, ...]:
    """A number, or one per axis, as a tuple. Raises ShapeError."""
    sizes = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(sizes) <= _MAX_AXES or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ShapeError(
            message(name, f"the grid or group is {given!r}", expected="a positive number, or up to three of them")
        )
    return sizes


def _no_reference(name: str) -> Callable[..., Any]:
    def reference(*inputs: Any, **params: Any) -> Any:
        raise NotImplementedError(message(name, "the kernel has no NumPy function", fix="give one as `numpy=`"))

    return reference


def _no_gradient(name: str) -> Callable[..., Any]:
    def gradient() -> Any:
        problem = "the kernel has no gradient"
        raise AutogradError(message(name, problem, fix="give one as `gradient=`, or call it within no_grad()"))

    return gradient
