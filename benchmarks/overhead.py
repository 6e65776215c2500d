"""What the framework itself costs per op: `a + b` on the null backend, and eager time per op on every device.

python -m benchmarks.overhead [--devices numpy,opencl:0]
"""

from __future__ import annotations

import argparse
import gc

from benchmarks.measure import per_call
from polyhal import Device, Tensor, zeros
from polyhal.hal.discovery.registry import registry

LIMIT, LIMIT_WITH_TAPE = 3.0, 4.0
"""Microseconds that the design allows for `a + b`."""


def _pair(device: Device, size: int) -> tuple[Tensor, Tensor]:
    return zeros((size,), device=device), zeros((size,), device=device)


def framework() -> bool:
    """Print the framework's share of `a + b`, without and with the tape; True when within the limits."""
    a, b = _pair(Device("null"), 16)
    plain = per_call(lambda: a + b, 20_000)
    a.requires_grad_()
    taped = per_call(lambda: a + b, 20_000)
    print("framework share of a + b (null backend, microseconds: median [quartiles])")
    print(f"  without tape  {plain.text(1e6, 'us')}   limit {LIMIT}")
    print(f"  with tape     {taped.text(1e6, 'us')}   limit {LIMIT_WITH_TAPE}")
    return plain.median * 1e6 <= LIMIT and taped.median * 1e6 <= LIMIT_WITH_TAPE


def devices(names: list[str]) -> None:
    """Print the time of an eager op on small tensors, enqueued and waited for once per loop."""
    print("\neager a + b of 10,000 floats, one wait per 1,000 ops")
    for name in names:
        device = Device(name)
        a, b = _pair(device, 10_000)

        def loop(a: Tensor = a, b: Tensor = b, device: Device = device) -> None:
            for _ in range(1000):
                a + b
            device.synchronize()

        timing = per_call(loop, 1, 20)
        print(f"  {device.name:<12} {timing.text(1e3, 'us per op')}   {device.info.name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    args = parser.parse_args()
    gc.disable()  # the collector's pauses are the program's, not the op's
    within = framework()
    devices(args.devices.split(",") if args.devices else [c.name for c in registry().candidates()])
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
