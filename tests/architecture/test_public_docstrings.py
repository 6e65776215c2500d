"""Docstrings of public names say more than the name: shapes or dtypes of tensors, and the errors that are raised.

public_docstrings.py has the criterion. Sentences that are generated from declarations of ops are checked by calls.
"""

from __future__ import annotations

from typing import Any

from public_docstrings import lacks, public

import polyhal
from polyhal.hal import dtypes
from polyhal.hal.errors import PolyhalError, UnsupportedDTypeError
from polyhal.hal.ops import OPS
from polyhal.hal.ops.schema import REQUIRED
from polyhal.nn import GroupNorm
from polyhal.tensor import Tensor


def test_public_docstrings_say_shapes_and_errors() -> None:
    found = {name: lacks(name, value) for name, value in public()}
    assert len(found) > 1000
    assert {name: what for name, what in found.items() if what} == {}, "say this in the docstring"


def test_missing_parts_are_found() -> None:
    def restated(x: Any) -> None:
        """The restated."""

    def formula(x: Any) -> None:
        """`x + 1`."""

    def complete(x: Tensor) -> None:
        """Twice `x`, of any shape. Raises ValueError."""
        raise ValueError

    def silent(x: Tensor) -> None:
        """Twice the argument."""

    assert lacks("restated", restated) == ["more than its name", "shapes"]
    assert lacks("formula", formula) == ["shapes"]
    assert lacks("complete", complete) == []
    assert lacks("silent", silent) == ["shapes"]


def test_errors_that_the_code_raises_are_looked_for_in_the_docstring() -> None:
    undocumented = type("Undocumented", (), {"__doc__": "Something else entirely."})
    undocumented.__module__, undocumented.__qualname__ = GroupNorm.__module__, "GroupNorm"
    assert lacks("Undocumented", undocumented) == ["ValueError"]


def _refuses(function: Any, count: int, kind: dtypes.DType) -> bool:
    operand = polyhal.ones((2,), dtype=kind, device="numpy")
    try:
        function(*[operand] * count)
    except UnsupportedDTypeError:
        return True
    except PolyhalError:
        pass
    return False


def test_docstrings_of_elementwise_ops_name_exactly_the_refused_dtypes() -> None:
    said, wrong = 0, []
    for op in OPS:
        if op.promotion in (None, "cast") or op.schema.optional or REQUIRED in op.schema.params.values():
            continue
        doc = str(op.call.__doc__)
        refused = doc.partition("UnsupportedDTypeError for ")[2].partition(".")[0]
        for word, kind in (("bool", dtypes.bool_), ("floating", dtypes.float32), ("complex", dtypes.complex64)):
            said += 1
            if _refuses(op.call, len(op.schema.inputs), kind) != (word in refused):
                wrong.append(f"{op.name}: {kind.name}")
    assert said > 300
    assert wrong == []
