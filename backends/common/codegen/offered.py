"""Optional members of the contract that follow from the table of expressions."""

from __future__ import annotations

from collections.abc import Collection

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES


def offered(names: Collection[str]) -> frozenset[str]:
    """Return the members among `names` with a formula without parameters."""
    formulas = {name: EXPRESSIONS.get(OP_NAMES.get(name, name)) for name in names}
    return frozenset(name for name, formula in formulas.items() if formula is not None and not formula.params)
