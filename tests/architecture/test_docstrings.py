"""Public names have docstrings, their own ones or from the method that they override or implement."""

from __future__ import annotations

from pathlib import Path

from survey import Tree, this_tree, undocumented


def test_public_names_are_documented() -> None:
    """Left out are lowering, whose functions are called only through tables, and entries of the tables of ATen's and ONNX's
    ops, which PyTorch documents under the names that they declare."""
    missing, count = undocumented(this_tree())
    assert count > 2000
    tables = ("/lowering/", "frontend/torch/table/", "frontend/onnx/table/")
    assert [name for name in missing if not any(table in name for table in tables)] == []


def test_docstrings_are_inherited_and_missing_ones_are_found(tmp_path: Path) -> None:
    (tmp_path / "hal").mkdir()
    (tmp_path / "hal" / "contract.py").write_text(
        "class Backend(Protocol):\n"
        "    def allocate(self):\n        'Doc.'\n"
        "    def deallocate(self):\n        'Doc.'\n"
        "class Flush(Protocol):\n"
        "    def flush(self):\n        'Doc.'\n"
        "class Whole:\n"
        "    'Implements both.'\n"
        "    def allocate(self): ...\n"
        "    def deallocate(self): ...\n"
        "    def flush(self): ...\n"
        "    def other(self): ...\n"
        "class Child(Whole):\n"
        "    'Inherits.'\n"
        "    def flush(self): ...\n"
        "class Half:\n"
        "    'Has one of two methods.'\n"
        "    def allocate(self):\n"
        "        def inner(): ...\n"
        "class _Private:\n"
        "    def method(self): ...\n"
    )
    missing, count = undocumented(Tree(tmp_path))
    assert {name.rpartition(" ")[2] for name in missing} == {"Backend", "Flush", "Whole.other", "Half.allocate"}
    assert count == 14
