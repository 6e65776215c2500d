"""The kernel files: each compiles on its own with its defaults, and no text depends on float64."""

from __future__ import annotations

import re
from typing import Any

import pytest

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_UNARY

pytestmark = [pytest.mark.slow, pytest.mark.polyhal_every_case]

KERNELS = [name for name in SourceFolder("polyhal.shaders.opencl").names() if name.endswith(".cl")]
_DOUBLE = re.compile(r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?(?![fF\w.])")
_COMMENT = re.compile(r"//[^\n]*")
_LITERAL = re.compile(r"\bLITERAL\([^)]*\)|#define LITERAL_\w+\(x\).*")
"""A constant of the type REAL."""
_FOLDED = re.compile(r"\bisinf\b|\bisfinite\b|\* 0\.0f|[<>!=]=? INFINITY")
_EXTERN_INLINE = re.compile(r"(?<!\bstatic )\binline\b")


@pytest.mark.parametrize("name", KERNELS)
def test_compiles_alone(device: Any, name: str) -> None:
    text = SourceFolder("polyhal.shaders.opencl").assemble(name, {})
    device.backend.runtime.programs.build(name, text)


@pytest.mark.parametrize("name", KERNELS)
def test_has_no_double_constants(name: str) -> None:
    """A constant without suffix is a double, which many GPUs lack."""
    shaders = SourceFolder("polyhal.shaders.opencl")
    text = _LITERAL.sub(
        "", _COMMENT.sub("", shaders.assemble(name, {}).replace(shaders.shipped("lib/double_functions.h"), ""))
    )
    assert not _DOUBLE.findall(text)


@pytest.mark.parametrize("name", SourceFolder("polyhal.shaders.opencl").names())
def test_kernels_detect_non_finite_values_by_bits(name: str) -> None:
    """Compilers that relax rules by default fold other tests.

    Maxima with the initial value -INFINITY may be compared with it.
    """
    text = _COMMENT.sub("", SourceFolder("polyhal.shaders.opencl").shipped(name))
    assert not _FOLDED.findall(text)


@pytest.mark.parametrize("name", SourceFolder("polyhal.shaders.opencl").names())
def test_inline_functions_are_static(name: str) -> None:
    """In C99 `inline` without `static` provides no definition to link calls to, and it results in invalid SPIR-V."""
    text = _COMMENT.sub("", SourceFolder("polyhal.shaders.opencl").shipped(name))
    assert not _EXTERN_INLINE.findall(text)


def test_every_contract_name_has_an_expression() -> None:
    for name in REQUIRED_UNARY | REQUIRED_BINARY:
        assert OP_NAMES.get(name, name) in EXPRESSIONS, name
