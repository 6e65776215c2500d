"""Kernels with wrong declarations raise errors with the kernel's name, at declaration or when the wrong part runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import AutogradError, KernelBuildError
from polyhal.hal.system.discovery.registry import registry

SOURCE = "__kernel void NAME(__global const float* x, __global float* out) { out[get_global_id(0)] = 2 * x[get_global_id(0)]; }"


def _kernel(name: str, **options: Any) -> Any:
    return ph.kernel(name, numpy=lambda x: 2 * np.asarray(x), **options)


@pytest.mark.parametrize("included", ['"a.h"', "<math.h>", '"self.cl"'])
def test_a_source_that_includes_files_is_refused(included: str) -> None:
    pytest.importorskip("pyopencl")
    if not registry().probe("opencl"):
        pytest.skip("no OpenCL device")
    double = _kernel("self", opencl=f"#include {included}\n" + SOURCE.replace("NAME", "self"))
    with pytest.raises(KernelBuildError, match=r"includes .*; expected (a text without|files that do not include)"):
        double(ph.ones(3, device="opencl"))


@pytest.mark.parametrize("language", ["opencl", "wgsl"])
@pytest.mark.parametrize("source", [b"bytes", 3, ["list"]])
def test_a_source_must_be_text(language: str, source: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"\[double\] the {language} source is a {type(source).__name__}; expected a str"
    ):
        _kernel("double", **{language: source})


@pytest.mark.parametrize(
    ("gradient", "problem"),
    [
        (lambda g: (g, g), "returned 2 values; expected 1"),
        (lambda g: 3.0, "gradient of x is a float"),
        (lambda g: np.ones(3), "gradient of x is a ndarray"),
        (lambda g: ph.ones(3, device="numpy:no_f64"), "gradient of x is on numpy:no_f64"),
    ],
    ids=["count", "number", "array", "device"],
)
def test_a_gradient_that_returns_something_else_is_refused(gradient: Any, problem: str) -> None:
    x = ph.ones(3, device="numpy", requires_grad=True)
    result = _kernel("double", gradient=gradient)(x)
    with pytest.raises(AutogradError, match=rf"\[double\].*{problem}"):
        result.sum().backward()


def test_a_gradient_of_unknown_names_is_refused_when_it_is_declared() -> None:
    with pytest.raises(
        ValueError, match=r"\[double\] the gradient takes slope; expected some of g, g_out, needs, out, x"
    ):
        _kernel("double", gradient=lambda g, slope: g)
    with pytest.raises(TypeError, match="no Python function"):
        _kernel("double", gradient=5)


def test_gradients_may_be_a_list(numpy_device: ph.Device) -> None:
    x = ph.ones(3, requires_grad=True)
    _kernel("double", gradient=lambda g: [g * 2])(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_a_gradient_may_have_a_function_for_each_input(numpy_device: ph.Device) -> None:
    def weighted(gradient: Any) -> Any:
        return ph.kernel("weighted", numpy=lambda x, y: np.asarray(x) * np.asarray(y), gradient=gradient)

    x, y = (ph.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    weighted((lambda g, y: g * y, lambda g, x: g * x * 3))(x, y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([1, 2], [3, 6])
    with pytest.raises(AutogradError, match="gradient of y is a float"):
        weighted((None, lambda g: 1.0))(x, y).sum().backward()
    with pytest.raises(ValueError, match="has 1 functions; expected one for each of x, y"):
        weighted((lambda g: g,))
