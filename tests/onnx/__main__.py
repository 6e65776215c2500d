"""`python -m tests.onnx --devices numpy,opencl`: run ONNX's node tests on devices, and print how many pass."""

from __future__ import annotations

import argparse
import collections
import os
import warnings

os.environ.setdefault("POLYHAL_FALLBACK", "allow")

from polyhal.hal.device import Device
from tests.onnx.node_cases import cases, operators_table, outcome
from tests.onnx.page import counts, record


def main() -> None:
    """Run the tests, print counts and record them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="numpy", help="names of devices, separated by commas")
    parser.add_argument("--only", default="", help="run only tests whose names contain this")
    parser.add_argument("--capture", action="store_true", help="run captured steps instead of op by op")
    parser.add_argument("--failures", action="store_true", help="print each failure, and what is not supported")
    parser.add_argument("--operators", action="store_true", help="print the table of operators of docs/onnx.md")
    parser.add_argument("--record", action="store_true", help="write tests/onnx/results.json and the table of the page")
    chosen = parser.parse_args()
    if chosen.operators:
        print(operators_table())
        return
    warnings.simplefilter("ignore")
    for device in chosen.devices.split(","):
        found = [outcome(case, device, chosen.capture) for name, case in cases().items() if chosen.only in name]
        counted = counts(device, Device(device).info.driver, found)
        print(*counted, sep="\n", flush=True)
        if chosen.record:
            record(counted)
        if chosen.failures:
            for o in found:
                if o.kind == "failed":
                    print(f"  {o.name}: {o.reason}")
            reasons = collections.Counter(o.reason for o in found if o.kind in ("operator", "dtype"))
            for reason, count in reasons.most_common():
                print(f"  {count} times {reason}")


if __name__ == "__main__":
    main()
