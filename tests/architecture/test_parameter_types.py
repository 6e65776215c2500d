"""Parameters have types from which a reader learns: the share with `Any` in their type only falls."""

from __future__ import annotations

import ast
from pathlib import Path

from survey import Tree, this_tree

CEILING = 0.095
"""Maximum share of annotated parameters whose type contains `Any`."""


def _share_of_any(tree: Tree) -> float:
    types = [ast.unparse(a.annotation) for f in tree.functions("") for a in f.args.args if a.annotation is not None]
    return sum("Any" in t for t in types) / max(1, len(types))


def test_few_parameters_contain_any_in_their_type() -> None:
    share = _share_of_any(this_tree())
    assert share <= CEILING, (
        f"{share:.2%} of the parameters have `Any` in their type: name the type, or give it an alias"
    )


def test_parameters_with_any_are_counted(tmp_path: Path) -> None:
    (tmp_path / "hal").mkdir()
    (tmp_path / "hal" / "a.py").write_text("def f(x: int, y: list[Any], z, *args: Any) -> Any: ...")
    assert _share_of_any(Tree(tmp_path)) == 0.5
