"""Launches and time of optimizer steps, eager and captured, also of PyTorch's optimizers on its device "polyhal".

Each optimizer updates 24 small parameters, whose launches take longer than their work, and one large parameter, which
is bound by memory traffic. A step ends when the device has finished. A sample has as many steps as take 30 ms: after a
pause, the first step finds code and data in memory instead of the processor's caches and takes 0.4 to 0.6 ms longer.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device, get_default_device, jit, nn, optim, set_default_device, tensor
from polyhal.hal.errors import CaptureError
from polyhal.hal.protocol import SupportsProfiling

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 1e-3}),
    "SGD, momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "Adam": ("Adam", {}),
    "AdamW": ("AdamW", {}),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True}),
    "Adagrad": ("Adagrad", {}),
    "Adadelta": ("Adadelta", {}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop, centered": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "Rprop": ("Rprop", {}),
    "ASGD": ("ASGD", {}),
    "Lion": ("Lion", {}),
    "LAMB": ("LAMB", {}),
    "Adafactor": ("Adafactor", {}),
    "Muon": ("Muon", {}),
}
PARAMETERS: dict[str, list[tuple[int, ...]]] = {
    "24 small": [shape for _ in range(12) for shape in ((32, 32), (32,))],
    "one large": [(2048, 2048)],
}
_SAMPLE_SECONDS = 0.03
_PYTORCH_HAS_NOT = ("Lion", "LAMB")
_OF_MATRICES = ("Muon",)
"""Optimizers of parameters with two axes; the others are left out."""


def _arrays(name: str, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    taken = [s for s in shapes if len(s) == 2 or name not in _OF_MATRICES]
    return [rng.normal(size=s).astype(np.float32) for s in taken]


def polyhal_step(device: Device, name: str, shapes: Sequence[tuple[int, ...]]) -> Callable[[], None]:
    """Return a step of an optimizer of `polyhal.optim` on parameters with gradients."""
    arrays = _arrays(name, shapes)
    parameters = [nn.Parameter(tensor(x, device=device)) for x in arrays]
    for p, x in zip(parameters, arrays, strict=True):
        p.grad = tensor(x * 0.1, device=device)
    kind, settings = OPTIMIZERS[name]
    optimizer = getattr(optim, kind)(parameters, **settings)
    return lambda: optimizer.step()


def pytorch_step(name: str, shapes: Sequence[tuple[int, ...]], capturable: bool = False) -> Callable[[], None]:
    """Return a step of PyTorch's optimizer on the device "polyhal", with `foreach` and `capturable` where it has them."""
    import torch

    import polyhal.torch  # noqa: F401  (registers the device)

    arrays = _arrays(name, shapes)
    parameters = [torch.nn.Parameter(torch.from_numpy(x).to("polyhal")) for x in arrays]
    for p, x in zip(parameters, arrays, strict=True):
        p.grad = torch.from_numpy(x * np.float32(0.1)).to("polyhal")
    kind, settings = OPTIMIZERS[name]
    make = getattr(torch.optim, kind)
    options = {"foreach": True, "capturable": capturable}
    known = {k: v for k, v in options.items() if k in inspect.signature(make).parameters}
    optimizer = make(parameters, **known, **settings)
    return lambda: optimizer.step()


def _recorded(step: Callable[[], None]) -> Callable[[], None] | None:
    """Return a recorded step; None if the optimizer reads numbers from the device, as PyTorch's Adafactor."""
    from polyhal.torch import jit as record

    recorded: Callable[[], None] = record(step, strict=True)
    try:
        recorded()
        recorded()
    except CaptureError:
        return None
    return recorded


def launches(device: Device, step: Callable[[], None]) -> int:
    """Return the number of launches of a step."""
    backend: Any = device.backend
    device.synchronize()
    backend.start_profiling()
    step()
    device.synchronize()
    return len(backend.stop_profiling())


def measure(device: Device, names: Sequence[str], repetitions: int, pytorch: bool) -> list[dict[str, Any]]:
    """Measure all optimizers on a device, print them, and return a row for each."""
    rows = []
    print(f"\n{device.info.name} ({device.name}); launches and milliseconds of a step")
    for size, shapes in PARAMETERS.items():
        for name in names:
            steps: dict[str, Callable[[], None]] = {"eager": polyhal_step(device, name, shapes)}
            captured: Any = jit(polyhal_step(device, name, shapes))
            steps["captured"] = captured
            if pytorch and name not in _PYTORCH_HAS_NOT:
                steps["PyTorch, foreach"] = pytorch_step(name, shapes)
                recorded = _recorded(pytorch_step(name, shapes, capturable=True))
                if recorded is not None:
                    steps["PyTorch, recorded"] = recorded
            for step in steps.values():
                for _ in range(4):
                    step()
            counts = {way: launches(device, step) for way, step in steps.items()}
            waiting = {way: _until_finished(device, step) for way, step in steps.items()}
            timings = alternate(waiting, repetitions, settle=device.synchronize, min_seconds=_SAMPLE_SECONDS)
            row: dict[str, Any] = {"device": device.name, "parameters": size, "optimizer": name, "steps": {}}
            for way, timing in timings.items():
                milliseconds = [t * 1e3 for t in (timing.median, timing.low, timing.high)]
                row["steps"][way] = {"launches": counts[way], "ms": milliseconds}
            text = "; ".join(f"{way} {counts[way]:>4} {timing.text(1e3, 'ms')}" for way, timing in timings.items())
            print(f"  {size:<10} {name:<18} {text}", flush=True)
            rows.append(row)
    return rows


def _until_finished(device: Device, step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        step()
        device.synchronize()

    return run


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("optimizers", __doc__)
    parser.add_argument("--optimizers", default=",".join(k for k in OPTIMIZERS if "," not in k), metavar="NAMES")
    parser.add_argument("--all", action="store_true", help="measure all optimizers and their variants")
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    names = list(OPTIMIZERS) if args.all else choices(args.optimizers, tuple(OPTIMIZERS))
    gc.disable()
    devices = open_devices(args.devices, lambda device: isinstance(device.backend, SupportsProfiling))
    rows: list[dict[str, Any]] = []
    previous = get_default_device()
    for device in devices:
        set_default_device(device)
        rows += measure(device, names, args.repetitions, importlib.util.find_spec("torch") is not None)
    set_default_device(previous)
    write(args.json, {"benchmark": "optimizers", **describe_machine(devices), "rows": rows})
    return 0
