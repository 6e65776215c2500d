"""A kernel and the code that launches it find each other by path: shaders/opencl/ROOM and backends/opencl/lowering/ROOM."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "shaders/opencl"
LOWERING = ROOT / "backends/opencl/lowering"
PROBLEMS = ROOT / "backends/common/problems"
"""Names the kernels that all backends have, such as those of optimizers."""
SHARED_KERNELS, SHARED_LOWERING = "lib", "support"


def rooms(folder: Path, shared: str) -> set[str]:
    """Return the names of the rooms in a folder, without the one that all share."""
    return {p.name for p in folder.iterdir() if p.is_dir() and any(p.glob("*.*"))} - {shared, "__pycache__"}


def strings(room: Path) -> set[str]:
    """Return every string constant in the modules of a room."""
    nodes = (node for path in room.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize(("language", "backend"), [("opencl", "opencl"), ("wgsl", "wgpu")])
def test_kernels_and_lowering_have_the_same_rooms(language: str, backend: str) -> None:
    kernels, lowering = ROOT / "shaders" / language, ROOT / "backends" / backend / "lowering"
    assert rooms(kernels, SHARED_KERNELS) == rooms(lowering, SHARED_LOWERING) != set()


@pytest.mark.parametrize("room", sorted(rooms(KERNELS, SHARED_KERNELS)))
def test_kernels_are_launched_from_the_room_of_their_name(room: str) -> None:
    named = strings(LOWERING / room) | strings(PROBLEMS)
    kernels = {path.stem for path in (KERNELS / room).glob("*.cl")}
    assert {k for k in kernels if f"{room}/{k}" not in named and k not in named} == set()


def test_kernels_of_products_have_a_module_of_their_name() -> None:
    """A further kernel of a strategy starts with its name: split_k_reduce is launched by split_k.py."""
    modules = {path.stem for path in (LOWERING / "gemm").glob("*.py")} - {"__init__"}
    kernels = {path.stem for path in (KERNELS / "gemm").glob("*.cl")}
    assert {k for k in kernels if not any(k == m or k.startswith(f"{m}_") for m in modules)} == set()
