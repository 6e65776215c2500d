"""Code above the ops checks traits; only a few places may refer to an op by its
name."""

from __future__ import annotations

from pathlib import Path

import pytest
from survey import Tree, name_tests, this_tree

MEANT = {
    "hal/compile/capture/absent_gradients.py": "a sum without one of its terms is the other one",
    "hal/compile/op_plugins.py": "finds the op that a package offers under a name",
    "hal/compile/passes/simplify/algebra.py": "identities are about single ops",
    "hal/compile/passes/simplify/attention_masks.py": "masks are joined, selected and repeated by single ops",
    "hal/compile/passes/simplify/logit_casts.py": "moves casts, which are exact, past ops that copy elements",
    "hal/compile/passes/simplify/known_values.py": "a known value may come from another device",
    "hal/compile/passes/simplify/constant_folding.py": "full is the one op whose elements are one literal",
    "hal/compile/passes/simplify/canonical_views.py": "windows and copies are single ops, which it replaces by others",
    "hal/compile/passes/simplify/saved_variances.py": "undoes one formula of PyTorch's backward pass, op by op",
    "hal/compile/passes/layout/channels_last.py": "of convolutions' operands only some are images",
    "hal/compile/passes/layout/pad_gemm.py": "pads the logits that linear makes and cross entropy reads",
    "hal/compile/passes/layout/propagate_layouts.py": "undoes permutations and reshapes, each in its own way",
    "hal/compile/passes/layout/sink_reshapes.py": "moves reshapes",
    "hal/compile/passes/fuse/batch_statistics.py": "joins convolutions, and products that equal them, to kinds of batch norm",
    "hal/compile/passes/fuse/expressions.py": "reads sums, products, powers and views by what they compute",
    "hal/compile/passes/fuse/epilogues.py": "looks through reshapes, and for the root op that a declaration names",
    "hal/compile/passes/fuse/join_products.py": "joins kinds of products, which it reads by their operands, and one norm",
    "hal/compile/passes/fuse/levels.py": "looks for the products that declarations of epilogues name",
    "hal/compile/passes/fuse/lists.py": "a group of pointwise ops may end with a reduction, which its parameters tell",
    "hal/compile/scheduler/buffers.py": "a group of pointwise ops may end with a reduction, and one on lists has positions",
}
"""The exceptions, with their reasons."""


@pytest.fixture(scope="module")
def comparisons() -> list[str]:
    """The comparisons of ops by name in the installed tree, each with its file and line."""
    return [c for c in name_tests(this_tree()) if not c.startswith("hal/testing/")]


def test_ops_are_asked_for_traits_rather_than_names(comparisons: list[str]) -> None:
    assert [c for c in comparisons if c.partition(":")[0] not in MEANT] == []


def test_every_exception_is_still_needed(comparisons: list[str]) -> None:
    assert set(MEANT) - {c.partition(":")[0] for c in comparisons} == set()


@pytest.mark.parametrize(
    "text",
    ['x = node.op.name == "relu"', "x = op.name in NAMES", 'x = node.op is not OPS["reshape"]', 'x = OPS["add"] is op'],
)
def test_comparisons_by_name_are_seen(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hal" / "passes" / "some.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert len(name_tests(Tree(tmp_path))) == 1
