"""Makes a PyTorch importable that was installed without CUDA's libraries: `python tests/torch/without_cuda.py FOLDER`.

PyPI's PyTorch for Linux is built for CUDA, whose libraries are several GB. Without a GPU none of their functions does anything,
but the loader wants all of them when PyTorch is imported. This makes one library that has them, under all the names that are
missing beside PyTorch's own. Each function reports that there is no device, so `torch.cuda.is_available()` is False.

Needs gcc and binutils. Does nothing where no library is missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_LIBRARIES = r"\[(lib(?:cu|nccl|nv)[^\]]*)\]"
_FUNCTIONS = re.compile(r"cu[A-Z]|cu[a-z]+[A-Z]|nccl|nv[a-z]+_?")
"""The functions of libraries without versions."""
_SYSTEM = re.compile(r"GLIBC|GCC|CXXABI|OMP|GOMP")
"""Versions of the system's libraries."""
_NO_DEVICE = 100
"""cudaErrorNoDevice, and an error to the other libraries, too."""
_STAND_IN = "libwithout_cuda.so"


def complete(folder: Path) -> list[str]:
    """Put what is missing beside the libraries in a folder, and return its names."""
    libraries = sorted(p for p in folder.glob("*.so*") if not p.is_symlink() and p.name != _STAND_IN)
    needed = {name for p in libraries for name in re.findall(_LIBRARIES, _output("readelf", "-d", p))}
    missing = sorted(needed - {p.name for p in libraries})
    if missing:
        _build(_undefined(libraries), folder / _STAND_IN)
    for name in missing:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(_STAND_IN)
    return missing


def _undefined(libraries: list[Path]) -> dict[str, set[str]]:
    """The functions of CUDA's libraries that are called, by version."""
    found: dict[str, set[str]] = defaultdict(set)
    for library in libraries:
        for symbol in re.findall(r" U (\S+)", _output("nm", "-D", "--undefined-only", library)):
            name, _, version = symbol.partition("@")
            if not _SYSTEM.match(version) if version else _FUNCTIONS.match(name):
                found[version].add(name)
    return found


def _build(functions: dict[str, set[str]], library: Path) -> None:
    """Make a library of functions that return an error."""
    names = sorted(set().union(*functions.values()))
    versions = [f"{v} {{ {'; '.join(sorted(f))}; }};\n" for v, f in functions.items() if v]
    with tempfile.TemporaryDirectory() as work:
        code, script = Path(work, "functions.c"), Path(work, "versions")
        code.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in names), encoding="utf-8")
        script.write_text("".join(versions), encoding="utf-8")
        _output("gcc", "-shared", "-nostdlib", "-w", "-o", library, code, f"-Wl,--version-script={script}")


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    print("stand-ins for", ", ".join(complete(Path(sys.argv[1], "torch", "lib"))) or "nothing")
