"""Who may import whom, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from survey import PACKAGES, Tree, this_tree

SHARED_LANGUAGES = {
    "polyhal.backends.opencl": ("polyhal.backends.opencl_c",),
    "polyhal.backends.cuda": ("polyhal.backends.opencl_c",),
}
"""Kernel libraries that backends of several drivers share."""
LONGEST = 400
"""Lines. A file that is longer has more than one concept."""


def imports(tree: Tree, path: Path) -> Iterator[tuple[int, str]]:
    """Return lines and absolute names of the polyhal modules that a file imports, at any depth and for types, too."""
    module = tree.module(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in tree.nodes[path]:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{a.name}" if name in PACKAGES.values() else name) for a in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def forbidden(tree: Tree, path: Path) -> list[str]:
    """Return the imports of a file that its layer does not allow."""
    folder = path.relative_to(tree.root).parts[0]
    testing = path.is_relative_to(tree.root / "hal" / "testing")
    bad = []
    for line, name in imports(tree, path):
        if not within(name, "polyhal"):
            continue
        public = not any(within(name, p) for p in ("polyhal.hal", "polyhal.backends", "polyhal.shaders"))
        if folder == "hal":
            wrong = within(name, "polyhal.backends") or (public and not testing)
        elif folder == "backends":
            own = ".".join(tree.module(path).split(".")[:3])
            allowed = (own, "polyhal.backends.common", *SHARED_LANGUAGES.get(own, ()))
            wrong = public or (within(name, "polyhal.backends") and not any(within(name, p) for p in allowed))
        elif folder == "shaders":
            wrong = True
        else:
            wrong = within(name, "polyhal.backends") or within(name, "polyhal.shaders")
        if wrong:
            bad.append(f"{path.relative_to(tree.root)}:{line} imports {name}")
    return bad


def test_layering() -> None:
    tree = this_tree()
    assert len(tree.files) > 800
    assert [line for path in tree.files for line in forbidden(tree, path)] == []


def test_the_layering_test_finds_something(tmp_path: Path) -> None:
    for folder, text in [
        ("hal", "from polyhal.backends import numpy"),
        ("backends/numpy", "import polyhal.tensor"),
        ("frontend", "def f():\n    import polyhal.backends.opencl"),
    ]:
        file = tmp_path / folder / "bad.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        assert forbidden(Tree(tmp_path), file)


def test_every_file_has_a_docstring() -> None:
    tree = this_tree()
    silent = [p for p, parsed in tree.parsed.items() if tree.files[p].strip() and not ast.get_docstring(parsed)]
    assert silent == [], "files without a docstring"


def test_files_are_short() -> None:
    tree = this_tree()
    lengths = {str(p.relative_to(tree.root)): len(text.splitlines()) for p, text in tree.files.items()}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_no_cache_is_global() -> None:
    """Mutable module state that functions fill would outlive its device."""
    found = []
    for path, nodes in this_tree().nodes.items():
        for node in nodes:
            if isinstance(node, ast.Global):
                found.append(f"{path.relative_to(this_tree().root)}:{node.lineno} global {', '.join(node.names)}")
    assert not found


def test_no_exception_is_swallowed() -> None:
    found = []
    for path, nodes in this_tree().nodes.items():
        for node in nodes:
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            ):
                silent = all(
                    isinstance(s, ast.Pass | ast.Continue)
                    or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
                    for s in node.body
                )
                if silent:
                    found.append(f"{path.relative_to(this_tree().root)}:{node.lineno}")
    assert not found
