"""`explain` of a function composed of ops lists the ops."""

from __future__ import annotations

import pytest

import polyhal as ph
from polyhal.hal.ops import OPS
from polyhal.hal.system.diagnostics.called_ops import called_ops, function_named


@pytest.mark.parametrize(
    ("name", "op"),
    [("sort", "sort_pairs"), ("eigh", "symmetric_spectrum"), ("fft", "fourier"), ("kthvalue", "sort_pairs")],
)
def test_the_ops_of_a_function_are_named(name: str, op: str) -> None:
    function = function_named(name)
    assert function is not None
    ops = called_ops(function)
    assert op in ops
    assert set(ops) <= set(OPS.names())
    with pytest.raises(
        KeyError, match=rf"'{name}' is a function composed of ops; explain the ops that it calls: .*{op}"
    ):
        ph.explain(name, "numpy")
    assert ph.explain(op, "numpy")


def test_unknown_names_have_close_matches() -> None:
    with pytest.raises(KeyError, match="did you mean topk"):
        ph.explain("topkk", "numpy")
