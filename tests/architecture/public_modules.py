"""The public modules: users, plug-ins and applications import their names, and docs/stability.md holds for these."""

from __future__ import annotations

LIBRARY = (
    "polyhal",
    *(
        f"polyhal.{name}"
        for name in (
            "amp", "autograd", "cli.chosen_devices", "cli.completion", "cli.display", "cli.progress_bar", "cli.reporting",
            "cli.stop_request", "data", "devices",
            "distributed", "distributions", "export", "fft", "func", "linalg", "nn", "nn.functional", "nn.init", "nn.utils",
            "optim", "optim.lr_scheduler", "parallel", "profiler", "random", "serialize", "signal", "special", "utils",
            "utils.curves", "utils.data", "utils.files", "utils.metrics", "utils.progress",
        )
    ),
)  # fmt: skip
"""Modules whose public names are listed in `__all__`."""
APPLICATIONS = (
    "polyhal.adapters",
    "polyhal.calibration",
    "polyhal.finetune",
    "polyhal.generation",
    "polyhal.llm",
    "polyhal.models",
    "polyhal.text",
    "polyhal.training",
)
"""Applications with names for programs; the others have commands only."""
CONTRACT = tuple(
    f"polyhal.hal.{name}"
    for name in (
        "capabilities",
        "command_buffers",
        "device",
        "dtypes",
        "errors",
        "hookspecs",
        "layout",
        "ops",
        "launch_descriptions",
        "launch_resources",
        "graphs",
        "peer_memory",
        "protocol",
        "quantization.formats",
        "testing",
    )
)
"""Modules for plug-ins: the contract, op declarations and the conformance kit.

Without `__all__`, all names without an underscore are public.
"""
