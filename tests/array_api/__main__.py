"""Counts of the Array API: `python -m tests.array_api --device numpy --device opencl:pocl`.

Each function is compared with array-api-strict. `--consumers` runs functions of scikit-learn and SciPy on tensors, and
`--suite PATH` the standard's own tests, array-api-tests, from a folder. `--dlpack` only counts the exchanges with NumPy,
PyTorch and JAX that share memory. `--record` writes the counts to tests/array_api/results.json and docs/array-api.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import polyhal
from tests.array_api.exchanges import table
from tests.array_api.oracle import ELSEWHERE, cases, check, names
from tests.array_api.page import DeviceResult, record, timed

_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)")


def _oracle(device: str, examples: int) -> tuple[int, int]:
    """Return the numbers of functions that fail, and of all."""
    failed = 0
    found = list(cases())
    for case in found:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of work on the host
                check(case, polyhal.Device(device), examples)
        except Exception as error:  # every kind of failure is counted
            failed += 1
            print(f"  {case.name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    print(f"{device}: {len(found) - failed} of {len(found)} functions agree with array-api-strict")
    return failed, len(found)


def _consumers(device: str, is_timed: bool) -> dict[str, Any]:
    """Run the libraries in a process of their own: SciPy reads its setting when it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "consumers.json")
        command = [sys.executable, "-m", "tests.array_api.consumers", device, "--output", str(output)]
        subprocess.run([*command, *["--timed"] * is_timed], env=os.environ | {"SCIPY_ARRAY_API": "1"}, check=False)
        found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        return found


def _suite(device: str, folder: Path, examples: int, more: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:randomly", "array_api_tests"]
    command += ["--max-examples", str(examples), "--disable-deadline", *more]
    environment = os.environ | {"ARRAY_API_TESTS_MODULE": "polyhal", "POLYHAL_DEVICE": device}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    print(
        done.stdout if done.returncode > 1 else "\n".join(re.findall(r"^(?:FAILED|ERROR).*", done.stdout, re.MULTILINE))
    )
    counts = {kind: int(n) for n, kind in _COUNT.findall(done.stdout.splitlines()[-1])}
    print(f"{device}: the standard's suite: {counts}")
    return counts.get("failed", 0) + counts.get("errors", 0)


def _print_functions() -> None:
    """Print each function, operator and attribute of the standard with its test, and how many have one."""
    compared, all_names = {case.name for case in cases()}, names()
    missing = [name for name in all_names if name not in compared and name not in ELSEWHERE]
    for name in all_names:
        print(f"{name}: {'array-api-strict' if name in compared else ELSEWHERE.get(name, 'NOT TESTED')}")
    print(f"{len(all_names) - len(missing)} of {len(all_names)} are tested, {len(compared)} by comparison")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.array_api", description=__doc__)
    parser.add_argument("--device", action="append", help="a device's name; may be given several times")
    parser.add_argument("--examples", type=int, default=30, help="calls of each function")
    parser.add_argument("--consumers", action="store_true", help="run scikit-learn and SciPy, too")
    parser.add_argument("--timed", action="store_true", help="with --consumers: times with tensors and NumPy's arrays")
    parser.add_argument("--record", action="store_true", help="write counts and page")
    parser.add_argument("--dlpack", action="store_true", help="count exchanges by DLPack, and nothing else")
    parser.add_argument("--functions", action="store_true", help="list the standard's functions and their tests")
    parser.add_argument("--suite", type=Path, help="folder of array-api-tests")
    options, more = parser.parse_known_args()
    if options.functions:
        _print_functions()
        return
    failed = 0
    devices = options.device or [polyhal.Device.default().name]
    if options.dlpack:
        print(*table(devices), sep="\n")
        return
    results = []
    for device in devices:
        wrong, count = _oracle(device, options.examples)
        libraries = _consumers(device, options.timed) if options.consumers else None
        results.append(DeviceResult(device, str(polyhal.Device(device).info.name), count - wrong, count, libraries))
        failed += wrong + (len(libraries["failed"]) if libraries else 0)
        failed += _suite(device, options.suite, options.examples, more) if options.suite else 0
    if options.timed:
        print(*timed(results), sep="\n")
    if options.record:
        record(results)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
