"""Ops made of a kernel that comes with its source: `polyhal.kernel`, and the strategy `source_kernel` of declared ops.

An op of `polyhal.kernel` is an `OpDef` like ours, outside of the registry, so that gradients, captured steps, `explain`,
the profiler and the conformance kit treat it as any other.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal.dtypes import DType, float32
from polyhal.hal.errors import AutogradError, ShapeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.batching import BATCHING, BatchingRule
from polyhal.hal.ops.gradient_rule import Declared, GradientRule
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.opdef import InferRule, OpDef, OpFunction
from polyhal.hal.ops.samples import OpTests, Sample, Samples, Tolerance
from polyhal.hal.ops.schema import Output, Params, Schema, Specs, tensors
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.ops.user_gradients import checked
from polyhal.hal.protocol import Number, UserKernel

_MAX_AXES = 3
_WORD = re.compile(r"[A-Za-z_]\w*")


@top_level
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
    gradient: Declared | None = None,
    batching: BatchingRule | str | None = None,
    samples: Samples | Sequence[Sample | tuple[Any, ...]] | None = None,
    dtypes: tuple[DType, ...] = (float32,),
    tolerance: Tolerance | None = None,
    doc: str = "",
    sources: Mapping[str, str] | None = None,
) -> OpFunction:
    """Return a function of tensors that runs a kernel of yours, compiled for each device and combination of dtypes.

    `opencl` is the source of the kernel `name` in OpenCL C, `wgsl` that of the entry point `main` in WGSL; `sources` has
    those in further languages by name. `numpy` computes the same from arrays: it serves devices without a kernel, and is
    the reference for tests of the kernel. The inputs are the positional parameters of `numpy` or `outputs`: tensors, or
    Python numbers. Keyword-only parameters are constants of the program.

    `outputs` takes the specs of the inputs and returns (dtype, shape) of the result, or a list with one for each of the
    names in `results`; by default those of the first tensor. `grid` takes them too and returns the number of work-items,
    as a number or one per axis; by default the size of the first result. `group` is the size of a work-group in OpenCL.
    `initial` is stored in every element of the results before the kernel runs.

    `gradient` receives the gradient of the result as `g` (of several as `g_NAME`), inputs and results by their names, and
    returns a gradient for each input, None where there is none. A tuple has one such function, or None, for each input.

    `batching` says how a batch of calls under `vmap` is one call: "leading" (the batch is one more axis in front, which the
    kernel ignores), "pointwise" (the same, and inputs broadcast), or a rule that takes a `BatchedCall`. Without it, `vmap`
    calls the kernel once per element of the batch.

    `samples` are calls with which the conformance kit compares the kernel with `numpy` (see `polyhal.hal.testing.check`):
    tuples of inputs, arrays and numbers, or `Sample`s, or a function of a NumPy generator that returns such. `dtypes` are
    those in which arrays of floats are tested, and `tolerance` the allowed error, by default 4 units in the last place.

    Raises ValueError for a declaration that does not fit together, and TypeError for a source that is not text.
    """
    given = _sources(name, {"opencl": opencl, "wgsl": wgsl, **(sources or {})}, numpy)
    if not _WORD.fullmatch(name):
        raise ValueError(message(name, "the name is no identifier"))
    model = numpy if numpy is not None else outputs
    if model is None:
        raise ValueError(message(name, "the inputs are not named", expected="a function of them, numpy= or outputs="))
    schema = Schema.of(model, outputs=tuple(results))
    if schema.variadic or not schema.inputs:
        raise ValueError(message(name, f"the inputs are {schema.inputs}", expected="one or more names"))
    if samples is not None and numpy is None:
        raise ValueError(message(name, "samples have nothing to be compared with", fix="give a function as `numpy=`"))
    source = UserKernel(name, given, schema.inputs, schema.outputs)
    return OpDef(
        name=name,
        family="user",
        doc=doc or inspect.getdoc(model) or f"The kernel {name!r} of this program.",
        schema=schema,
        infer=_infer_rule(name, schema, outputs),
        reference=numpy or _no_reference(name),
        gradient=GradientRule(_no_gradient(name) if gradient is None else checked(name, gradient, schema), schema),
        lowering=(SourceKernel(source, _grid_rule(name, grid), _sizes(name, group) if group else (), initial),),
        batching=_batching_rule(name, batching),
        tests=OpTests(
            samples=None if samples is None else _samples(samples, differentiable=gradient is not None),
            dtypes=dtypes if samples is not None else (),
            tolerance=tolerance or Tolerance(),
        ),
    ).call


def source_kernel(
    name: str,
    reference: Callable[..., Any],
    *,
    opencl: str = "",
    wgsl: str = "",
    grid: Callable[..., Any] | None = None,
    group: int | Sequence[int] = (),
    initial: Number | None = None,
    results: Sequence[str] = ("out",),
    dtypes: tuple[DType, ...] = (),
    sources: Mapping[str, str] | None = None,
) -> SourceKernel:
    """Return a kernel with its source as a strategy of `declare`, for backends that implement `SupportsUserKernels`.

    The arguments are those of `kernel`; `reference` is the op's NumPy function, and `results` its outputs. `dtypes` are those
    of the first tensor that the kernel is written for, by default all. Other calls, and devices of other languages, take the
    op's next strategy. Raises ValueError for a declaration that does not fit together.
    """
    given = _sources(name, {"opencl": opencl, "wgsl": wgsl, **(sources or {})}, None)
    schema = Schema.of(reference, outputs=tuple(results))
    source = UserKernel(name, {**given, "numpy": reference}, schema.inputs, schema.outputs)
    return SourceKernel(source, _grid_rule(name, grid), _sizes(name, group) if group else (), initial, dtypes)


def _sources(name: str, texts: Mapping[str, Any], numpy: Callable[..., Any] | None) -> dict[str, Any]:
    """Return all sources, and the function for devices without one. Raises ValueError for none, and TypeError."""
    for language, text in texts.items():
        if text and not isinstance(text, str):
            fix = "decode it" if isinstance(text, bytes) else ""
            raise TypeError(
                message(name, f"the {language} source is a {type(text).__name__}", expected="a str", fix=fix)
            )
    given = {language: text for language, text in {**texts, "numpy": numpy}.items() if text}
    if not given:
        raise ValueError(message(name, "the kernel has no source", expected="opencl=, wgsl=, sources= or numpy="))
    return given


def _samples(given: Samples | Sequence[Sample | tuple[Any, ...]], *, differentiable: bool) -> Samples:
    """Samples as the kit takes them; without a gradient, none is differentiated."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        drawn = [s if isinstance(s, Sample) else Sample(tuple(s)) for s in (given(rng) if callable(given) else given)]
        return drawn if differentiable else [replace(s, differentiable=False) for s in drawn]

    return samples


def _batching_rule(name: str, given: BatchingRule | str | None) -> BatchingRule | None:
    if isinstance(given, str):
        if given not in BATCHING:
            expected = f"{' or '.join(map(repr, BATCHING))}, or a function of a BatchedCall"
            raise ValueError(message(name, f"batching is {given!r}", expected=expected))
        return BATCHING[given]
    return given


def _infer_rule(name: str, schema: Schema, outputs: Callable[..., Any] | None) -> InferRule:
    """The shape and dtype rule: `outputs`, with its answer checked."""

    def infer(specs: Specs, params: Params) -> Sequence[Output]:
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
    """The result of a function of the declaration for these inputs. Raises ShapeError."""
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
