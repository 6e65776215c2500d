"""Install PyTorch without CUDA: `python tests/torch/without_cuda.py torch==2.13.0 [--target FOLDER]`.

PyPI's PyTorch for Linux on x86-64 is built for CUDA and needs 5 GB of NVIDIA's libraries, although the tests use it on the
processor only. This installs the wheel without the libraries that it depends on and removes its own CUDA code. The loader
still resolves every symbol of both when PyTorch is imported, so one small library defines them under all the missing names:
functions return an error, and `torch.cuda.is_available()` is False. A wheel that is built for the processor is installed
unchanged, and so is PyTorch on every other platform.

Needs pyelftools and a C compiler. Without a compiler, zig's is installed into a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection

_FOR_CUDA = re.compile(r"Requires-Dist: (cuda-|nvidia-|triton)")
"""Packages that only a GPU of NVIDIA's needs."""
_CUDA_CODE = ("libtorch_cuda*.so", "libtorch_nvshmem.so")
"""PyTorch's own libraries that run on a GPU."""
_NVIDIA = re.compile(r"lib(cu|nccl|nv)")
"""Libraries that the driver and CUDA's packages bring."""
_FUNCTIONS = re.compile(r"cu[A-Z]|cu[a-z]+[A-Z]|nccl|nv[a-z]+_?")
"""Functions of NVIDIA's libraries that have no symbol versions."""
_SYSTEM = re.compile(r"GLIBC|GCC|CXXABI|OMP|GOMP|LIBC")
"""Symbol versions of the system's libraries."""
_NO_DEVICE = 100
"""cudaErrorNoDevice; the other libraries treat it as an error, too."""
_STAND_INS = ("libno_nvidia.so", "libno_cuda_code.so")
"""Names for NVIDIA's libraries and PyTorch's CUDA code. The first is loaded before the C++ library, which the second needs."""
_TYPE_INFO = "_ZTI"
_TYPE_INFO_VTABLE = "_ZTVN10__cxxabiv117__class_type_infoE"
_CONSTRUCTOR = re.compile(r"_Z.*C[12]E")
_PRELUDE = f"""
extern char {_TYPE_INFO_VTABLE}[];
static char memory[512];
static void *no_function(void) {{ return memory; }}
static struct {{ void *table; const char *name; }} no_type = {{ {_TYPE_INFO_VTABLE} + 16, "12without_cuda" }};
static void *no_class[64] = {{ 0, &no_type, [2 ... 63] = no_function }};
"""
"""A table of virtual functions in the layout of the Itanium C++ ABI, for the objects that an import of PyTorch makes."""


class Symbol(NamedTuple):
    """A dynamic symbol that a library needs or defines."""

    name: str
    version: str
    defined: bool
    is_object: bool


def install(requirement: str, target: Path | None) -> None:
    """Install PyTorch and the packages that it needs on a processor. A target folder receives only PyTorch."""
    _pip("--no-deps", *(("--no-cache-dir", "--target", str(target)) if target else ()), requirement)
    site = target or Path(sysconfig.get_path("platlib"))
    _require_no_cuda(site)
    if target is None:
        _pip(*(r for r in importlib.metadata.requires("torch") or () if "extra ==" not in r))
    removed = remove_cuda(site / "torch" / "lib") if sys.platform == "linux" else []
    if removed:
        _deny_cuda(site / "torch" / "backends" / "cuda" / "__init__.py")
    print("PyTorch without", ", ".join(removed) or "changes: it is not built for CUDA")


def _deny_cuda(module: Path) -> None:
    """Make `torch.backends.cuda.is_built()` False: PyTorch replaces CUDA kernels when it is imported, if it is True."""
    text = module.read_text(encoding="utf-8")
    module.write_text(f"{text}\n\ndef is_built():\n    return False\n", encoding="utf-8")


def _require_no_cuda(site: Path) -> None:
    """Remove CUDA's packages from the requirements of the installed PyTorch, or pip would install them later."""
    for metadata in site.glob("torch-*.dist-info/METADATA"):
        lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
        metadata.write_text("".join(line for line in lines if not _FOR_CUDA.match(line)), encoding="utf-8")


def remove_cuda(folder: Path) -> list[str]:
    """Remove CUDA code from a folder of libraries, define the symbols that are now missing, and return the missing names."""
    removed = [path for pattern in _CUDA_CODE for path in folder.glob(pattern) if not path.is_symlink()]
    kept = [p for p in folder.glob("*.so*") if p not in removed and not p.is_symlink() and p.name not in _STAND_INS]
    nvidia = sorted(n for n in {n for p in kept for n in _needed(p)} if _NVIDIA.match(n) and not (folder / n).exists())
    own = {path.name: {s.name: s for s in _symbols(path) if s.defined} for path in removed}
    if not nvidia and not removed:
        return []
    defined, undefined = _interface(kept)
    of_cuda_code = {name: symbol for symbols in own.values() for name, symbol in symbols.items()}
    lost = [of_cuda_code[s.name] for s in undefined if s.name in of_cuda_code and s.name not in defined]
    missing = [s for s in undefined if s.name not in defined and s.name not in of_cuda_code and _is_of_nvidia(s)]
    for names, symbols, stand_in in zip((nvidia, list(own)), (missing, lost), _STAND_INS, strict=True):
        _build(symbols, folder / stand_in)
        for name in names:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(stand_in)
    return [*nvidia, *own]


def _interface(libraries: list[Path]) -> tuple[set[str], list[Symbol]]:
    """Return the names that the libraries define, and the symbols that they need."""
    symbols = [s for path in libraries for s in _symbols(path)]
    return {s.name for s in symbols if s.defined}, [s for s in symbols if not s.defined]


def _is_of_nvidia(symbol: Symbol) -> bool:
    return not _SYSTEM.match(symbol.version) if symbol.version else bool(_FUNCTIONS.match(symbol.name))


def _needed(library: Path) -> list[str]:
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        return [tag.needed for tag in section.iter_tags("DT_NEEDED")] if section else []


def _symbols(library: Path) -> Iterator[Symbol]:
    with library.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        sections = list(elf.iter_sections())
        indices = next((s for s in sections if isinstance(s, GNUVerSymSection)), None)
        required = next((s for s in sections if isinstance(s, GNUVerNeedSection)), None)
        needed = required.iter_versions() if required else ()
        versions = {version["vna_other"]: version.name for _, of_library in needed for version in of_library}
        for i, symbol in enumerate(table.iter_symbols() if table else ()):
            if not symbol.name:
                continue
            index = indices.get_symbol(i)["ndx"] if indices else 0
            version = versions.get(index & 0x7FFF, "") if isinstance(index, int) else ""
            is_object = symbol["st_info"]["type"] == "STT_OBJECT"
            yield Symbol(symbol.name, version, symbol["st_shndx"] != "SHN_UNDEF", is_object)


def _build(symbols: list[Symbol], library: Path) -> None:
    """Compile a library that defines the symbols."""
    scripts: dict[str, set[str]] = defaultdict(set)
    for symbol in symbols:
        if symbol.version:
            scripts[symbol.version].add(symbol.name)
    kinds = {s.name: s.is_object for s in symbols}
    with tempfile.TemporaryDirectory() as work, _compiler() as compiler:
        code, versions = Path(work, "symbols.c"), Path(work, "versions")
        prelude = [_PRELUDE] if any(map(_is_cpp, kinds)) else []
        lines = [_definition(name, kinds[name]) for name in sorted(kinds)]
        code.write_text("\n".join([*prelude, *lines]), encoding="utf-8")
        versions.write_text(
            "".join(f"{v} {{ {'; '.join(sorted(f))}; }};\n" for v, f in scripts.items()), encoding="utf-8"
        )
        script = [f"-Wl,--version-script={versions}"] if scripts else []
        subprocess.run([*compiler, "-shared", "-fPIC", "-nostdlib", "-w", "-o", library, code, *script], check=True)


def _is_cpp(name: str) -> bool:
    return name.startswith("_Z")


def _definition(name: str, is_object: bool) -> str:
    """Return the line of C that defines a symbol."""
    if name.startswith(_TYPE_INFO):
        mangled = name.removeprefix(_TYPE_INFO)
        return f'struct {{ void *table; const char *name; }} {name} = {{ {_TYPE_INFO_VTABLE} + 16, "{mangled}" }};'
    if is_object:
        return f"void *{name}[64] = {{ 0, &no_type, [2 ... 63] = no_function }};"
    if _CONSTRUCTOR.match(name):
        return f"void *{name}(void **self) {{ *self = no_class + 2; return self; }}"
    if _is_cpp(name):
        # PyTorch's initialization writes through pointers that some functions return.
        return f"void *{name}(void) {{ return memory; }}"
    return f"int {name}(void) {{ return {_NO_DEVICE}; }}"


@contextlib.contextmanager
def _compiler() -> Iterator[list[str]]:
    """Find a C compiler, or install one for as long as it is used."""
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found:
        yield [found]
        return
    with tempfile.TemporaryDirectory() as folder:
        _pip("--target", folder, "ziglang")
        yield [str(Path(folder, "ziglang", "zig")), "cc", "-target", "x86_64-linux-gnu"]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*command, *arguments], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Install PyTorch without CUDA.")
    parser.add_argument("requirement", help="the version, such as torch==2.13.0")
    parser.add_argument("--target", type=Path, help="a folder that receives only PyTorch")
    chosen = parser.parse_args()
    install(chosen.requirement, chosen.target)
