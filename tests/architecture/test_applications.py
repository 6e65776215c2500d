"""Applications are clients: they import public names only, and the library neither imports nor needs them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from layers import arrows, clients, cycles
from public_modules import CONTRACT, LIBRARY
from survey import Tree, this_tree

COMMANDS = "polyhal.commands"
"""Package of the commands of all applications. Each is a part of its application."""


def applications(tree: Tree) -> list[str]:
    """Return the packages of applications."""
    return [
        f"polyhal.{path.name}" for path in sorted((tree.root / "apps").iterdir()) if (path / "__init__.py").exists()
    ]


def private_imports(tree: Tree, path: Path) -> Iterator[str]:
    """Yield the imports of names that are neither public nor of the file's own application."""
    apps = applications(tree)
    own = apps if tree.module(path).startswith(COMMANDS) else [".".join(tree.module(path).split(".")[:2])]
    public = {*CONTRACT, *LIBRARY, *apps}
    for node in tree.nodes[path]:
        if isinstance(node, ast.Import):
            modules = [(a.name, "") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [(node.module or "", a.name) for a in node.names]
        else:
            continue
        for module, name in modules:
            is_own = any(f"{module}.".startswith(f"{a}.") for a in own)
            if module.split(".")[0] != "polyhal" or is_own or f"{module}.{name}" in public:
                continue
            if module not in public or (name and name not in public_names(importlib.import_module(module))):
                yield f"{path.relative_to(tree.root)}:{node.lineno} imports {name} of {module}"


def private_attributes(tree: Tree, path: Path) -> Iterator[str]:
    """Yield the uses of attributes with an underscore, except for methods of named tuples and a class's own attributes."""
    for node in tree.nodes[path]:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls") and node.attr not in ("_asdict", "_replace", "_fields"):
                yield f"{path.relative_to(tree.root)}:{node.lineno} uses {owner}.{node.attr}"


def public_names(module: ModuleType) -> set[str]:
    """Return the names that a user may import from a public module."""
    return set(getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]))


def imports_of_applications(tree: Tree) -> list[str]:
    """Return the modules of the library that import an application.

    Left out is the lazy name of an application in `polyhal` itself, which type checkers see as an import.
    """
    apps = applications(tree)
    return [
        f"{i.source} imports {i.target}"
        for i in tree.imports
        if any(f"{i.target}.".startswith(f"{a}.") for a in apps)
        and not any(f"{i.source}.".startswith(f"{a}.") for a in apps)
        and (i.source, i.when) != ("polyhal", "typing")
    ]


def test_applications_use_public_names_only() -> None:
    tree = this_tree()
    files = [path for path in tree.files if path.is_relative_to(tree.root / "apps")]
    assert len(files) > 20
    assert [line for path in files for line in (*private_imports(tree, path), *private_attributes(tree, path))] == []


def test_the_library_imports_no_application() -> None:
    assert imports_of_applications(this_tree()) == []


def test_no_applications_import_each_other_in_a_cycle() -> None:
    tree = this_tree()
    found = arrows(tree, "polyhal")
    apps = clients(tree)
    assert cycles(ends for ends in found if set(ends) <= apps) == []


def test_forbidden_imports_are_found(tmp_path: Path) -> None:
    for name, text in {
        "apps/models/__init__.py": "from polyhal.tensor import Tensor\nfrom polyhal import Tensor\nimport polyhal.steps",
        "apps/text/__init__.py": "from polyhal.models.gpt import GPT\nfrom polyhal.hal.errors import message\nGPT._wte",
        "frontend/optim.py": "def f():\n    import polyhal.models",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tree = Tree(tmp_path)
    found = [line.partition(" imports ")[2] for path in tree.files for line in private_imports(tree, path)]
    assert found == ["Tensor of polyhal.tensor", " of polyhal.steps", "GPT of polyhal.models.gpt"]
    assert [line for path in tree.files for line in private_attributes(tree, path)] == [
        "apps/text/__init__.py:3 uses GPT._wte"
    ]
    assert imports_of_applications(tree) == ["polyhal.optim imports polyhal.models"]


def test_the_library_works_without_applications() -> None:
    """A program trains a model, eager and captured, and saves it, while importing an application raises ImportError."""
    code = f"""
import sys, tempfile
for name in {applications(this_tree())}:
    sys.modules[name] = None
import polyhal as ph
from polyhal import nn
ph.set_default_device("numpy")
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = ph.optim.AdamW(model.parameters(), lr=0.05)
loader = ph.data.DataLoader(ph.data.TensorDataset(ph.randn(16, 4), ph.ones(16, 1)), 8)
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
captured = ph.jit(step)
losses = [float(run(x, y).item()) for run in (step, captured, captured, captured) for x, y in loader]
path = tempfile.mkdtemp() + "/model"
ph.save(model, path)
x = ph.ones(1, 4)
print(losses[-1] < losses[0], ph.load(path)(x).item() == model(x).item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True True", done.stderr
