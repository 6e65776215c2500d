"""Lowering and kernels have the same rooms on every backend, and every kernel file is in use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.kernels_index import BACKENDS, KernelFolders, entries, kernel_names

ROOT = Path(__file__).parents[2]
OPENCL, *OTHERS = BACKENDS
every_backend = pytest.mark.parametrize("folders", BACKENDS, ids=lambda f: f.title)


def rooms(folder: str, suffix: str) -> set[str]:
    """Return the folders that hold files of a kind, other than a Python package's own file."""
    return {p.parent.name for p in (ROOT / folder).glob(f"*/*{suffix}") if p.name != "__init__.py"}


@every_backend
def test_kernels_and_their_lowering_have_the_same_rooms(folders: KernelFolders) -> None:
    kernels = rooms(folders.kernels, folders.suffix) - {"lib"}
    assert rooms(folders.lowering, ".py") - {"support"} == kernels


@pytest.mark.parametrize("folders", OTHERS, ids=lambda f: f.title)
def test_every_backend_has_the_rooms_of_opencl(folders: KernelFolders) -> None:
    """A room that another backend lacks is one whose ops decompose there."""
    ours, theirs = rooms(folders.lowering, ".py"), rooms(OPENCL.lowering, ".py")
    assert ours <= theirs
    assert theirs - ours <= {"collective", "linear_algebra", "recurrent", "sort"}


@every_backend
def test_the_folder_of_a_room_holds_no_other_folder(folders: KernelFolders) -> None:
    for base in (folders.lowering, folders.kernels):
        assert [p for p in (ROOT / base).glob("*/*/") if p.name != "__pycache__"] == []


@every_backend
def test_every_kernel_file_is_launched_or_imported(folders: KernelFolders) -> None:
    texts = [p.read_text(encoding="utf-8") for p in (ROOT / folders.kernels).rglob(f"*{folders.suffix}")]
    imported = {name for text in texts for name in re.findall(r'\{%-? (?:import|include|extends) "(\S+)\.wgsl"', text)}
    _, launched = entries(ROOT, folders)
    assert set(kernel_names(ROOT, folders)) - set(launched) - imported == set()


def test_the_index_finds_an_ops_kernels_through_helpers_and_tables_of_builders() -> None:
    _, kernels = entries(ROOT, OPENCL)
    assert kernels["rowwise/softmax"].ops == {"softmax": "rowwise", "log_softmax": "rowwise"}
    assert kernels["gemm/split_k_reduce"].ops["matmul"] == "gemm"
    assert kernels["pointwise/copies"].ops.keys() == {"copies", "concat"}
    assert {"foreach_elementwise"} <= kernels["pointwise/foreach"].ops.keys()
    assert {"add", "exp"} <= kernels["pointwise/elementwise"].ops.keys()


def strings(folder: Path) -> set[str]:
    """Return every string constant in the modules of a folder."""
    nodes = (node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize("room", sorted(rooms(OPENCL.lowering, ".py") - {"support"}))
def test_kernels_are_launched_from_the_room_of_their_name(room: str) -> None:
    """Names that all backends share, such as those of optimizers, may be in backends/common/problems instead."""
    named = strings(ROOT / OPENCL.lowering / room) | strings(ROOT / "backends/common/problems")
    kernels = {path.stem for path in (ROOT / OPENCL.kernels / room).glob("*.cl")}
    assert {k for k in kernels if f"{room}/{k}" not in named and k not in named} == set()


def test_kernels_of_products_have_a_module_of_their_name() -> None:
    """A further kernel of a strategy starts with its name: split_k_reduce is launched by split_k.py."""
    modules = {path.stem for path in (ROOT / OPENCL.lowering / "gemm").glob("*.py")} - {"__init__"}
    kernels = {path.stem for path in (ROOT / OPENCL.kernels / "gemm").glob("*.cl")}
    assert {k for k in kernels if not any(k == m or k.startswith(f"{m}_") for m in modules)} == set()
