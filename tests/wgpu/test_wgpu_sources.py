"""The shader files themselves: each renders and compiles by itself with its defaults, with and without every extra feature."""

from __future__ import annotations

from typing import Any

import pytest

from polyhal.backends.common.codegen.expressions import EXPRESSIONS, RegisterClass, render
from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.wgpu.dialect import WGSLDialect
from polyhal.backends.wgpu.native import compile_module
from polyhal.backends.wgpu.shader import environment
from polyhal.backends.wgpu.signature import read_signature
from polyhal.hal import dtypes

SHADERS = [name for name in SourceFolder("polyhal.shaders.wgsl").names() if name.endswith(".wgsl")]


@pytest.mark.parametrize("name", SHADERS)
def test_compiles_with_its_defaults(device: Any, name: str) -> None:
    text = environment().get_template(name).render()
    compile_module(device.backend.runtime.device, text, name, checked=True)


@pytest.mark.parametrize("name", SHADERS)
def test_compiles_with_the_features_of_the_device(device: Any, name: str) -> None:
    runtime = device.backend.runtime
    compile_module(runtime.device, runtime.pipelines.render(name.removesuffix(".wgsl"), {}), name)


def test_the_name_of_a_shader_leads_to_one_file() -> None:
    """`explain` and the profiler print it: the path with `_` for `/`."""
    names = [read_signature(name.removesuffix(".wgsl"), "").kernel for name in SHADERS]
    assert len(set(names)) == len(names)


def test_every_float_function_of_the_expressions_exists() -> None:
    library = environment().get_template("lib/float_functions.wgsl").render()
    named: set[str] = set()

    class Noting(WGSLDialect):
        def function(self, name: str, cls: RegisterClass) -> str:
            named.add(super().function(name, cls))
            return name

    for expression in EXPRESSIONS.values():
        if "float" in expression.templates:
            params = dict.fromkeys(expression.params, "0.0")
            render(expression, dtypes.float32, ["x", "y", "z"][: expression.arity], params, Noting())
    assert len(named) > 20
    assert not [f for f in sorted(named) if f"fn {f}(" not in library]
