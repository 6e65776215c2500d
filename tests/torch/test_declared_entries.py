"""Entries of the table that follow from declarations of ops."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from new_ops import run_with

import polyhal.torch  # noqa: F401  registers the device
from polyhal.hal.ops import DECLARED, OPS
from polyhal.hal.ops.keywords import SPELLINGS
from polyhal.torch.kernels import overload
from polyhal.torch.registration import HANDLED, TABLE

FROM_DECLARATIONS = {
    f"{f.__name__}{name}" if name.startswith(".") else name if "." in name else f"{name}.default": f
    for f in DECLARED
    for name in f.__names__.aten  # type: ignore[attr-defined]
}
OURS = {theirs: ours for ours, theirs in SPELLINGS.items()}
"""Polyhal's spelling of PyTorch's keywords. The default is that of ours."""
DECLARATION = """
from polyhal.hal.ops.declare import Names
from polyhal.hal.ops.pointwise.elementwise import elementwise

demo_double = elementwise(
    "demo_double", lambda x: x + x, "`2 * x`.", decompose=lambda x: x + x, names=Names(aten="deg2rad")
)
"""
USE = """
import torch

import polyhal.torch

polyhal.set_default_device("numpy")
x = torch.tensor([1.0, 2.0], device="polyhal")
assert torch.deg2rad(x).tolist() == [2, 4]
assert x.deg2rad_().tolist() == [2, 4]
assert not polyhal.torch.report().on_cpu
"""


def test_a_new_op_with_a_name_of_aten_runs_on_the_device(tmp_path: Path) -> None:
    run_with(DECLARATION, USE, tmp_path)


@pytest.mark.parametrize("name", FROM_DECLARATIONS)
def test_a_declared_overload_takes_the_arguments_of_the_function(name: str) -> None:
    op: Any = overload(name)
    if op is None:  # of an older PyTorch: test_fallback.py lists them
        return
    arguments = [a for a in op._schema.arguments if a.name not in HANDLED]
    parameters = inspect.signature(FROM_DECLARATIONS[name]).parameters
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_position = [a for a in arguments if not a.kwarg_only]
    assert len(by_position) <= len(positional)
    for argument, parameter in zip(by_position, positional, strict=False):
        if argument.has_default_value():
            assert argument.default_value == parameter.default, argument.name
    for argument in arguments:
        if argument.kwarg_only:
            assert argument.name in parameters
            own = OURS.get(argument.name, "")
            default = parameters[own if own in parameters else argument.name].default
            assert not argument.has_default_value() or argument.default_value == default, argument.name


ELEMENTWISE = [
    op.name
    for op in OPS
    if op.promotion not in (None, "cast") and len(op.schema.inputs) == 1 and not op.schema.params and op.public
]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_ops_have_the_overloads_of_their_names(name: str) -> None:
    op = OPS[name]
    for own in (name, *op.names.also):
        found: Any = overload(f"{own}.default")
        if found is not None and not torch._C._dispatch_has_kernel_for_dispatch_key(
            found.name(), "CompositeImplicitAutograd"
        ):
            assert f"{own}.default" in TABLE
