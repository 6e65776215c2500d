"""`make dist`: build the source distribution and, from it, the wheel, and check both.

    python -m tools.distribution           # into dist/
    python -m tools.distribution --check   # into a temporary folder; for continuous integration

Both are built from a copy of the tracked files. The wheel must contain exactly the tracked files of the packages,
byte for byte, so nothing is missing in the source distribution, and nothing comes from an older build. `twine check --strict`
reads the metadata and the description as the package index does, `check-wheel-contents` looks for the usual mistakes.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTICES = ("LICENSE", "THIRD-PARTY.md")
"""Files that the wheel contains in its `licenses` folder."""


class DistributionError(Exception):
    """A distribution is not as it must be."""


def tracked(root: Path) -> list[str]:
    """Return the files of the next commit: tracked files that exist, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (root / name).is_file()]


def folders(root: Path) -> dict[str, str]:
    """Return the folder of each package, from `FOLDERS` of setup.py: the packages of `apps` by their names."""
    tree = ast.parse((root / "setup.py").read_text(encoding="utf-8"))
    (mapping,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Dict))
    pairs = zip(mapping.keys, mapping.values, strict=True)
    named = {ast.literal_eval(k): ast.literal_eval(v) for k, v in pairs if k is not None}
    apps = sorted(p.name for p in (root / "apps").iterdir() if (p / "__init__.py").is_file())
    return named | {f"polyhal.{name}": f"apps/{name}" for name in apps}


def expected_files(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the tracked file of each file that the wheel must contain outside of its metadata."""
    found: dict[str, str] = {}
    for package, folder in folders(root).items():
        inside = [n for n in names if n.startswith(f"{folder}/")]
        found |= {f"{package.replace('.', '/')}/{n.removeprefix(f'{folder}/')}": n for n in inside}
    return found


def copied(root: Path, names: Sequence[str], folder: Path) -> Path:
    """Copy the named files into a folder, and return it."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    return folder


def build(root: Path, names: Sequence[str], out: Path) -> tuple[Path, Path]:
    """Build both distributions from a copy of the named files into `out`. Returns their paths, the source first."""
    with tempfile.TemporaryDirectory() as folder:
        copied(root, names, Path(folder))
        # The packages of the build are in the environment of developers: no other environment is made.
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out.resolve()), folder)
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def problems(root: Path, names: Sequence[str], wheel: Path) -> Iterator[str]:
    """Yield each difference between the wheel's content and the tracked files."""
    expected = expected_files(root, names)
    with zipfile.ZipFile(wheel) as file:
        content = {name: file.read(name) for name in file.namelist()}
    metadata = [name for name in content if ".dist-info/" in name]
    packaged = content.keys() - set(metadata)
    yield from (f"{name}: not in the wheel" for name in sorted(expected.keys() - packaged))
    yield from (f"{name}: in the wheel, but not in the repository" for name in sorted(packaged - expected.keys()))
    for name in sorted(packaged & expected.keys()):
        if content[name] != (root / expected[name]).read_bytes():
            yield f"{name}: differs from {expected[name]}"
    for notice in NOTICES:
        if not any(name.endswith(f".dist-info/licenses/{notice}") for name in metadata):
            yield f"{notice}: not in the wheel's metadata"


def sizes(wheel: Path, source: Path) -> Mapping[str, int]:
    """Return the bytes of both files, and of the wheel's unpacked content."""
    with zipfile.ZipFile(wheel) as file:
        unpacked = sum(entry.file_size for entry in file.infolist())
    with tarfile.open(source) as tar:
        unpacked_source = sum(member.size for member in tar.getmembers())
    return {
        wheel.name: wheel.stat().st_size,
        f"{wheel.name}, unpacked": unpacked,
        source.name: source.stat().st_size,
        f"{source.name}, unpacked": unpacked_source,
    }


def _run(*command: str) -> None:
    """Run a command. Raises DistributionError with its output if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    if done.returncode:
        raise DistributionError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and check both distributions. Returns 1 if a check fails."""
    parser = argparse.ArgumentParser(description="Build and check the wheel and the source distribution.")
    parser.add_argument("--check", action="store_true", help="build into a temporary folder")
    temporary = tempfile.TemporaryDirectory()
    with temporary:
        out = Path(temporary.name) if parser.parse_args(arguments).check else ROOT / "dist"
        if out.is_dir():
            for old in [*out.glob("polyhal-*.whl"), *out.glob("polyhal-*.tar.gz")]:
                old.unlink()
        names = tracked(ROOT)
        try:
            source, wheel = build(ROOT, names, out)
            found = list(problems(ROOT, names, wheel))
            if found:
                raise DistributionError("\n".join(found))
            _run(sys.executable, "-m", "twine", "check", "--strict", str(source), str(wheel))
            _run(sys.executable, "-m", "check_wheel_contents", str(wheel))
        except DistributionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        for name, size in sizes(wheel, source).items():
            print(f"{name}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
