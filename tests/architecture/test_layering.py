"""Who may import whom, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"hal": "polyhal.hal", "backends": "polyhal.backends", "shaders": "polyhal.shaders", "frontend": "polyhal"}
LONGEST = 400
"""Lines. A file that is longer has more than one concept."""


def sources() -> list[Path]:
    return sorted(p for folder in PACKAGES for p in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    parts = [PACKAGES[folder], *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, typing: bool = False) -> Iterator[tuple[int, str]]:
    """Lines and absolute names of the polyhal modules that a file imports, at any depth; `typing` adds TYPE_CHECKING
    blocks.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for n in ast.walk(block)
    }
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if id(node) in hidden and not typing:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{a.name}" if name in PACKAGES.values() else name) for a in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def forbidden(path: Path) -> list[str]:
    """The imports of a file that its layer does not allow."""
    folder = path.relative_to(ROOT).parts[0]
    testing = path.is_relative_to(ROOT / "hal" / "testing")
    bad = []
    for line, name in imports(path, typing=True):
        if not within(name, "polyhal"):
            continue
        public = not any(within(name, p) for p in ("polyhal.hal", "polyhal.backends", "polyhal.shaders"))
        if folder == "hal":
            wrong = within(name, "polyhal.backends") or (public and not testing)
        elif folder == "backends":
            own = ".".join(module_of(path).split(".")[:3])
            wrong = public or (
                within(name, "polyhal.backends")
                and not within(name, own)
                and not within(name, "polyhal.backends.common")
            )
        elif folder == "shaders":
            wrong = True
        else:
            wrong = within(name, "polyhal.backends") or within(name, "polyhal.shaders")
        if wrong:
            bad.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return bad


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_layering(path: Path) -> None:
    assert not forbidden(path)


def test_the_layering_test_finds_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    for folder, text in [
        ("hal", "from polyhal.backends import numpy"),
        ("backends/numpy", "import polyhal.tensor"),
        ("frontend", "def f():\n    import polyhal.backends.opencl"),
    ]:
        file = tmp_path / folder / "bad.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        assert forbidden(file)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_says_what_room_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{path.relative_to(ROOT)} has no docstring"


def test_files_are_short() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in sources()}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_no_cache_is_global() -> None:
    """Mutable module state that functions fill would outlive its device."""
    found = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} global {', '.join(node.names)}")
    assert not found


def test_no_exception_is_swallowed() -> None:
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            ):
                silent = all(
                    isinstance(s, ast.Pass | ast.Continue)
                    or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
                    for s in node.body
                )
                if silent:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found
