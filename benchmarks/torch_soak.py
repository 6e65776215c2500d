"""Thousands of training steps of a PyTorch program on Polyhal's device, eager and recorded: nothing may grow.

python -m benchmarks.torch_soak [--devices NAMES] [--steps 10000]

A GPT with a plain AdamW, whose step counts are CPU tensors, and a scheduler; new batches come from the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.reliability.soak import Held, held
from benchmarks.result_files import describe_machine, write
from polyhal import Device

_SLACK = {"resident": 8 << 20, "reserved": 1 << 20}
"""Bytes of permitted variation, as in the campaign of soak."""


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("torch_soak", __doc__, devices="opencl")
    parser.prog = "python -m benchmarks.torch_soak"
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        print("torch_soak: PyTorch is not installed, nothing is run")
        return 0
    devices = open_devices(args.devices)
    result: dict[str, Any] = {
        "benchmark": "torch_soak",
        **describe_machine(devices),
        "torch": torch.__version__,
        "rows": [],
    }
    grown = False
    for device in devices:
        for recorded in (False, True):
            row = soak(device, recorded, args.steps)
            result["rows"].append(row)
            write(args.json, result)
            grown |= bool(row["findings"])
    return int(grown)


def soak(device: Device, recorded: bool, steps: int, times: int = 10) -> dict[str, Any]:
    """Take steps, and measure the resources of the process several times. Returns a row with the resources that
    grew."""
    step = prepare(device, recorded)
    looks: list[Held] = []
    for i in range(steps):
        step()
        if (i + 1) % (steps // times) == 0:
            looks.append(held([device]))
    growth = {n: max(getattr(x, n) for x in looks[1:]) - getattr(looks[0], n) for n in Held._fields}
    findings = [f"{name} grew by {amount:,}" for name, amount in growth.items() if amount > _SLACK.get(name, 0)]
    who = "recorded" if recorded else "eager"
    print(f"{device.name} {who}: {steps} steps, {growth}", *findings, sep="\n  ", file=sys.stderr if findings else None)
    return {"device": device.name, "who": who, "steps": steps, "growth": growth, "findings": findings}


def prepare(device: Device, recorded: bool) -> Callable[[], object]:
    """Return a training step, which draws its batch."""
    import torch
    from torch import nn

    import polyhal
    import polyhal.torch
    from benchmarks.torch_models import TorchGPT
    from polyhal.models import GPTConfig

    polyhal.set_default_device(device)
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=32, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1)
    model = TorchGPT(config).to("polyhal")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000, 0.9)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        on_device = tokens.to("polyhal")
        loss = nn.functional.cross_entropy(model(on_device[:, :-1]).flatten(0, 1), on_device[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    run = polyhal.torch.jit(step, strict=True) if recorded else step
    return lambda: run(torch.randint(32, (4, 9))).item()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
