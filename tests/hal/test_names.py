"""Names of an op are declared with it only: functions, methods, in-place methods, packages and stubs are derived from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from new_ops import run_with

import polyhal
from polyhal.hal.ops import FUNCTIONS, LINALG, METHODS, NUMPY, PUBLIC, SPECIAL
from polyhal.hal.ops.composite import EXTENSIONS

DECLARATION = '''
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Names
from polyhal.hal.ops.pointwise.elementwise import elementwise

demo_double = elementwise(
    "demo_double", lambda x: x + x, "`2 * x`.", decompose=lambda x: x + x,
    names=Names("demo_twice", "special.", "special.demo_two", "numpy.demo_dos"),
)


@composite("demo_moved", "linalg.", in_place=True)
def demo_shift(x, by=1):
    """`x + by`."""
    return x + by
'''
"""A new file of ops."""

USE = """
import polyhal
from polyhal.hal.ops import NUMPY
from tools import stubs
from tools.coverage_columns import listed_ops

x = polyhal.tensor([1.0, 2.0], device="numpy")
for name in ("demo_double", "demo_twice"):
    assert getattr(polyhal, name)(x).tolist() == getattr(x, name)().tolist() == [2, 4]
    assert getattr(x.clone(), f"{name}_")().tolist() == [2, 4]
for name in ("demo_shift", "demo_moved"):
    assert getattr(polyhal, name)(x, 3).tolist() == getattr(x, name)(by=3).tolist() == [4, 5]
    assert getattr(x.clone(), f"{name}_")(3).tolist() == [4, 5]
for name in ("demo_double", "demo_two"):
    assert getattr(polyhal.special, name)(x).tolist() == [2, 4]
    assert name in polyhal.special.__all__
assert polyhal.linalg.demo_shift is polyhal.demo_moved
assert "demo_shift" in polyhal.linalg.__all__
assert NUMPY["demo_dos"] is polyhal.demo_double
assert "demo_double" in [op.name for op in listed_ops()]
for name in ("demo_double", "demo_twice", "demo_shift", "demo_moved"):
    for stub, suffix in ((stubs.functions_stub(), ""), (stubs.methods_stub(), ""), (stubs.in_place_stub(), "_")):
        assert f"def {name}{suffix}(" in stub
"""


def test_one_declaration_makes_all_names_of_a_new_op(tmp_path: Path) -> None:
    run_with(DECLARATION, USE, tmp_path)


ALIASES = [
    (name, own) for own, f in (FUNCTIONS | EXTENSIONS).items() for name in f.__names__.also if not name.endswith(".")
]


def test_a_further_name_means_one_function() -> None:
    further = [name for name, _ in ALIASES]
    assert len(set(further)) == len(further)
    assert not set(further) & FUNCTIONS.keys()


@pytest.mark.parametrize(("alias", "name"), ALIASES)
def test_an_alias_is_the_same_function(alias: str, name: str) -> None:
    package, _, last = alias.rpartition(".")
    table = {"": PUBLIC, "linalg": LINALG, "special": SPECIAL, "numpy": NUMPY}[package]
    assert table[last] is (EXTENSIONS.get(name) or FUNCTIONS[name])
    if not package:
        assert getattr(polyhal, last) is getattr(polyhal, name)
        assert (last in METHODS) == (name in METHODS)
