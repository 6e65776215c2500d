"""Functions return views exactly if they declare it, for all arguments, as the memory of results shows."""

from __future__ import annotations

import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.hal.ops.returns import Returns, declared_returns
from polyhal.nn import functional as F
from polyhal.random import default_generator

Function = Callable[..., Any]

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (1, 1), (2, 3), (1, 2, 3), (1, 1, 2, 2))
TEMPTING = (0, 1, -1, (), (0,), (1,), (0, 0), (1, 1), (0, 1), [0], True, None)
"""Arguments at which many functions have nothing to do."""
_ELSEWHERE = re.compile(
    r"save|load|seed|device|backend|profile|debug|verify|check|capture|jit|compile|set_|default_|explain|report|memory|graph"
    r"|use_|broadcast_shapes|^_|[^_]_$"
)
"""Functions that make no tensors of tensors, and those that change their argument, which they return."""


@pytest.mark.parametrize(
    "text",
    [
        *("x[...]", "x[:]", "x.narrow(0, 0, 3)", "x.flatten()", "x.contiguous()", "F.interpolate(m, scale_factor=1)"),
        *("lib.broadcast_tensors(x, x)[0]", "x.t()", "x.reshape(3)", "lib.broadcast_tensors(x, lib.ones((2, 1)))[0]"),
    ],
)
def test_a_function_with_nothing_to_do_returns_its_argument_where_pytorch_does(text: str) -> None:
    found = []
    for lib in (ph, torch):
        x, m = lib.ones((3,)), lib.ones((1, 1, 2, 2))  # type: ignore[attr-defined]
        result = eval(text, {"lib": lib, "F": lib.nn.functional, "x": x, "m": m})
        found.append(result is x or result is m)
    assert found[0] == found[1]


def _namespaces() -> Iterator[tuple[str, Any]]:
    yield "polyhal", ph
    yield "polyhal.nn.functional", F
    for name in ("linalg", "fft", "special", "signal"):
        yield f"polyhal.{name}", getattr(ph, name)
    yield "polyhal.Tensor", ph.Tensor


def _functions() -> Iterator[tuple[str, Function, Returns]]:
    """Return all public functions, methods and properties (as functions), with their declarations."""
    for namespace, holder in _namespaces():
        for name in dir(holder):
            found = inspect.getattr_static(holder, name, None)
            if _ELSEWHERE.search(name) or inspect.isclass(found) or inspect.ismodule(found):
                continue
            if isinstance(found, property):
                yield f"{namespace}.{name}", found.fget, declared_returns(found.fget)  # type: ignore[misc]
            elif callable(found):
                yield f"{namespace}.{name}", found, declared_returns(found)


def _calls(function: Function, x: ph.Tensor, other: ph.Tensor) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return combinations of further arguments; most are invalid."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    options = [p.name for p in parameters if p.default is not p.empty]
    if required == 0:
        yield (), {}
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            yield from ((items, {}) for items in (x.shape, (x.shape,), (1,) * max(x.ndim, 1), (0,), (-1,)))
        yield from (((), {name: value}) for name in options[:6] for value in TEMPTING)
    elif required == 1:
        yield from (((value,), {}) for value in (*TEMPTING, x.shape, other))
        yield from (((0,), {name: value}) for name in options[:3] for value in (0, 1))
    elif required == 2:
        yield from ((pair, {}) for pair in itertools.product((0, 1, (0,), other), (0, 1, (0,), x.shape, other)))
    else:
        yield (other,) * required, {}
        yield (0, 0, 1, 1)[:required], {}


def _memory(value: Any) -> set[int]:
    """Return the buffers of all non-empty tensors in a result."""
    if isinstance(value, (tuple, list)):
        return {b for x in value for b in _memory(x)}
    if not isinstance(value, ph.Tensor) or not value.size:
        return set()
    return _memory((value.real, value.imag)) if value.dtype.is_complex else {id(value.buffer)}


def _numbers(shape: tuple[int, ...]) -> ph.Tensor:
    count = int(np.prod(shape))
    return ph.tensor(np.arange(1, count + 1, dtype=np.float32).reshape(shape), device="numpy")


def _sharing(function: Function) -> dict[bool, str]:
    """Return whether results share memory with arguments, each case with a call as evidence."""
    found: dict[bool, str] = {}
    op = getattr(function, "op", None)
    computes = op is not None and op.view is None  # the executor allocates every result
    for shape in SHAPES:
        x, other = _numbers(shape), _numbers(shape)
        for args, keywords in itertools.islice(_calls(function, x, other), 1 if computes else None):
            try:
                result = function(x, *args, **keywords)
            except Exception:  # invalid arguments
                continue
            if made := _memory(result):
                shares = bool(made & _memory((x, *args, *keywords.values())))
                found.setdefault(shares, f"{shape}, {args}, {keywords}")
    return found


@pytest.fixture(autouse=True)
def _same_random_numbers() -> Iterator[None]:
    """Restore the default generator, which even calls with invalid arguments may advance."""
    state = default_generator.get_state()
    yield
    default_generator.set_state(state)


FUNCTIONS = sorted({id(f[1]): f for f in _functions()}.values(), key=lambda f: f[0])
"""Functions without their aliases."""
_PARTS = 4


@pytest.mark.parametrize("part", range(_PARTS))
def test_results_are_in_the_declared_memory(part: int, numpy_device: ph.Device) -> None:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, kind in FUNCTIONS[part::_PARTS]:
            try:
                found = _sharing(function)
            except ValueError:  # no signature
                continue
            allowed = {Returns.VIEW: {True}, Returns.EITHER: {True, False}}.get(kind, {False})
            wrong += [f"{name} {'shares' if s else 'copies'}: {call}" for s, call in found.items() if s not in allowed]
    assert not wrong, "\n".join(wrong)


def test_the_docstring_states_the_declaration() -> None:
    for name, function, kind in FUNCTIONS:
        if kind is not Returns.NEW:
            sentence = kind.value.replace("a view.", "views.")
            doc = inspect.getdoc(function) or ""
            assert kind.value in doc or sentence in doc, name


def test_most_functions_are_called_with_arguments_that_fit(numpy_device: ph.Device) -> None:
    declared = [f for f in FUNCTIONS if f[2] is not Returns.NEW]
    missed = [name for name, function, _ in declared if not _sharing(function)]
    assert len(declared) > 100
    assert len(missed) < 0.2 * len(declared), missed


Program = Callable[[Any, Any], Any]
"""Takes a tensor, (2, 3) unless the case declares another shape, and PyTorch's or Polyhal's functions."""

AT_NOTHING: dict[str, tuple[tuple[int, ...], Program]] = {
    "pad": ((2, 3), lambda x, f: f.pad(x, (0, 0))),
    "crop": ((2, 3), lambda x, f: f.pad(x, (0, -1))),
    "roll": ((2, 3), lambda x, f: x.roll(0, 0)),
    "roll by the length": ((2, 3), lambda x, f: x.roll(3, 1)),
    "repeat": ((2, 3), lambda x, f: x.repeat(1, 1)),
    "repeat an axis of length 1": ((2, 1), lambda x, f: x.repeat(1, 4)),
    "tile": ((2, 3), lambda x, f: x.tile((1, 1))),
    "repeat_interleave": ((2, 3), lambda x, f: x.repeat_interleave(1, 0)),
    "repeat_interleave of one": ((1, 3), lambda x, f: x.repeat_interleave(4, 0)),
    "rot90": ((2, 3), lambda x, f: x.rot90(4, (0, 1))),
    "flip": ((2, 3), lambda x, f: x.flip(0)),
    "flip of one": ((1, 3), lambda x, f: x.flip(0)),
    "interpolate": ((1, 2, 3), lambda x, f: f.interpolate(x, scale_factor=1)),
    "pixel_shuffle": ((1, 2, 3), lambda x, f: f.pixel_shuffle(x, 1)),
    "matrix_power": ((3, 3), lambda x, f: x.matrix_power(1)),
    "diff": ((2, 3), lambda x, f: x.diff(n=0)),
    "diag": ((1, 1), lambda x, f: x.diag()),
    "dropout": ((2, 3), lambda x, f: f.dropout(x, 0.5, False)),
    "to": ((2, 3), lambda x, f: x.to(x.dtype)),
    "contiguous": ((2, 3), lambda x, f: x.contiguous()),
    "reshape": ((2, 3), lambda x, f: x.reshape(3, 2)),
    "reshape of a transpose": ((2, 3), lambda x, f: x.T.reshape(6)),
    "flatten": ((3,), lambda x, f: x.flatten()),
    "expand": ((2, 3), lambda x, f: x.expand(2, 3)),
    "narrow": ((2, 3), lambda x, f: x.narrow(0, 0, 2)),
    "everything": ((2, 3), lambda x, f: x[...]),
}


@pytest.mark.parametrize("name", AT_NOTHING)
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_writes_reach_the_source_exactly_where_they_do_in_pytorch(device: ph.Device, name: str, captured: bool) -> None:
    shape, program = AT_NOTHING[name]
    values = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    x, t = ph.tensor(values, device=device), torch.tensor(values)

    def ours(x: Any) -> Any:
        return program(x, F)

    function = ph.jit(ours) if captured else ours
    for _ in range(3 if captured else 0):
        function(x)
    z, y = function(x), program(t, torch.nn.functional)
    for one, other in ((z, x), (x, z)):
        first, second = (y, t) if one is z else (t, y)
        one.add_(10)
        first.add_(10)
        np.testing.assert_array_equal(one.numpy(), first.numpy())
        np.testing.assert_array_equal(other.numpy(), second.numpy())


def test_a_view_is_another_tensor_even_of_the_whole(numpy_device: ph.Device) -> None:
    x = ph.zeros(3)
    for y in (x[:], x[...], x.t(), x.squeeze(), x.T):
        assert y is not x
        y.unsqueeze_(0)
        assert x.shape == (3,)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        *("x[:, :, i]", "x[:, i]", "x[..., [1, 0]]", "x[:, [True, False, True]]", "lib.index_select(x, -1, i)"),
        *("lib.repeat_interleave(x, lib.tensor([1, 2, 0]), 1)", "F.pad(x, (-1, 0, 0, -1), mode='replicate')"),
        *("F.pad(x, (1, 1), mode='reflect')", "F.conv3d(v, v)", "F.conv_transpose3d(v, v, padding=1)"),
    ],
)
def test_a_view_of_a_new_result_is_written_with_it(device: ph.Device, text: str, captured: bool) -> None:
    """Results are row-major where PyTorch's are, so that `view` never copies there."""
    array = np.arange(12, dtype=np.float32).reshape(2, 3, 2) - 2.0

    def program(lib: Any, x: Any, i: Any, v: Any) -> Any:
        result = eval(text, {"lib": lib, "F": lib.nn.functional, "x": x, "i": i, "v": v})
        flat = result.view(-1)
        flat[1:] *= 2.0
        return result

    def ours(x: Any, i: Any, v: Any) -> Any:
        return program(ph, x, i, v)

    arrays = (array, np.array([1, 0]), np.resize(array, (2, 2, 3, 2, 3)) * 0.5)
    step = ph.jit(ours) if captured else ours
    with device:
        found = [step(*(ph.tensor(a, device=device) for a in arrays)).numpy() for _ in range(2)]
    expected = program(torch, *map(torch.tensor, arrays)).numpy()
    for values in found:
        np.testing.assert_allclose(values, expected, rtol=1e-5)
