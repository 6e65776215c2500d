"""Run all benchmarks, or the named ones.

python -m benchmarks [NAME ...] [OPTION ...]

Options after the names are passed on to each benchmark; `python -m benchmarks NAME --help` lists them. All benchmarks
understand --devices. Several benchmarks run one after the other, each in its own subprocess.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path

SUITE = Path(__file__).resolve().parent / "suite"
NAMES = tuple(sorted(p.stem for p in SUITE.glob("*.py") if p.stem != "__init__"))


def description(name: str) -> str:
    """Return the first line of a benchmark's docstring, read without importing it."""
    docstring = ast.get_docstring(ast.parse((SUITE / f"{name}.py").read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def listing() -> str:
    """Return all benchmarks with their descriptions, one per line."""
    width = max(map(len, NAMES))
    return "\n".join(f"{name:<{width}}  {description(name)}" for name in NAMES)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks that `arguments` name. Returns the exit code: 0, 1 if a limit is missed, 2 for bad input."""
    names = list(takewhile(lambda a: not a.startswith("-"), arguments))
    options = list(arguments[len(names) :])
    if len(names) == 1 and names[0] in NAMES:
        return _run(names[0], options)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="%(prog)s [NAME ...] [OPTION ...]",
        description=__doc__,
        epilog=listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="describe every benchmark in one line")
    parser.add_argument("--json-dir", type=Path, help="write the results of each benchmark to NAME.json in this folder")
    args, passed_on = parser.parse_known_args(options)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; expected any of {', '.join(NAMES)}")
    if args.list:
        print(listing())
        return 0
    if any(option.partition("=")[0] == "--json" for option in passed_on):
        parser.error("--json is one file; use --json-dir with several benchmarks")
    if args.json_dir is not None:
        args.json_dir.mkdir(parents=True, exist_ok=True)
    return max(_run_in_subprocess(name, passed_on, args.json_dir) for name in names or NAMES)


def _run(name: str, options: Sequence[str]) -> int:
    """Run one benchmark in this process."""
    from polyhal.hal.errors import PolyhalError

    code: int
    try:
        code = import_module(f"benchmarks.suite.{name}").main(options)
    except (PolyhalError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return code


def _run_in_subprocess(name: str, options: Sequence[str], folder: Path | None) -> int:
    """Run one benchmark with its own garbage collector, environment and caches."""
    json_options = ["--json", str(folder / f"{name}.json")] if folder is not None else []
    print(f"\n=== {name}: {description(name)}", flush=True)
    command = [sys.executable, "-m", "benchmarks", name, *options, *json_options]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
