"""Counts of the Array API: `python -m tests.array_api --device numpy --device opencl:pocl`.

Each function is compared with array-api-strict. `--consumers` runs functions of scikit-learn and SciPy on tensors, and
`--suite PATH` the standard's own tests, array-api-tests, from a folder. `--dlpack` only counts the exchanges with NumPy,
PyTorch and JAX that share memory.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import polyhal
from tests.array_api.exchanges import table
from tests.array_api.oracle import cases, check

_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)")


def _oracle(device: str, examples: int) -> int:
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
    return failed


def _consumers(device: str, is_timed: bool) -> int:
    command = [sys.executable, "-m", "tests.array_api.consumers", device, *["--timed"] * is_timed]
    return subprocess.run(command, env=os.environ | {"SCIPY_ARRAY_API": "1"}, check=False).returncode


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.array_api", description=__doc__)
    parser.add_argument("--device", action="append", help="a device's name; may be given several times")
    parser.add_argument("--examples", type=int, default=30, help="calls of each function")
    parser.add_argument("--consumers", action="store_true", help="run scikit-learn and SciPy, too")
    parser.add_argument("--timed", action="store_true", help="with --consumers: times relative to NumPy's arrays")
    parser.add_argument("--dlpack", action="store_true", help="count exchanges by DLPack, and nothing else")
    parser.add_argument("--suite", type=Path, help="folder of array-api-tests")
    options, more = parser.parse_known_args()
    failed = 0
    devices = options.device or [polyhal.Device.default().name]
    if options.dlpack:
        print(*table(devices), sep="\n")
        return
    for device in devices:
        failed += _oracle(device, options.examples)
        failed += _consumers(device, options.timed) if options.consumers else 0
        failed += _suite(device, options.suite, options.examples, more) if options.suite else 0
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
