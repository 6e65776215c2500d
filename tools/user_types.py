"""`make user-types`: check the types of a user's program against an installed wheel and an editable install.

    python -m tools.user_types                       # mypy --strict
    python -m tools.user_types --pyright PATH        # and this pyright, too

Type checkers execute no code, so they do not see packages through the import hooks of ordinary editable installs. The mode
`strict` of setuptools writes a folder of links, which they do see.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.distribution import ROOT, DistributionError, build, copied, tracked

PROGRAM = ROOT / "tests/user_types/program.py"
MUST_FAIL = {
    "polyhal.concat()": '"xs"',
    "polyhal.arrange(3)": "arrange",
    "polyhal.Device.default().nam": "nam",
    'polyhal.nn.Linear("2", 3)': '"int"',
    "polyhal.ones(2).sum(axes=0)": '"axes"',
}
"""Expressions that a type checker must reject, and a part of the error: it would accept everything if it saw no types."""


class TypesError(Exception):
    """A type checker accepts or rejects a program wrongly."""


def environment(folder: Path, *install: str) -> Path:
    """Make an environment with Polyhal, which sees the other packages of this one. Returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-compile")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", *quiet, *install]
    site = next(folder.glob("lib/python*/site-packages"), folder / "Lib/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TypesError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return python


def check(checker: Sequence[str], folder: Path) -> None:
    """Check the program, and that a wrong one is rejected in each line. Raises TypesError."""
    done = _output([*checker, str(PROGRAM)], folder)
    if done.returncode:
        raise TypesError(f"{PROGRAM.relative_to(ROOT)} is rejected:\n{done.stdout}{done.stderr}")
    wrong = folder / "wrong.py"
    lines = ["import polyhal", "import polyhal.nn", *(f"print({expression})" for expression in MUST_FAIL)]
    wrong.write_text("\n".join(lines) + "\n", encoding="utf-8")
    reported = _output([*checker, str(wrong)], folder).stdout.splitlines()
    for number, (expression, word) in enumerate(MUST_FAIL.items(), 3):
        if not any(f"wrong.py:{number}:" in line and "error" in line and word in line for line in reported):
            raise TypesError(f"{expression!r} is accepted:\n" + "\n".join(reported))


def _output(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check both installs. Returns 1 if a check fails."""
    parser = argparse.ArgumentParser(description="Check the types of a user's program.")
    parser.add_argument("--pyright", help="pyright's program, to check with it, too")
    parser.add_argument("--install", choices=("wheel", "editable"), help="one kind of install; both by default")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder, names = Path(name), tracked(ROOT)
        try:
            (folder / "dist").mkdir()
            _, wheel = build(ROOT, names, folder / "dist")
            editable = copied(ROOT, names, folder / "source")
            strict = ("--config-settings", "editable_mode=strict")
            installs = {"wheel": (str(wheel),), "editable": ("--editable", str(editable), *strict)}
            for kind, install in installs.items():
                if given.install not in (None, kind):
                    continue
                python = environment(folder / kind, *install)
                mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--config-file="]
                checkers = {"mypy": [*mypy, "--cache-dir", str(folder / f"{kind}-cache")]}
                if given.pyright:
                    checkers["pyright"] = [str(Path(given.pyright).absolute()), "--pythonpath", str(python)]
                for checker, command in checkers.items():
                    check(command, folder)
                    print(f"{checker}: a user's program is typed, with Polyhal from {kind}")
        except (DistributionError, TypesError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
